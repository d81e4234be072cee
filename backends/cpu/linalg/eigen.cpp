// Eigenvalues and eigenvectors.
#include "backends/cpu/linalg/batches.h"
#include "backends/cpu/linalg/flush_tiny.h"
#include "backends/cpu/linalg/general_eig.h"
#include "backends/cpu/linalg/shared_spectral.h"
#include "backends/cpu/linalg/small_matrices.h"
#include "backends/cpu/register.h"

namespace mica::cpu {
namespace {

using lapack::Integer;
using lapack::Real;
using lapack::Routine;

// The eigenvectors replace `a`, where they are asked for. Only the named triangle is read.
void eigh(const TensorView& a, const TensorView& eigenvalues, const TensorView& info, bool upper, bool vectors) {
  visit_matrix("linalg_eigh_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = Real<T>;
    const Matrices<T> matrices(a);
    const Vectors<R> values(eigenvalues);
    int32_t* const infos = info.ptr<int32_t>();
    if constexpr (!lapack::is_complex_v<T>) {
      if (small::takes_iterative(matrices.rows, matrices.count))
        return small::eigh(matrices.data, values.data, matrices.rows, matrices.count, infos, upper, vectors);
      if (vectors && worth_sharing(matrices.count, matrices.rows, matrices.columns) &&
          all_finite(matrices.data, matrices.rows * matrices.columns) &&
          in_plain_range(matrices.data, matrices.rows * matrices.columns)) {
        *infos = shared_eigh(matrices.data, matrices.rows, values.data, upper);
        return;
      }
    }
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      const char job = vectors ? 'V' : 'N', triangle = upper ? 'U' : 'L';
      const Integer n = matrices.n(), lead = matrices.lead();
      std::vector<R> reals(1);
      std::vector<Integer> integers(1);
      Integer real_length = -1, integer_length = -1;
      const auto run = [&](int64_t i, T* work, Integer length, Integer* result) {
        if constexpr (lapack::is_complex_v<T>) {
          lapack::call<T>(Routine::syevd, &job, &triangle, &n, matrices[i], &lead, values[i], work, &length,
                          reals.data(), &real_length, integers.data(), &integer_length, result);
        } else {
          lapack::call<T>(Routine::syevd, &job, &triangle, &n, matrices[i], &lead, values[i], work, &length,
                          integers.data(), &integer_length, result);
        }
      };
      T size{};
      Integer ignored = 0;
      run(begin, &size, -1, &ignored);
      // The library gives sizes as floats of the matrix's precision, which may have been rounded down.
      const Integer length =
          static_cast<Integer>(asked_for(size) * (1 + 4 * double(std::numeric_limits<R>::epsilon()))) + 1;
      integer_length = std::max<Integer>(1, integers[0]);
      integers.resize(static_cast<size_t>(integer_length));
      if constexpr (lapack::is_complex_v<T>) {
        real_length = static_cast<Integer>(
                          std::max(1.0, double(reals[0]) * (1 + 4 * double(std::numeric_limits<R>::epsilon())))) +
                      1;
        reals.resize(static_cast<size_t>(real_length));
      }
      std::vector<T> work(static_cast<size_t>(length));
      for (int64_t i = begin; i < end; ++i) {
        if (!all_finite(matrices[i], int64_t{n} * n)) {
          infos[i] = std::max<Integer>(1, n - 1);
          continue;
        }
        const FlushTiny flush(in_plain_range(reinterpret_cast<const R*>(matrices[i]),
                                             int64_t{n} * n * static_cast<int64_t>(sizeof(T) / sizeof(R))));
        run(i, work.data(), length, infos + i);
      }
    });
  });
}

// Eigenvalues and, where `vectors` is not empty, right eigenvectors, complex both; a is destroyed.
void eig(const TensorView& a, const TensorView& eigenvalues, const TensorView& eigenvectors, const TensorView& info,
         bool vectors) {
  visit_matrix("linalg_eig_out_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = Real<T>;
    using C = std::complex<R>;
    const Matrices<T> matrices(a);
    const Vectors<C> values(eigenvalues);
    C* const right = vectors ? eigenvectors.ptr<C>() : nullptr;
    int32_t* const infos = info.ptr<int32_t>();
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      const char no = 'N', job = vectors ? 'V' : 'N';
      const Integer n = matrices.n(), lead = matrices.lead(), one = 1, vector_lead = vectors ? lead : 1;
      const size_t count = static_cast<size_t>(n);
      std::vector<R> reals(2 * count + 1);
      std::vector<T> found(vectors && !lapack::is_complex_v<T> ? count * count + 1 : 1);
      const auto run = [&](int64_t i, T* work, Integer length, Integer* result) {
        if constexpr (lapack::is_complex_v<T>) {
          lapack::call<T>(Routine::geev, &no, &job, &n, matrices[i], &lead, values[i], static_cast<T*>(nullptr), &one,
                          vectors ? right + i * n * n : nullptr, &vector_lead, work, &length, reals.data(), result);
        } else {
          lapack::call<T>(Routine::geev, &no, &job, &n, matrices[i], &lead, reals.data(), reals.data() + n,
                          static_cast<T*>(nullptr), &one, found.data(), &vector_lead, work, &length, result);
        }
      };
      T size{};
      Integer ignored = 0;
      run(begin, &size, -1, &ignored);
      const Integer length =
          static_cast<Integer>(asked_for(size) * (1 + 4 * double(std::numeric_limits<R>::epsilon()))) + 1;
      std::vector<T> work(static_cast<size_t>(length));
      for (int64_t i = begin; i < end; ++i) {
        {
          const bool plain = in_plain_range(reinterpret_cast<const R*>(matrices[i]),
                                            int64_t{n} * n * static_cast<int64_t>(sizeof(T) / sizeof(R)));
          const FlushTiny flush(plain);
          if constexpr (!lapack::is_complex_v<T>) {
            if (n >= kLeastGeneral && plain && all_finite(matrices[i], int64_t{n} * n)) {
              if (general_eig(matrices[i], n, values[i], vectors ? right + i * n * n : nullptr)) {
                infos[i] = 0;
                continue;
              }
            }
          }
          run(i, work.data(), length, infos + i);
        }
        if constexpr (!lapack::is_complex_v<T>) {
          // A pair of conjugate eigenvalues has its vector's real and imaginary parts in two columns.
          for (int64_t j = 0; j < n; ++j) values[i][j] = C(reals[j], reals[n + j]);
          for (int64_t j = 0; vectors && j < n; ++j) {
            C* const column = right + i * n * n + j * n;
            const T* const real = found.data() + j * n;
            if (reals[n + j] == 0 || j + 1 == n) {
              for (int64_t row = 0; row < n; ++row) column[row] = C(real[row], 0);
            } else {
              for (int64_t row = 0; row < n; ++row) {
                column[row] = C(real[row], real[n + row]);
                column[n + row] = std::conj(column[row]);
              }
              ++j;
            }
          }
        }
      }
    });
  });
}

}  // namespace

MICA_REGISTER_CPU(linalg_eigh, eigh);
MICA_REGISTER_CPU(linalg_eig, eig);

}  // namespace mica::cpu
