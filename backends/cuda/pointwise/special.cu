// Gamma and error functions, Bessel functions, the normal distribution.
#include <optional>

#include "backends/cuda/pointwise/bessel_series.h"
#include "backends/cuda/pointwise/clenshaw.cuh"
#include "backends/cuda/pointwise/define.cuh"
#include "backends/shared/special_math.h"

namespace mica::cuda {

namespace {

// What float32 does not need the digits of float64 for. Doubles go to the functions that the CPU has too.
namespace quick {

__device__ double i0(double x) { return special::i0(x); }
__device__ double i0e(double x) { return special::i0e(x); }
__device__ double i1(double x) { return special::i1(x); }
__device__ double i1e(double x) { return special::i1e(x); }
__device__ double log_ndtr(double x) { return special::log_ndtr(x); }
__device__ double xlog1py(double x, double y) { return special::xlog1py(x, y); }
__device__ double zeta(double x, double q) { return special::zeta(x, q); }

template <const bessel::Series& kSmall, const bessel::Series& kLarge>
__device__ double scaled_bessel_i(float size, double factor) {
  if (size <= 8) return factor * chebyshev_series<kSmall>(static_cast<double>(size) * 0.25 - 1);
  return chebyshev_series<kLarge>(16.0f / size - 1.0f) / ::sqrtf(size);
}
__device__ double wide_i0e(float x) { return scaled_bessel_i<series::kI0eSmall, series::kI0eLarge>(::fabsf(x), 1); }
__device__ double wide_i1e(float x) {
  const float size = ::fabsf(x);
  const double found = scaled_bessel_i<series::kI1eSmall, series::kI1eLarge>(size, static_cast<double>(size));
  return ::copysign(found, static_cast<double>(x));
}
__device__ float i0e(float x) { return static_cast<float>(wide_i0e(x)); }
__device__ float i1e(float x) { return static_cast<float>(wide_i1e(x)); }
// Infinity, where the function would be zero times it.
__device__ float i0(float x) {
  if (::isinf(x)) return ::fabsf(x);
  return static_cast<float>(wide_i0e(x) * ::exp(static_cast<double>(::fabsf(x))));
}
__device__ float i1(float x) {
  if (::isinf(x)) return x;
  return static_cast<float>(wide_i1e(x) * ::exp(static_cast<double>(::fabsf(x))));
}

__device__ float log_ndtr(float x) {
  constexpr float kSqrtHalf = 0.70710678118654752440f;
  if (x < -1.0f) return ::logf(0.5f * ::erfcxf(-x * kSqrtHalf)) - 0.5f * x * x;
  return ::log1pf(-0.5f * ::erfcf(x * kSqrtHalf));
}

__device__ float xlog1py(float x, float y) {
  if (y != y) return y;
  return x == 0.0f ? 0.0f : x * ::log1pf(y);
}

// Euler and Maclaurin's formula as special::zeta has it, with powers in float32, fewer of them and fewer of its terms.
__device__ float zeta(float x, float q) {
  if (x == 1.0f) return INFINITY;
  if (!(x > 1.0f) || q != q) return NAN;
  if (q <= 0.0f) {
    if (q == ::floorf(q)) return INFINITY;
    if (x != ::floorf(x)) return NAN;
  }
  constexpr double kEnough = 2e-8;
  double sum = 0;
  float a = q;
  for (int k = 0; k < 6 || a <= 6.0f; ++k, a += 1.0f) {
    const double term = ::powf(a, -x);
    sum += term;
    if (k > 0 && ::fabs(term) < kEnough * ::fabs(sum) && a > 0.0f) return static_cast<float>(sum);
  }
  const double from = a, power = ::powf(a, -x), order = x, inverse = 1 / from, square = inverse * inverse;
  sum += power * from / (order - 1) + 0.5 * power;
  double factor = order * power * inverse;
  const auto add = [&](double weight, int k) {
    sum += weight * factor;
    factor *= (order + 2 * k + 1) * (order + 2 * k + 2) * square;
  };
  add(1.0 / 12, 0);
  add(-1.0 / 720, 1);
  add(1.0 / 30240, 2);
  add(-1.0 / 1209600, 3);
  add(1.0 / 47900160, 4);
  return static_cast<float>(sum);
}

}  // namespace quick
}  // namespace

// Functions that are short enough for a million numbers to wait for memory: float32 has loops of vectors, in which four
// numbers of a thread are computed side by side.
template <class Out, class... In, class F>
void run_quick(const PointwiseLoop& loop, const F& f) {
  if constexpr (std::is_same_v<Out, float>) {
    run_pointwise<Out, In...>(loop, f);
  } else {
    run_rare<Out, In...>(loop, f);
  }
}
#define MICA_PLAIN(...) __VA_ARGS__
#define MICA_QUICK(slot, Name, parameters, types, ...)                                                 \
  namespace {                                                                                          \
  template <class T>                                                                                   \
  struct Name {                                                                                        \
    __device__ T operator() parameters const { __VA_ARGS__ }                                           \
  };                                                                                                   \
  }                                                                                                    \
  void slot(const PointwiseLoop& loop) {                                                               \
    visit_floating(#slot, loop.dtype,                                                                  \
                   [&]<class T>(Tag<T>) { run_quick<MICA_PLAIN types>(loop, Name<compute_t<T>>{}); }); \
  }

MICA_RARE_1(lgamma, Lgamma, visit_floating, { return ::lgamma(x); })
MICA_RARE_1(digamma, Digamma, visit_floating, { return special::digamma(x); })
MICA_RARE_1(erfinv, Erfinv, visit_floating, { return ::erfinv(x); })
MICA_RARE_1(i0, I0, visit_floating, { return quick::i0(x); })
MICA_QUICK(special_i0e, I0e, (T x), (T, T), { return quick::i0e(x); })
MICA_RARE_1(special_i1, I1, visit_floating, { return quick::i1(x); })
MICA_RARE_1(special_i1e, I1e, visit_floating, { return quick::i1e(x); })
MICA_RARE_1(special_ndtr, Ndtr, visit_floating, { return special::ndtr(x); })
MICA_RARE_1(special_ndtri, Ndtri, visit_floating, { return special::ndtri(x); })
MICA_QUICK(special_log_ndtr, LogNdtr, (T x), (T, T), { return quick::log_ndtr(x); })
MICA_RARE_1(special_erfcx, Erfcx, visit_floating, { return ::erfcx(x); })
MICA_RARE_1(special_entr, Entr, visit_floating, { return special::entr(x); })
MICA_QUICK(special_xlog1py, Xlog1py, (T x, T y), (T, T, T), { return quick::xlog1py(x, y); })
MICA_RARE_2(special_zeta, Zeta, visit_floating, { return quick::zeta(x, y); })
MICA_RARE_2(igamma, Igamma, visit_floating, { return special::igamma(x, y); })
MICA_RARE_2(igammac, Igammac, visit_floating, { return special::igammac(x, y); })

namespace {

template <class T>
struct Polygamma {
  int n;
  __device__ T operator()(T x) const { return special::polygamma(n, x); }
};

template <class T>
struct Logit {
  T eps;
  bool clamped;
  __device__ T operator()(T x) const {
    if (clamped) {
      const T high = T(1) - eps;
      x = x < eps ? eps : x;
      x = x > high ? high : x;
    }
    return ::log(x / (T(1) - x));
  }
};
// grad / (x (1 - x)) between the bounds, `outside` beyond them.
template <class T>
struct LogitBackward {
  T low, high, outside;
  __device__ T operator()(T grad, T x) const { return x >= low && x <= high ? grad / (x * (T(1) - x)) : outside; }
};

}  // namespace

void polygamma(const PointwiseLoop& loop, int64_t n) {
  visit_floating("polygamma", loop.dtype,
                 [&]<class T>(Tag<T>) { run_rare<T, T>(loop, Polygamma<compute_t<T>>{static_cast<int>(n)}); });
}

void logit(const PointwiseLoop& loop, std::optional<double> eps) {
  const bool clamped = eps && *eps >= 0;
  visit_floating("logit", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_rare<T, T>(loop, Logit<C>{static_cast<C>(clamped ? *eps : 0), clamped});
  });
}

void logit_backward(const PointwiseLoop& loop, std::optional<double> eps) {
  const bool clamped = eps && *eps >= 0;
  visit_floating("logit_backward", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const auto low = static_cast<C>(clamped ? *eps : 0);
    run_rare<T, T, T>(loop, LogitBackward<C>{low, C(1) - low, clamped ? C(0) : static_cast<C>(NAN)});
  });
}

}  // namespace mica::cuda
