#include "backends/cpu/pointwise/complex_math.h"

#include <cmath>
#include <complex>
#include <limits>

#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/pointwise/visit_others.h"

namespace mica::cpu {

namespace {

constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2 = 0.69314718055994530942;

template <class C>
C exp(C z) {
  return std::exp(z);
}
template <class C>
C exp2(C z) {
  return std::exp(z * static_cast<typename C::value_type>(kLn2));
}
// e^a cos(b) - 1 = expm1(a) cos(b) - 2 sin(b / 2)^2: no cancellation near zero.
template <class C>
C expm1(C z) {
  using R = typename C::value_type;
  const R a = z.real(), b = z.imag(), half = std::sin(b / 2);
  return C(std::expm1(a) * std::cos(b) - 2 * half * half, std::exp(a) * std::sin(b));
}
template <class C>
C log(C z) {
  return std::log(z);
}
template <class C>
C log2(C z) {
  return std::log(z) / static_cast<typename C::value_type>(kLn2);
}
template <class C>
C log10(C z) {
  return std::log10(z);
}
// log|1 + z| = log1p(|1 + z|^2 - 1) / 2, with |1 + z|^2 - 1 = a (a + 2) + b^2 where that is small.
template <class C>
C log1p(C z) {
  using R = typename C::value_type;
  const R a = z.real(), b = z.imag();
  const R angle = std::atan2(b, a + 1);
  const R radius = std::hypot(a + 1, b);
  if (radius < R(0.5) || radius > R(2)) return C(std::log(radius), angle);
  return C(std::log1p(a * (a + 2) + b * b) / 2, angle);
}
template <class C>
C sqrt(C z) {
  return std::sqrt(z);
}
template <class C>
C rsqrt(C z) {
  using Limits = std::numeric_limits<typename C::value_type>;
  const C root = std::sqrt(z);
  return root == C(0) ? C(Limits::infinity(), Limits::quiet_NaN()) : C(1) / root;  // 1 / 0 part by part
}
#define MICA_STANDARD(name) \
  template <class C>        \
  C name(C z) {             \
    return std::name(z);    \
  }
MICA_STANDARD(sin)
MICA_STANDARD(cos)
MICA_STANDARD(tan)
MICA_STANDARD(sinh)
MICA_STANDARD(cosh)
MICA_STANDARD(tanh)
MICA_STANDARD(asin)
MICA_STANDARD(acos)
MICA_STANDARD(atan)
MICA_STANDARD(asinh)
MICA_STANDARD(acosh)
MICA_STANDARD(atanh)
#undef MICA_STANDARD
template <class C>
C sigmoid(C z) {
  return C(1) / (C(1) + std::exp(-z));
}
template <class C>
C sinc(C z) {
  if (z == C(0)) return C(1);
  const C angle = z * static_cast<typename C::value_type>(kPi);
  return std::sin(angle) / angle;
}
template <class C>
C silu(C z) {
  return z / (C(1) + std::exp(-z));
}

template <class C, C (*f)(C)>
void complex_loop(char* const* data, const int64_t* strides, int64_t n, const void*) {
  auto* o = reinterpret_cast<C*>(data[0]);
  auto* a = reinterpret_cast<const C*>(data[1]);
  const int64_t step = strides[1] != 0;
  for (int64_t i = 0; i < n; ++i) o[i] = f(a[i * step]);
}

}  // namespace

#define MICA_DEFINE(name)                                                                                    \
  void complex_##name(const char* kernel, const PointwiseLoop& loop) {                                       \
    visit_complex(kernel, loop.dtype,                                                                        \
                  [&]<class C>(Tag<C>) { run_dense(loop, complex_loop<C, name<C>>, nullptr, kSlowGrain); }); \
  }
MICA_FORALL_COMPLEX_MATH(MICA_DEFINE)
#undef MICA_DEFINE

}  // namespace mica::cpu
