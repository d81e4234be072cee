// Eigenvalues of symmetric matrices and singular values of many small matrices, by Jacobi's rotations. All lanes take
// the same steps; a lane that has converged rotates by zero.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/linalg/small_jacobi.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "backends/cpu/linalg/small_lanes-inl.h"
#include "backends/cpu/linalg/small_matrices.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

constexpr int kMaxSweeps = 40;

template <class T>
struct JacobiScratch {
  LaneMatrices<T> a, v;
  T scales[HWY_MAX_BYTES / sizeof(T)];
  explicit JacobiScratch(int64_t n) : a(n), v(n) {}
};

// Squares must neither overflow nor vanish: matrices of extreme size are computed as multiples of smaller ones.
template <class T>
T safe_scale(const T* a, int64_t elements, bool& finite) {
  T largest = 0;
  finite = true;
  for (int64_t i = 0; i < elements; ++i) {
    finite &= std::isfinite(a[i]);
    largest = std::max(largest, std::abs(a[i]));
  }
  constexpr T low = std::is_same_v<T, float> ? T(1e-6) : T(1e-60), high = T(1) / low;
  return !finite || largest == 0 || (largest > low && largest < high) ? T(1) : largest;
}

// Fills the lanes with element(matrix, row, column) divided by the matrix's scale. A matrix with a number that is not
// finite gets the code `failed` and is replaced by the identity.
template <class T, class Element>
HWY_INLINE void load_scaled(JacobiScratch<T>& scratch, const T* a, int64_t n, int64_t used, int32_t* info,
                            int32_t failed, const Element& element) {
  scratch.a.load(a, used);
  for (int64_t lane = 0; lane < used; ++lane) {
    const T* const matrix = a + lane * n * n;
    bool finite;
    scratch.scales[lane] = safe_scale(matrix, n * n, finite);
    info[lane] = finite ? 0 : failed;
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < n; ++i)
        scratch.a.at(i, j, lane) = finite ? element(matrix, i, j) / scratch.scales[lane] : T(i == j);
  }
}

// The rotation that makes the off-diagonal element of [[a, x], [x, b]] zero; none where x is zero.
template <class D, class V>
HWY_INLINE void rotation(D d, V a, V b, V x, V& cosine, V& sine) {
  using T = hn::TFromD<D>;
  const V one = hn::Set(d, T(1)), zero = hn::Zero(d);
  const auto none = hn::Eq(x, zero);
  const V theta = hn::Div(hn::Sub(b, a), hn::IfThenElse(none, one, hn::Add(x, x)));
  const V root = hn::Sqrt(hn::MulAdd(theta, theta, one));
  V tangent = hn::Div(one, hn::Add(hn::Abs(theta), root));
  tangent = hn::CopySign(tangent, theta);
  tangent = hn::IfThenElse(none, zero, tangent);
  cosine = hn::Div(one, hn::Sqrt(hn::MulAdd(tangent, tangent, one)));
  sine = hn::Mul(tangent, cosine);
}

template <class M, class V>
HWY_INLINE void rotate_columns(M& m, int64_t n, int64_t p, int64_t q, V cosine, V sine) {
  for (int64_t i = 0; i < n; ++i) {
    const V x = m.get(i, p), y = m.get(i, q);
    m.set(i, p, hn::NegMulAdd(sine, y, hn::Mul(cosine, x)));
    m.set(i, q, hn::MulAdd(sine, x, hn::Mul(cosine, y)));
  }
}

template <class T>
void small_eigh(T* a, T* values, int64_t n, int64_t count, int32_t* info, bool upper, bool vectors) {
  using M = LaneMatrices<T>;
  using V = typename M::V;
  const typename M::D d;
  over_lane_groups<T>(
      n, count, [&] { return JacobiScratch<T>(n); },
      [&](JacobiScratch<T>& scratch, int64_t first, int64_t used) {
        M &m = scratch.a, &v = scratch.v;
        load_scaled(scratch, a + first * n * n, n, used, info + first,
                    static_cast<int32_t>(std::max<int64_t>(1, n - 1)), [&](const T* matrix, int64_t i, int64_t j) {
                      return (i >= j) == upper ? matrix[i * n + j] : matrix[j * n + i];  // from the named triangle
                    });
        if (vectors) v.set_identity();
        V total = hn::Zero(d);
        for (int64_t j = 0; j < n; ++j)
          for (int64_t i = 0; i < n; ++i) total = hn::MulAdd(m.get(i, j), m.get(i, j), total);
        constexpr T eps = std::numeric_limits<T>::epsilon();
        const V enough = hn::Mul(total, hn::Set(d, eps * eps * T(0.01)));
        for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
          V off = hn::Zero(d);
          for (int64_t q = 1; q < n; ++q)
            for (int64_t p = 0; p < q; ++p) off = hn::MulAdd(m.get(p, q), m.get(p, q), off);
          if (hn::AllTrue(d, hn::Le(off, enough))) break;
          for (int64_t p = 0; p < n - 1; ++p)
            for (int64_t q = p + 1; q < n; ++q) {
              V cosine, sine;
              rotation(d, m.get(p, p), m.get(q, q), m.get(p, q), cosine, sine);
              rotate_columns(m, n, p, q, cosine, sine);
              for (int64_t j = 0; j < n; ++j) {  // then the rows
                const V x = m.get(p, j), y = m.get(q, j);
                m.set(p, j, hn::NegMulAdd(sine, y, hn::Mul(cosine, x)));
                m.set(q, j, hn::MulAdd(sine, x, hn::Mul(cosine, y)));
              }
              m.set(p, q, hn::Zero(d));
              m.set(q, p, hn::Zero(d));
              if (vectors) rotate_columns(v, n, p, q, cosine, sine);
            }
        }
        for (int64_t lane = 0; lane < used; ++lane) {
          int64_t order[small::kLargest];
          std::iota(order, order + n, int64_t{0});
          std::sort(order, order + n, [&](int64_t x, int64_t y) { return m.at(x, x, lane) < m.at(y, y, lane); });
          T* const to = a + (first + lane) * n * n;
          for (int64_t j = 0; j < n; ++j) {
            values[(first + lane) * n + j] = m.at(order[j], order[j], lane) * scratch.scales[lane];
            for (int64_t i = 0; vectors && i < n; ++i) to[j * n + i] = v.at(i, order[j], lane);
          }
        }
      });
}

// A unit vector orthogonal to the first `done` columns of u, in the place of column `done`.
template <class T>
void complete_basis(T* u, int64_t n, int64_t done) {
  T* const column = u + done * n;
  for (int64_t unit = 0; unit < n; ++unit) {
    std::fill(column, column + n, T(0));
    column[unit] = 1;
    for (int pass = 0; pass < 2; ++pass)  // once is not enough for vectors that are nearly dependent
      for (int64_t j = 0; j < done; ++j) {
        T product = 0;
        for (int64_t i = 0; i < n; ++i) product += u[j * n + i] * column[i];
        for (int64_t i = 0; i < n; ++i) column[i] -= product * u[j * n + i];
      }
    T square = 0;
    for (int64_t i = 0; i < n; ++i) square += column[i] * column[i];
    if (square * static_cast<T>(4 * n) < 1) continue;  // some unit vector lies at least this far outside
    const T norm = std::sqrt(square);
    for (int64_t i = 0; i < n; ++i) column[i] /= norm;
    return;
  }
}

// One-sided: the columns of A are rotated until they are orthogonal. Then they are the columns of U times the singular
// values.
template <class T>
void small_svd(const T* a, T* u, T* s, T* vh, int64_t n, int64_t count, int32_t* info) {
  using M = LaneMatrices<T>;
  using V = typename M::V;
  const typename M::D d;
  over_lane_groups<T>(
      n, count, [&] { return JacobiScratch<T>(n); },
      [&](JacobiScratch<T>& scratch, int64_t first, int64_t used) {
        M &m = scratch.a, &v = scratch.v;
        load_scaled(scratch, a + first * n * n, n, used, info + first, int32_t{-4},
                    [&](const T* matrix, int64_t i, int64_t j) { return matrix[j * n + i]; });
        if (vh) v.set_identity();
        constexpr T eps = std::numeric_limits<T>::epsilon();
        V total = hn::Zero(d);
        for (int64_t j = 0; j < n; ++j)
          for (int64_t i = 0; i < n; ++i) total = hn::MulAdd(m.get(i, j), m.get(i, j), total);
        // Squared norms below this are rounding errors of zero.
        const V nothing = hn::Mul(total, hn::Set(d, eps * eps * eps * eps));
        for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
          bool rotated = false;
          for (int64_t p = 0; p < n - 1; ++p)
            for (int64_t q = p + 1; q < n; ++q) {
              V alpha = hn::Zero(d), beta = hn::Zero(d), gamma = hn::Zero(d);
              for (int64_t i = 0; i < n; ++i) {
                const V x = m.get(i, p), y = m.get(i, q);
                alpha = hn::MulAdd(x, x, alpha);
                beta = hn::MulAdd(y, y, beta);
                gamma = hn::MulAdd(x, y, gamma);
              }
              const V bound = hn::Mul(hn::Set(d, eps * eps), hn::Mul(alpha, beta));
              auto wanted = hn::Gt(hn::Mul(gamma, gamma), bound);
              wanted = hn::And(wanted, hn::And(hn::Gt(alpha, nothing), hn::Gt(beta, nothing)));
              if (hn::AllFalse(d, wanted)) continue;
              rotated = true;
              V cosine, sine;
              rotation(d, alpha, beta, hn::IfThenElseZero(wanted, gamma), cosine, sine);
              rotate_columns(m, n, p, q, cosine, sine);
              if (vh) rotate_columns(v, n, p, q, cosine, sine);
            }
          if (!rotated) break;
        }
        for (int64_t lane = 0; lane < used; ++lane) {
          T norms[small::kLargestIterative];
          int64_t order[small::kLargest];
          for (int64_t j = 0; j < n; ++j) {
            T square = 0;
            for (int64_t i = 0; i < n; ++i) square += m.at(i, j, lane) * m.at(i, j, lane);
            norms[j] = std::sqrt(square);
          }
          std::iota(order, order + n, int64_t{0});
          std::sort(order, order + n, [&](int64_t x, int64_t y) { return norms[x] > norms[y]; });
          const T least = norms[order[0]] * eps * eps;
          for (int64_t j = 0; j < n; ++j) {
            const int64_t from = order[j];
            s[(first + lane) * n + j] = norms[from] > least ? norms[from] * scratch.scales[lane] : T(0);
            if (!u) continue;
            T* const left = u + (first + lane) * n * n;
            if (norms[from] > least) {
              for (int64_t i = 0; i < n; ++i) left[j * n + i] = m.at(i, from, lane) / norms[from];
            } else {
              complete_basis(left, n, j);
            }
            T* const right = vh + (first + lane) * n * n;
            for (int64_t i = 0; i < n; ++i) right[i * n + j] = v.at(i, from, lane);
          }
        }
      });
}

#define MICA_SMALL_TARGET(T, name)                                                                             \
  void small_eigh_##name(T* a, T* values, int64_t n, int64_t count, int32_t* info, bool upper, bool vectors) { \
    small_eigh(a, values, n, count, info, upper, vectors);                                                     \
  }                                                                                                            \
  void small_svd_##name(const T* a, T* u, T* s, T* vh, int64_t n, int64_t count, int32_t* info) {              \
    small_svd(a, u, s, vh, n, count, info);                                                                    \
  }
MICA_SMALL_TARGET(float, float32)
MICA_SMALL_TARGET(double, float64)
#undef MICA_SMALL_TARGET

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
#define MICA_SMALL_EXPORT(T, name)                                                                       \
  HWY_EXPORT(small_eigh_##name);                                                                         \
  HWY_EXPORT(small_svd_##name);                                                                          \
  void small::eigh(T* a, T* values, int64_t n, int64_t count, int32_t* info, bool upper, bool vectors) { \
    HWY_DYNAMIC_DISPATCH(small_eigh_##name)(a, values, n, count, info, upper, vectors);                  \
  }                                                                                                      \
  void small::svd(const T* a, T* u, T* s, T* vh, int64_t n, int64_t count, int32_t* info) {              \
    HWY_DYNAMIC_DISPATCH(small_svd_##name)(a, u, s, vh, n, count, info);                                 \
  }
MICA_SMALL_EXPORT(float, float32)
MICA_SMALL_EXPORT(double, float64)
#undef MICA_SMALL_EXPORT
}  // namespace mica::cpu
#endif
