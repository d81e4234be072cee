// Cholesky, LU and QR decompositions and inverses of many small matrices.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/linalg/small_factor.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <type_traits>

#include "backends/cpu/linalg/small_lanes-inl.h"
#include "backends/cpu/linalg/small_matrices.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Whole numbers of a vector as integers.
template <class D>
HWY_INLINE void store_orders(D d, hn::Vec<D> orders, int64_t used, int32_t* to) {
  using T = hn::TFromD<D>;
  if constexpr (sizeof(T) == sizeof(int32_t)) {
    const hn::RebindToSigned<D> di;
    if (used == static_cast<int64_t>(hn::Lanes(d))) return hn::StoreU(hn::ConvertTo(di, orders), di, to);
  }
  HWY_ALIGN T numbers[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(orders, d, numbers);
  for (int64_t lane = 0; lane < used; ++lane) to[lane] = static_cast<int32_t>(numbers[lane]);
}

template <int kSize, class T>
void small_cholesky(T* a, int64_t given, int64_t count, int32_t* info, bool upper) {
  const int64_t n = kSize ? kSize : given;
  using M = LaneMatrices<T, kSize>;
  using V = typename M::V;
  const typename M::D d;
  over_lane_groups<T>(
      n, count, [&] { return M(n); },
      [&](M& m, int64_t first, int64_t used) {
        m.load(a + first * n * n, used, upper);
        V failed = hn::Zero(d);  // the order of the first minor that is not positive
        for (int64_t k = 0; k < n; ++k) {
          V pivot = m.get(k, k);
          for (int64_t j = 0; j < k; ++j) pivot = hn::NegMulAdd(m.get(k, j), m.get(k, j), pivot);
          const auto bad =
              hn::AndNot(hn::Gt(pivot, hn::Zero(d)), hn::Eq(failed, hn::Zero(d)));  // NaN is not positive either
          failed = hn::IfThenElse(bad, hn::Set(d, static_cast<T>(k + 1)), failed);
          const V root = hn::Sqrt(pivot);
          m.set(k, k, root);
          const V scale = hn::Div(hn::Set(d, T(1)), root);
          for (int64_t i = k + 1; i < n; ++i) {
            V x = m.get(i, k);
            for (int64_t j = 0; j < k; ++j) x = hn::NegMulAdd(m.get(i, j), m.get(k, j), x);
            m.set(i, k, hn::Mul(x, scale));
          }
        }
        for (int64_t j = 1; j < n; ++j)
          for (int64_t i = 0; i < j; ++i) m.set(i, j, hn::Zero(d));
        m.store(a + first * n * n, used, upper);
        store_orders(d, failed, used, info + first);
      });
}

// P A = L U in place; `rows` holds, as numbers of type T, the row that took the place of row k. Returns the order of
// the first pivot that is zero.
template <class M>
HWY_INLINE typename M::V factor_lanes(M& m, int64_t n, typename M::D d, M& rows) {
  using V = typename M::V;
  using T = hn::TFromD<typename M::D>;
  V failed = hn::Zero(d);
  for (int64_t k = 0; k < n; ++k) {
    V largest = hn::Abs(m.get(k, k)), at = hn::Set(d, static_cast<T>(k));
    for (int64_t i = k + 1; i < n; ++i) {
      const V x = hn::Abs(m.get(i, k));
      const auto larger = hn::Gt(x, largest);
      largest = hn::IfThenElse(larger, x, largest);
      at = hn::IfThenElse(larger, hn::Set(d, static_cast<T>(i)), at);
    }
    rows.keep(k, at);
    for (int64_t i = k + 1; i < n; ++i) {
      const auto here = hn::Eq(at, hn::Set(d, static_cast<T>(i)));
      if (hn::AllFalse(d, here)) continue;
      for (int64_t j = 0; j < n; ++j) {
        const V x = m.get(k, j), y = m.get(i, j);
        m.set(k, j, hn::IfThenElse(here, y, x));
        m.set(i, j, hn::IfThenElse(here, x, y));
      }
    }
    const V pivot = m.get(k, k);
    const auto zero = hn::Eq(pivot, hn::Zero(d));
    failed = hn::IfThenElse(hn::And(zero, hn::Eq(failed, hn::Zero(d))), hn::Set(d, static_cast<T>(k + 1)), failed);
    const V divisor = hn::IfThenElse(zero, hn::Set(d, T(1)), pivot);
    for (int64_t i = k + 1; i < n; ++i) m.set(i, k, hn::Div(m.get(i, k), divisor));
    for (int64_t j = k + 1; j < n; ++j) {
      const V top = m.get(k, j);
      for (int64_t i = k + 1; i < n; ++i) m.set(i, j, hn::NegMulAdd(m.get(i, k), top, m.get(i, j)));
    }
  }
  return failed;
}

template <class T, int kSize>
struct TwoMatrices {
  LaneMatrices<T, kSize> a, b;
  explicit TwoMatrices(int64_t n) : a(n), b(n) {}
};

// The rows that factor_lanes() has kept, counted from 1, matrix by matrix.
template <int kSize, class M>
HWY_INLINE void store_pivots(M& rows, int64_t n, int64_t used, int32_t* to) {
  using D = typename M::D;
  if constexpr (kSize >= 2 && kSize <= 4 && sizeof(hn::TFromD<D>) == sizeof(int32_t)) {
    if (used == rows.lanes()) {
      const hn::RebindToSigned<D> di;
      const auto row = [&](int64_t k) HWY_ATTR { return hn::Add(hn::ConvertTo(di, rows.kept(k)), hn::Set(di, 1)); };
      if constexpr (kSize == 2) hn::StoreInterleaved2(row(0), row(1), di, to);
      if constexpr (kSize == 3) hn::StoreInterleaved3(row(0), row(1), row(2), di, to);
      if constexpr (kSize == 4) hn::StoreInterleaved4(row(0), row(1), row(2), row(3), di, to);
      return;
    }
  }
  for (int64_t lane = 0; lane < used; ++lane)
    for (int64_t k = 0; k < n; ++k) to[lane * n + k] = static_cast<int32_t>(rows.at(k, n, lane)) + 1;
}

template <int kSize, class T>
void small_lu(T* a, int64_t given, int64_t count, int32_t* pivots, int32_t* info) {
  const int64_t n = kSize ? kSize : given;
  using M = LaneMatrices<T, kSize>;
  const typename M::D d;
  over_lane_groups<T>(
      n, count, [&] { return TwoMatrices<T, kSize>(n); },
      [&](TwoMatrices<T, kSize>& both, int64_t first, int64_t used) {
        both.a.load(a + first * n * n, used);
        const auto failed = factor_lanes(both.a, n, d, both.b);
        both.a.store(a + first * n * n, used);
        store_orders(d, failed, used, info + first);
        store_pivots<kSize>(both.b, n, used, pivots + first * n);
      });
}

template <int kSize, class T>
void small_inverse(T* a, int64_t given, int64_t count, int32_t* info) {
  const int64_t n = kSize ? kSize : given;
  using M = LaneMatrices<T, kSize>;
  using V = typename M::V;
  const typename M::D d;
  over_lane_groups<T>(
      n, count, [&] { return TwoMatrices<T, kSize>(n); },
      [&](TwoMatrices<T, kSize>& both, int64_t first, int64_t used) {
        M& m = both.a;
        m.load(a + first * n * n, used);
        const V failed = factor_lanes(m, n, d, both.b);
        // U's inverse takes its place, column by column.
        for (int64_t j = 0; j < n; ++j) {
          const V diagonal = hn::Div(hn::Set(d, T(1)), m.get(j, j));
          m.set(j, j, diagonal);
          const V minus = hn::Neg(diagonal);
          for (int64_t i = 0; i < j; ++i) {
            V sum = hn::Zero(d);
            for (int64_t k = i; k < j; ++k) sum = hn::MulAdd(m.get(i, k), m.get(k, j), sum);
            m.set(i, j, hn::Mul(sum, minus));
          }
        }
        // X L = U^-1, last column first.
        for (int64_t j = n - 2; j >= 0; --j) {
          for (int64_t k = j + 1; k < n; ++k) {
            m.keep(k, m.get(k, j));
            m.set(k, j, hn::Zero(d));
          }
          for (int64_t i = 0; i < n; ++i) {
            V x = m.get(i, j);
            for (int64_t k = j + 1; k < n; ++k) x = hn::NegMulAdd(m.get(i, k), m.kept(k), x);
            m.set(i, j, x);
          }
        }
        // The rows that were exchanged are columns of the inverse.
        for (int64_t k = n - 2; k >= 0; --k) {
          const V at = both.b.kept(k);
          for (int64_t j = k + 1; j < n; ++j) {
            const auto here = hn::Eq(at, hn::Set(d, static_cast<T>(j)));
            if (hn::AllFalse(d, here)) continue;
            for (int64_t i = 0; i < n; ++i) {
              const V x = m.get(i, k), y = m.get(i, j);
              m.set(i, k, hn::IfThenElse(here, y, x));
              m.set(i, j, hn::IfThenElse(here, x, y));
            }
          }
        }
        m.store(a + first * n * n, used);
        store_orders(d, failed, used, info + first);
      });
}

// Reflections as LAPACK makes them: v has a leading one, R's diagonal the sign that loses no digits.
template <int kSize, class T>
void small_qr(T* a, T* r, int64_t given, int64_t count) {
  const int64_t n = kSize ? kSize : given;
  using M = LaneMatrices<T, kSize>;
  using V = typename M::V;
  const typename M::D d;
  over_lane_groups<T>(
      n, count, [&] { return TwoMatrices<T, kSize>(n); },
      [&](TwoMatrices<T, kSize>& both, int64_t first, int64_t used) {
        M &m = both.a, &q = both.b;
        m.load(a + first * n * n, used);
        const V one = hn::Set(d, T(1)), zero = hn::Zero(d);
        for (int64_t k = 0; k < n; ++k) {
          V largest = zero;
          for (int64_t i = k + 1; i < n; ++i) largest = hn::Max(largest, hn::Abs(m.get(i, k)));
          const V head = m.get(k, k);
          const auto flat = hn::Eq(largest, zero);  // nothing to reflect
          const V scale = hn::IfThenElse(flat, one, hn::Max(largest, hn::Abs(head)));
          V squares = zero;
          for (int64_t i = k; i < n; ++i) {
            const V x = hn::Div(m.get(i, k), scale);
            squares = hn::MulAdd(x, x, squares);
          }
          const V norm = hn::Mul(scale, hn::Sqrt(squares));
          const V beta = hn::IfThenElse(flat, head, hn::CopySign(norm, hn::Neg(head)));
          const V tau = hn::IfThenElse(flat, zero, hn::Div(hn::Sub(beta, head), beta));
          m.keep(k, tau);
          const V divisor = hn::IfThenElse(flat, one, hn::Sub(head, beta));
          for (int64_t i = k + 1; i < n; ++i) m.set(i, k, hn::Div(m.get(i, k), divisor));
          m.set(k, k, beta);
          for (int64_t j = k + 1; j < n; ++j) {
            V product = m.get(k, j);
            for (int64_t i = k + 1; i < n; ++i) product = hn::MulAdd(m.get(i, k), m.get(i, j), product);
            product = hn::Mul(product, tau);
            m.set(k, j, hn::Sub(m.get(k, j), product));
            for (int64_t i = k + 1; i < n; ++i) m.set(i, j, hn::NegMulAdd(product, m.get(i, k), m.get(i, j)));
          }
        }
        q.set_identity();
        for (int64_t k = n - 1; k >= 0; --k)
          for (int64_t j = k; j < n; ++j) {
            V product = q.get(k, j);
            for (int64_t i = k + 1; i < n; ++i) product = hn::MulAdd(m.get(i, k), q.get(i, j), product);
            product = hn::Mul(product, m.kept(k));
            q.set(k, j, hn::Sub(q.get(k, j), product));
            for (int64_t i = k + 1; i < n; ++i) q.set(i, j, hn::NegMulAdd(product, m.get(i, k), q.get(i, j)));
          }
        for (int64_t j = 0; j < n; ++j)
          for (int64_t i = j + 1; i < n; ++i) m.set(i, j, zero);
        m.store(r + first * n * n, used);
        q.store(a + first * n * n, used);
      });
}

// Calls f with the size as a constant. The smallest sizes are unrolled completely and stay in registers.
template <class F>
void with_size(int64_t n, const F& f) {
  switch (n) {
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    case 4:
      return f(std::integral_constant<int, 4>());
    default:
      return f(std::integral_constant<int, 0>());
  }
}

#define MICA_SMALL_TARGET(T, name)                                                        \
  void small_cholesky_##name(T* a, int64_t n, int64_t count, int32_t* info, bool upper) { \
    with_size(n, [&](auto size) { small_cholesky<size()>(a, n, count, info, upper); });   \
  }                                                                                       \
  void small_lu_##name(T* a, int64_t n, int64_t count, int32_t* pivots, int32_t* info) {  \
    with_size(n, [&](auto size) { small_lu<size()>(a, n, count, pivots, info); });        \
  }                                                                                       \
  void small_inverse_##name(T* a, int64_t n, int64_t count, int32_t* info) {              \
    with_size(n, [&](auto size) { small_inverse<size()>(a, n, count, info); });           \
  }                                                                                       \
  void small_qr_##name(T* a, T* r, int64_t n, int64_t count) {                            \
    with_size(n, [&](auto size) { small_qr<size()>(a, r, n, count); });                   \
  }
MICA_SMALL_TARGET(float, float32)
MICA_SMALL_TARGET(double, float64)
#undef MICA_SMALL_TARGET

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
#define MICA_SMALL_EXPORT(T, name)                                                  \
  HWY_EXPORT(small_cholesky_##name);                                                \
  HWY_EXPORT(small_lu_##name);                                                      \
  HWY_EXPORT(small_inverse_##name);                                                 \
  HWY_EXPORT(small_qr_##name);                                                      \
  void small::cholesky(T* a, int64_t n, int64_t count, int32_t* info, bool upper) { \
    HWY_DYNAMIC_DISPATCH(small_cholesky_##name)(a, n, count, info, upper);          \
  }                                                                                 \
  void small::lu(T* a, int64_t n, int64_t count, int32_t* pivots, int32_t* info) {  \
    HWY_DYNAMIC_DISPATCH(small_lu_##name)(a, n, count, pivots, info);               \
  }                                                                                 \
  void small::inverse(T* a, int64_t n, int64_t count, int32_t* info) {              \
    HWY_DYNAMIC_DISPATCH(small_inverse_##name)(a, n, count, info);                  \
  }                                                                                 \
  void small::qr(T* a, T* r, int64_t n, int64_t count) { HWY_DYNAMIC_DISPATCH(small_qr_##name)(a, r, n, count); }
MICA_SMALL_EXPORT(float, float32)
MICA_SMALL_EXPORT(double, float64)
#undef MICA_SMALL_EXPORT
}  // namespace mica::cpu
#endif
