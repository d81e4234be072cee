// What follows from LU factors and their exchanges of rows: determinants, and the order of the rows.
#include "backends/cpu/linalg/batches.h"
#include "backends/cpu/register.h"

namespace mica::cpu {
namespace {

// The products of the diagonals, with the sign of the exchanges. The compiler knows the size if kSize is not 0.
template <int kSize, class T>
void multiply_diagonals(const T* factors, const int32_t* rows, T* products, int64_t count, int64_t given) {
  const int64_t n = kSize ? kSize : given;
  for (int64_t i = 0; i < count; ++i, factors += n * n, rows += n) {
    T product(1);
    bool odd = false;
    for (int64_t k = 0; k < n; ++k) {
      product *= factors[k * n + k];
      odd ^= rows[k] != k + 1;
    }
    products[i] = odd ? -product : product;
  }
}

void determinants(const TensorView& out, const TensorView& lu, const TensorView& pivots) {
  visit_matrix("linalg_det", lu.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> factors(lu);
    const int64_t n = factors.rows;
    const int32_t* const rows = pivots.ptr<int32_t>();
    T* const products = out.ptr<T>();
    const auto multiply = n == 2   ? multiply_diagonals<2, T>
                          : n == 3 ? multiply_diagonals<3, T>
                          : n == 4 ? multiply_diagonals<4, T>
                                   : multiply_diagonals<0, T>;
    parallel_for(0, factors.count, std::max<int64_t>(1, 8192 / n), [&](int64_t begin, int64_t end) {
      multiply(factors[begin], rows + begin * n, products + begin, end - begin, n);
    });
  });
}

void row_order(const TensorView& order, const TensorView& pivots) {
  const Vectors<int64_t> places(order);
  const Vectors<int32_t> exchanges(pivots);
  const int64_t m = places.length, k = exchanges.length, count = order.numel / m;
  for (int64_t i = 0; i < count; ++i) {
    int64_t* const mine = places[i];
    for (int64_t row = 0; row < m; ++row) mine[row] = row;
    for (int64_t row = 0; row < k; ++row) {
      const int64_t other = int64_t{exchanges[i][row]} - 1;
      MICA_CHECK(other >= 0 && other < m,
                 "torch.lu_unpack: pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive, which is ",
                 m, ", but one is ", other + 1);
      std::swap(mine[row], mine[other]);
    }
  }
}

MICA_REGISTER_CPU(linalg_lu_determinant, determinants);
MICA_REGISTER_CPU(linalg_lu_row_order, row_order);

}  // namespace
}  // namespace mica::cpu
