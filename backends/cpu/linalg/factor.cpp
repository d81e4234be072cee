// Cholesky, LU and LDL decompositions, inverses, and what is solved with them.
#include <cmath>
#include <complex>

#include "backends/cpu/linalg/batches.h"
#include "backends/cpu/linalg/shared_lu.h"
#include "backends/cpu/linalg/small_matrices.h"
#include "backends/cpu/register.h"

namespace mica::cpu {
namespace {

using lapack::Integer;
using lapack::Routine;

// A few columns are solved by strips. In whole blocks, the library's products would have nothing to share among
// threads.
constexpr int64_t kLeastStrips = 32, kFewColumns = 32;
constexpr int64_t kSmallTriangle = 32;

template <class T>
void clear_triangle(T* a, int64_t n, bool upper_one) {
  for (int64_t j = 0; j < n; ++j) {
    T* const column = a + j * n;
    if (upper_one) {
      std::fill(column, column + j, T(0));
    } else {
      std::fill(column + j + 1, column + n, T(0));
    }
  }
}

// The order of the first minor whose factor is NaN, which is not positive, or 0 where there is none. Libraries only
// compare with zero, and go on.
template <class T>
int32_t first_nan(const T* factor, int64_t n) {
  for (int64_t k = 0; k < n; ++k)
    if (std::isnan(std::real(factor[k * n + k]))) return static_cast<int32_t>(k + 1);
  return 0;
}

void cholesky(const TensorView& a, const TensorView& info, bool upper) {
  visit_matrix("cholesky_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> matrices(a);
    int32_t* const infos = info.ptr<int32_t>();
    if constexpr (!lapack::is_complex_v<T>) {
      if (small::takes(matrices.rows, matrices.count))
        return small::cholesky(matrices.data, matrices.rows, matrices.count, infos, upper);
      // With one thread the library's own code is faster, because it leaves out more of the other triangle.
      if (get_num_threads() > 1 && worth_sharing(matrices.count, matrices.rows, matrices.columns)) {
        *infos = shared_cholesky(matrices.data, matrices.rows, upper);
        if (*infos == 0) *infos = first_nan(matrices.data, matrices.rows);
        return clear_triangle(matrices.data, matrices.rows, !upper);
      }
    }
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      const char triangle = upper ? 'U' : 'L';
      const Integer n = matrices.n(), lead = matrices.lead();
      for (int64_t i = begin; i < end; ++i) {
        lapack::call<T>(Routine::potrf, &triangle, &n, matrices[i], &lead, infos + i);
        if (infos[i] == 0) infos[i] = first_nan(matrices[i], n);
        clear_triangle(matrices[i], n, !upper);
      }
    });
  });
}

void cholesky_solve(const TensorView& factor, const TensorView& b, bool upper) {
  visit_matrix("cholesky_solve_cpu", b.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> factors(factor), solutions(b);
    over_matrices(factors.count, factors.rows, solutions.columns, [&](int64_t begin, int64_t end) {
      const char triangle = upper ? 'U' : 'L';
      const Integer n = factors.n(), lead = factors.lead(), columns = solutions.n();
      Integer info = 0;
      for (int64_t i = begin; i < end; ++i)
        lapack::call<T>(Routine::potrs, &triangle, &n, &columns, factors[i], &lead, solutions[i], &lead, &info);
    });
  });
}

void cholesky_inverse(const TensorView& a, const TensorView& info, bool upper) {
  visit_matrix("cholesky_inverse_out_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> matrices(a);
    int32_t* const infos = info.ptr<int32_t>();
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      const char triangle = upper ? 'U' : 'L';
      const Integer n = matrices.n(), lead = matrices.lead();
      for (int64_t i = begin; i < end; ++i) {
        T* const inverse = matrices[i];
        lapack::call<T>(Routine::potri, &triangle, &n, inverse, &lead, infos + i);
        for (int64_t column = 0; column < n; ++column)  // clears the other triangle
          for (int64_t row = column + 1; row < n; ++row) {
            T &low = inverse[column * n + row], &high = inverse[row * n + column];
            if constexpr (lapack::is_complex_v<T>) {
              (upper ? low : high) = std::conj(upper ? high : low);
            } else {
              (upper ? low : high) = upper ? high : low;
            }
          }
      }
    });
  });
}

void lu_factor(const TensorView& a, const TensorView& pivots, const TensorView& info) {
  visit_matrix("lu_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> matrices(a);
    const Vectors<int32_t> rows(pivots);
    int32_t* const infos = info.ptr<int32_t>();
    if constexpr (!lapack::is_complex_v<T>) {
      if (matrices.rows == matrices.columns && small::takes(matrices.rows, matrices.count))
        return small::lu(matrices.data, matrices.rows, matrices.count, rows.data, infos);
      if (worth_sharing(matrices.count, matrices.rows, matrices.columns)) {
        *infos = shared_lu(matrices.data, matrices.rows, matrices.columns, rows.data);
        return;
      }
    }
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      const Integer m = matrices.m(), n = matrices.n(), lead = matrices.lead();
      for (int64_t i = begin; i < end; ++i) {
        lapack::call<T>(Routine::getrf, &m, &n, matrices[i], &lead, rows[i], infos + i);
        // A matrix of NaN has no largest element, and the library may name no pivot.
        for (int64_t k = 0; k < rows.length; ++k)
          if (rows[i][k] < k + 1 || rows[i][k] > m) rows[i][k] = static_cast<int32_t>(k + 1);
      }
    });
  });
}

void lu_solve(const TensorView& lu, const TensorView& pivots, const TensorView& b, int64_t transpose) {
  visit_matrix("lu_solve_cpu", b.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> factors(lu), solutions(b);
    const Vectors<int32_t> rows(pivots);
    for (int64_t i = 0; i < factors.count * rows.length; ++i) {
      MICA_CHECK(rows.data[i] >= 1,
                 "Pivots given to lu_solve must all be greater or equal to 1. Did you properly pass the result of "
                 "lu_factor?");
      MICA_CHECK(rows.data[i] <= factors.rows,
                 "Pivots given to lu_solve must all be smaller or equal to LU.size(-2). Did you properly pass the "
                 "result of lu_factor?");
    }
    if constexpr (!lapack::is_complex_v<T>) {
      if (transpose == 0 && factors.count == 1 && factors.rows >= kLeastStrips && solutions.columns <= kFewColumns) {
        for (int64_t c = 0; c < solutions.columns; ++c)
          exchange_rows(solutions.data + c * factors.rows, rows.data, 0, factors.rows);
        return panels::solve_lu(factors.data, factors.rows, solutions.data, solutions.columns);
      }
    }
    over_matrices(factors.count, factors.rows, std::max(factors.columns, solutions.columns),
                  [&](int64_t begin, int64_t end) {
                    const char form = "NTC"[transpose];
                    const Integer n = factors.n(), lead = factors.lead(), columns = solutions.n();
                    Integer info = 0;
                    for (int64_t i = begin; i < end; ++i)
                      lapack::call<T>(Routine::getrs, &form, &n, &columns, factors[i], &lead, rows[i], solutions[i],
                                      &lead, &info);
                  });
  });
}

void inverse(const TensorView& a, const TensorView& info) {
  visit_matrix("linalg_inv", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> matrices(a);
    int32_t* const infos = info.ptr<int32_t>();
    if constexpr (!lapack::is_complex_v<T>) {
      if (small::takes(matrices.rows, matrices.count))
        return small::inverse(matrices.data, matrices.rows, matrices.count, infos);
      if (worth_sharing(matrices.count, matrices.rows, matrices.columns)) {
        std::vector<Integer> pivots(static_cast<size_t>(matrices.rows));
        *infos = shared_lu(matrices.data, matrices.rows, matrices.columns, pivots.data());
        if (*infos == 0) shared_inverse(matrices.data, matrices.rows, pivots.data());
        return;
      }
    }
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      const Integer n = matrices.n(), lead = matrices.lead();
      std::vector<Integer> pivots(static_cast<size_t>(n));
      if constexpr (!lapack::is_complex_v<T>) {
        if (worth_own_code(matrices.rows, matrices.columns)) {
          for (int64_t i = begin; i < end; ++i) {
            infos[i] = shared_lu(matrices[i], matrices.rows, matrices.columns, pivots.data());
            if (infos[i] == 0) shared_inverse(matrices[i], matrices.rows, pivots.data());
          }
          return;
        }
      }
      T size{};
      Integer query = -1, ignored = 0;
      lapack::call<T>(Routine::getri, &n, matrices[begin], &lead, pivots.data(), &size, &query, &ignored);
      const Integer length = asked_for(size);
      std::vector<T> work(static_cast<size_t>(length));
      for (int64_t i = begin; i < end; ++i) {
        lapack::call<T>(Routine::getrf, &n, &n, matrices[i], &lead, pivots.data(), infos + i);
        for (int64_t k = 0; k < n; ++k)
          if (pivots[k] < k + 1 || pivots[k] > n) pivots[k] = static_cast<Integer>(k + 1);
        if (infos[i] == 0)
          lapack::call<T>(Routine::getri, &n, matrices[i], &lead, pivots.data(), work.data(), &length, infos + i);
      }
    });
  });
}

void ldl_factor(const TensorView& a, const TensorView& pivots, const TensorView& info, bool hermitian) {
  visit_matrix("ldl_factor_kernel_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> matrices(a);
    const Vectors<int32_t> rows(pivots);
    int32_t* const infos = info.ptr<int32_t>();
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      const Routine routine = hermitian ? Routine::hetrf : Routine::sytrf;
      const char triangle = 'L';
      const Integer n = matrices.n(), lead = matrices.lead();
      T size{};
      Integer query = -1, ignored = 0;
      lapack::call<T>(routine, &triangle, &n, matrices[begin], &lead, rows[begin], &size, &query, &ignored);
      const Integer length = asked_for(size);
      std::vector<T> work(static_cast<size_t>(length));
      for (int64_t i = begin; i < end; ++i) {
        lapack::call<T>(routine, &triangle, &n, matrices[i], &lead, rows[i], work.data(), &length, infos + i);
        clear_triangle(matrices[i], n, true);
      }
    });
  });
}

// LAPACK does not check pivots: positive ones are rows, and two equal negative ones side by side stand for a block of
// two rows.
void check_ldl_pivots(const int32_t* pivots, int64_t n) {
  bool within_block = false;
  for (int64_t k = 0; k < n; ++k) {
    const int64_t row = std::abs(static_cast<int64_t>(pivots[k]));
    MICA_CHECK(row != 0 && row <= n && (pivots[k] < 0 || !within_block),
               "torch.linalg.ldl_solve: pivots must be those of ldl_factor, but ", pivots[k], " is among them, at ", k);
    within_block = pivots[k] < 0 && !within_block;
  }
  MICA_CHECK(!within_block, "torch.linalg.ldl_solve: pivots must be those of ldl_factor, but the last negative one, ",
             pivots[n - 1], ", stands alone");
}

void ldl_solve(const TensorView& ld, const TensorView& pivots, const TensorView& b, bool hermitian) {
  visit_matrix("ldl_solve_kernel_cpu", b.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> factors(ld), solutions(b);
    const Vectors<int32_t> rows(pivots);
    for (int64_t i = 0; i < factors.count; ++i) check_ldl_pivots(rows[i], factors.rows);
    over_matrices(factors.count, factors.rows, solutions.columns, [&](int64_t begin, int64_t end) {
      const char triangle = 'L';
      const Integer n = factors.n(), lead = factors.lead(), columns = solutions.n();
      Integer info = 0;
      for (int64_t i = begin; i < end; ++i)
        lapack::call<T>(hermitian ? Routine::hetrs : Routine::sytrs, &triangle, &n, &columns, factors[i], &lead,
                        rows[i], solutions[i], &lead, &info);
    });
  });
}

// x = op(A)^-1 x for one column and a triangle of n columns.
template <class T>
void substitute(const T* a, int64_t n, T* x, bool upper, bool transpose, bool unit) {
  for (int64_t step = 0; step < n; ++step) {
    const int64_t j = upper == transpose ? step : n - 1 - step;
    const T* const column = a + j * n;
    const int64_t first = upper ? 0 : j + 1, last = upper ? j : n;
    T value = x[j];
    if (transpose)
      for (int64_t i = first; i < last; ++i) value -= column[i] * x[i];
    if (!unit) value /= column[j];
    x[j] = value;
    if (!transpose)
      for (int64_t i = first; i < last; ++i) x[i] -= column[i] * value;
  }
}

void triangular_solve(const TensorView& a, const TensorView& b, bool left, bool upper, int64_t transpose, bool unit) {
  visit_matrix("triangular_solve_cpu", b.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> triangles(a), solutions(b);
    if constexpr (!lapack::is_complex_v<T>) {
      // For such a matrix, a call of the library costs more than the solution.
      if (left && solutions.count > 1 && solutions.rows <= kSmallTriangle && solutions.columns <= kSmallTriangle) {
        const int64_t n = solutions.rows, work = n * n * solutions.columns + 1;
        return parallel_for(0, solutions.count, 1 + 32768 / work, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            for (int64_t c = 0; c < solutions.columns; ++c)
              substitute(triangles[i], n, solutions[i] + c * n, upper, transpose != 0, unit);
        });
      }
    }
    over_matrices(solutions.count, solutions.rows, solutions.columns, [&](int64_t begin, int64_t end) {
      const char side = left ? 'L' : 'R', triangle = upper ? 'U' : 'L', form = "NTC"[transpose],
                 ones = unit ? 'U' : 'N';
      const Integer m = solutions.m(), n = solutions.n(), lead = triangles.lead(), rows = solutions.lead();
      const T one(1);
      for (int64_t i = begin; i < end; ++i)
        lapack::call<T>(Routine::trsm, &side, &triangle, &form, &ones, &m, &n, &one, triangles[i], &lead, solutions[i],
                        &rows);
    });
  });
}

}  // namespace

MICA_REGISTER_CPU(linalg_cholesky, cholesky);
MICA_REGISTER_CPU(linalg_cholesky_solve, cholesky_solve);
MICA_REGISTER_CPU(linalg_cholesky_inverse, cholesky_inverse);
MICA_REGISTER_CPU(linalg_lu_factor, lu_factor);
MICA_REGISTER_CPU(linalg_lu_solve, lu_solve);
MICA_REGISTER_CPU(linalg_inverse, inverse);
MICA_REGISTER_CPU(linalg_ldl_factor, ldl_factor);
MICA_REGISTER_CPU(linalg_ldl_solve, ldl_solve);
MICA_REGISTER_CPU(linalg_triangular_solve, triangular_solve);

}  // namespace mica::cpu
