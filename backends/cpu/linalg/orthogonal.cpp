// Decompositions into orthogonal factors, and least squares, which rest on them.
#include "backends/cpu/linalg/batches.h"
#include "backends/cpu/linalg/shared_spectral.h"
#include "backends/cpu/linalg/small_matrices.h"
#include "backends/cpu/register.h"

namespace mica::cpu {
namespace {

using lapack::Integer;
using lapack::Real;
using lapack::Routine;

// Without a library this code takes real matrices of any size, so that orthogonal initial values need none.
bool takes_own_code(int64_t rows, int64_t columns) { return worth_own_code(rows, columns) || !lapack::is_there(); }

void geqrf(const TensorView& a, const TensorView& tau) {
  visit_matrix("geqrf_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> matrices(a);
    const Vectors<T> factors(tau);
    if constexpr (!lapack::is_complex_v<T>) {
      if (worth_sharing(matrices.count, matrices.rows, matrices.columns))
        return shared_geqrf(matrices.data, matrices.rows, matrices.columns, factors.data);
    }
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      if constexpr (!lapack::is_complex_v<T>) {
        if (takes_own_code(matrices.rows, matrices.columns)) {
          for (int64_t i = begin; i < end; ++i) shared_geqrf(matrices[i], matrices.rows, matrices.columns, factors[i]);
          return;
        }
      }
      const Integer m = matrices.m(), n = matrices.n(), lead = matrices.lead();
      T size{};
      Integer query = -1, info = 0;
      lapack::call<T>(Routine::geqrf, &m, &n, matrices[begin], &lead, factors[begin], &size, &query, &info);
      const Integer length = asked_for(size);
      std::vector<T> work(static_cast<size_t>(length));
      for (int64_t i = begin; i < end; ++i)
        lapack::call<T>(Routine::geqrf, &m, &n, matrices[i], &lead, factors[i], work.data(), &length, &info);
    });
  });
}

void orgqr(const TensorView& a, const TensorView& tau) {
  visit_matrix("orgqr_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> matrices(a);
    const Vectors<T> factors(tau);
    if constexpr (!lapack::is_complex_v<T>) {
      if (worth_sharing(matrices.count, matrices.rows, matrices.columns))
        return shared_orgqr(matrices.data, matrices.rows, matrices.columns, factors.length, factors.data);
    }
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      if constexpr (!lapack::is_complex_v<T>) {
        if (takes_own_code(matrices.rows, matrices.columns)) {
          for (int64_t i = begin; i < end; ++i)
            shared_orgqr(matrices[i], matrices.rows, matrices.columns, factors.length, factors[i]);
          return;
        }
      }
      const Integer m = matrices.m(), n = matrices.n(), lead = matrices.lead();
      const Integer k = static_cast<Integer>(factors.length);
      T size{};
      Integer query = -1, info = 0;
      lapack::call<T>(Routine::orgqr, &m, &n, &k, matrices[begin], &lead, factors[begin], &size, &query, &info);
      const Integer length = asked_for(size);
      std::vector<T> work(static_cast<size_t>(length));
      for (int64_t i = begin; i < end; ++i)
        lapack::call<T>(Routine::orgqr, &m, &n, &k, matrices[i], &lead, factors[i], work.data(), &length, &info);
    });
  });
}

void ormqr(const TensorView& a, const TensorView& tau, const TensorView& c, bool left, bool transpose) {
  visit_matrix("ormqr_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const Matrices<T> reflectors(a), products(c);
    const Vectors<T> factors(tau);
    over_matrices(products.count, products.rows, products.columns, [&](int64_t begin, int64_t end) {
      const char side = left ? 'L' : 'R', form = !transpose ? 'N' : lapack::is_complex_v<T> ? 'C' : 'T';
      const Integer m = products.m(), n = products.n(), lead = reflectors.lead(), rows = products.lead();
      const Integer k = static_cast<Integer>(factors.length);
      T size{};
      Integer query = -1, info = 0;
      lapack::call<T>(Routine::ormqr, &side, &form, &m, &n, &k, reflectors[begin], &lead, factors[begin],
                      products[begin], &rows, &size, &query, &info);
      const Integer length = asked_for(size);
      std::vector<T> work(static_cast<size_t>(length));
      for (int64_t i = begin; i < end; ++i)
        lapack::call<T>(Routine::ormqr, &side, &form, &m, &n, &k, reflectors[i], &lead, factors[i], products[i], &rows,
                        work.data(), &length, &info);
    });
  });
}

// Q replaces a; r is square and upper. Computes both factors of many small matrices in one pass; returns false where
// they are not small.
void small_qr(const TensorView& a, const TensorView& r, bool& done) {
  done = false;
  const auto run = [&](auto tag) {
    using T = decltype(tag);
    const Matrices<T> matrices(a);
    if (matrices.rows != matrices.columns || !small::takes(matrices.rows, matrices.count)) return;
    small::qr(matrices.data, r.ptr<T>(), matrices.rows, matrices.count);
    done = true;
  };
  if (a.dtype == DType::Float32) run(float{});
  if (a.dtype == DType::Float64) run(double{});
}

// (batch, m, n) -> u (m, k or m), s (k), vh (k or n, n). `vectors` says which vectors are wanted: 0 none, 1 the first
// k, 2 all.
void svd(const TensorView& a, const TensorView& u, const TensorView& s, const TensorView& vh, const TensorView& info,
         int64_t vectors) {
  visit_matrix("linalg_svd_cpu", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = Real<T>;
    const Matrices<T> matrices(a);
    const Vectors<R> values(s);
    int32_t* const infos = info.ptr<int32_t>();
    if constexpr (!lapack::is_complex_v<T>) {
      if (matrices.rows == matrices.columns && small::takes_iterative(matrices.rows, matrices.count))
        return small::svd(matrices.data, vectors ? u.ptr<T>() : nullptr, values.data, vectors ? vh.ptr<T>() : nullptr,
                          matrices.rows, matrices.count, infos);
      if (vectors && matrices.rows == matrices.columns &&
          worth_sharing(matrices.count, matrices.rows, matrices.columns) &&
          all_finite(matrices.data, matrices.rows * matrices.columns) &&
          in_plain_range(matrices.data, matrices.rows * matrices.columns)) {
        *infos = shared_svd(matrices.data, matrices.rows, u.ptr<T>(), values.data, vh.ptr<T>());
        return;
      }
    }
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      const char job = "NSA"[vectors];
      const Integer m = matrices.m(), n = matrices.n(), lead = matrices.lead(), k = std::min(m, n);
      const Integer u_lead = std::max<Integer>(1, m);
      const Integer vh_lead = std::max<Integer>(1, vectors == 2 ? n : k);
      const int64_t u_size = vectors ? int64_t{m} * (vectors == 2 ? m : k) : 0;
      const int64_t vh_size = vectors ? int64_t{n} * (vectors == 2 ? n : k) : 0;
      T* const left = vectors ? u.ptr<T>() : nullptr;
      T* const right = vectors ? vh.ptr<T>() : nullptr;
      std::vector<Integer> integers(static_cast<size_t>(8 * std::max<Integer>(1, k)));
      const int64_t large = std::max(m, n), few = k;
      [[maybe_unused]] std::vector<R> reals(
          lapack::is_complex_v<T>
              ? static_cast<size_t>(std::max(5 * few * few + 7 * few, 2 * large * few + 2 * few * few + few) + 1)
              : 0);
      const auto run = [&](int64_t i, T* work, Integer length, Integer* result) {
        T* const u_i = left ? left + i * u_size : nullptr;
        T* const vh_i = right ? right + i * vh_size : nullptr;
        if constexpr (lapack::is_complex_v<T>) {
          lapack::call<T>(Routine::gesdd, &job, &m, &n, matrices[i], &lead, values[i], u_i, &u_lead, vh_i, &vh_lead,
                          work, &length, reals.data(), integers.data(), result);
        } else {
          lapack::call<T>(Routine::gesdd, &job, &m, &n, matrices[i], &lead, values[i], u_i, &u_lead, vh_i, &vh_lead,
                          work, &length, integers.data(), result);
        }
      };
      T size{};
      Integer ignored = 0;
      run(begin, &size, -1, &ignored);
      // The size is a float of the matrix's precision, which may have rounded it down.
      const Integer length =
          static_cast<Integer>(asked_for(size) * (1 + 4 * double(std::numeric_limits<R>::epsilon())));
      std::vector<T> work(static_cast<size_t>(length) + 1);
      for (int64_t i = begin; i < end; ++i) {
        if (!all_finite(matrices[i], int64_t{m} * n)) {  // the library may never return for such a matrix
          infos[i] = -4;
          continue;
        }
        run(i, work.data(), length, infos + i);
      }
    });
  });
}

// The solutions replace the first rows of b, which has room for the longer of a's sides. Drivers: gels, gelsy, gelsd,
// gelss.
void lstsq(const TensorView& a, const TensorView& b, const TensorView& rank, const TensorView& singular_values,
           const TensorView& info, double rcond, int64_t driver) {
  visit_matrix("torch.linalg.lstsq", a.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using R = Real<T>;
    const Matrices<T> matrices(a), solutions(b);
    const Vectors<R> values(singular_values);
    int64_t* const ranks = rank.ptr<int64_t>();
    int32_t* const infos = info.ptr<int32_t>();
    over_matrices(matrices.count, matrices.rows, matrices.columns, [&](int64_t begin, int64_t end) {
      const char form = 'N';
      const Integer m = matrices.m(), n = matrices.n(), lead = matrices.lead();
      const Integer columns = solutions.n(), rows = solutions.lead();
      const R limit = static_cast<R>(rcond);
      const int64_t k = std::min(m, n);
      std::vector<Integer> integers(1);
      std::vector<R> reals(1);
      std::vector<R> unused(static_cast<size_t>(std::max<int64_t>(1, k)));
      const bool keeps_values = driver >= 2;
      const auto run = [&](int64_t i, T* work, Integer length, Integer* result) {
        Integer found = 0;
        R* const s = keeps_values && values.data ? values[i] : unused.data();
        if (driver == 0) {
          lapack::call<T>(Routine::gels, &form, &m, &n, &columns, matrices[i], &lead, solutions[i], &rows, work,
                          &length, result);
        } else if (driver == 1) {
          std::vector<Integer> order(static_cast<size_t>(std::max<Integer>(1, n)), 0);
          if constexpr (lapack::is_complex_v<T>) {
            reals.resize(static_cast<size_t>(2 * std::max<Integer>(1, n)));
            lapack::call<T>(Routine::gelsy, &m, &n, &columns, matrices[i], &lead, solutions[i], &rows, order.data(),
                            &limit, &found, work, &length, reals.data(), result);
          } else {
            lapack::call<T>(Routine::gelsy, &m, &n, &columns, matrices[i], &lead, solutions[i], &rows, order.data(),
                            &limit, &found, work, &length, result);
          }
        } else if (driver == 2) {
          if constexpr (lapack::is_complex_v<T>) {
            lapack::call<T>(Routine::gelsd, &m, &n, &columns, matrices[i], &lead, solutions[i], &rows, s, &limit,
                            &found, work, &length, reals.data(), integers.data(), result);
          } else {
            lapack::call<T>(Routine::gelsd, &m, &n, &columns, matrices[i], &lead, solutions[i], &rows, s, &limit,
                            &found, work, &length, integers.data(), result);
          }
        } else if constexpr (lapack::is_complex_v<T>) {
          reals.resize(static_cast<size_t>(5 * std::max<int64_t>(1, k)));
          lapack::call<T>(Routine::gelss, &m, &n, &columns, matrices[i], &lead, solutions[i], &rows, s, &limit, &found,
                          work, &length, reals.data(), result);
        } else {
          lapack::call<T>(Routine::gelss, &m, &n, &columns, matrices[i], &lead, solutions[i], &rows, s, &limit, &found,
                          work, &length, result);
        }
        if (length >= 0 && ranks && driver > 0) ranks[i] = found;
      };
      T size{};
      Integer ignored = 0;
      run(begin, &size, -1, &ignored);
      const Integer length = asked_for(size) + asked_for(size) / 1000 + 1;
      if (driver == 2) {  // the query has left the sizes of the other workspaces in their first elements
        const double levels = std::max(0.0, std::log2(std::max<double>(double(k), 1.0) / 26.0)) + 1;
        const int64_t asked =
            std::max<int64_t>(integers[0], int64_t(3.0 * double(k) * (levels + 1) + 11.0 * double(k)));
        integers.resize(static_cast<size_t>(asked) + 1);
        if (lapack::is_complex_v<T>) reals.resize(static_cast<size_t>(double(reals[0]) * 1.001) + 16);
      }
      std::vector<T> work(static_cast<size_t>(length));
      for (int64_t i = begin; i < end; ++i) {
        if (!all_finite(matrices[i], int64_t{m} * n) || !all_finite(solutions[i], int64_t{rows} * columns)) {
          std::fill_n(solutions[i], int64_t{rows} * columns, T(std::numeric_limits<R>::quiet_NaN()));
          continue;
        }
        run(i, work.data(), length, infos + i);
      }
    });
  });
}

}  // namespace

MICA_REGISTER_CPU(linalg_geqrf, geqrf);
MICA_REGISTER_CPU(linalg_orgqr, orgqr);
MICA_REGISTER_CPU(linalg_ormqr, ormqr);
MICA_REGISTER_CPU(linalg_small_qr, small_qr);
MICA_REGISTER_CPU(linalg_svd, svd);
MICA_REGISTER_CPU(linalg_lstsq, lstsq);

}  // namespace mica::cpu
