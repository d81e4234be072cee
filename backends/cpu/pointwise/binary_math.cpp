// hypot, logarithms of sums, xlogy, heaviside, neighbours and divisors.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/binary_math.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <complex>
#include <cstring>

#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_others.h"
#include "backends/cpu/simd/arithmetic-inl.h"
#include "backends/cpu/simd/log-inl.h"
#include "backends/shared/numbers.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

MICA_LANES_2(HypotLanes, hypot(d, x, y))
MICA_LANES_2(LogaddexpLanes, logaddexp(d, x, y))
MICA_LANES_2(Logaddexp2Lanes, logaddexp2(d, x, y))
void hypot_kernel(const PointwiseLoop& loop) { run_floating<2>("hypot_cpu", loop, HypotLanes{}, kHeavyGrain); }
void logaddexp2_kernel(const PointwiseLoop& loop) {
  run_floating<2>("logaddexp2_cpu", loop, Logaddexp2Lanes{}, kHeavyGrain);
}

// log(exp(a) + exp(b)) with the larger real part taken out.
template <class C>
struct ComplexLogaddexp {
  C operator()(C a, C b) const {
    const C& big = a.real() < b.real() ? b : a;
    const C& rest = a.real() < b.real() ? a : b;
    if (std::isinf(big.real()) && big.real() == rest.real())
      return big.real() < 0 ? big : std::log(std::exp(a) + std::exp(b));
    return big + std::log(C(1) + std::exp(rest - big));
  }
};
void logaddexp_kernel(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) return run_floating<2>("logaddexp_cpu", loop, LogaddexpLanes{}, kHeavyGrain);
  visit_complex("logaddexp_cpu", loop.dtype,
                [&]<class T>(Tag<T>) { run_binary<T>(loop, ComplexLogaddexp<T>{}, kSlowGrain); });
}

struct XlogyLanes {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    const V product = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Zero(d), hn::Mul(x, log(d, y)));
    return hn::IfThenElse(hn::IsNaN(y), y, product);
  }
};
void xlogy_kernel(const PointwiseLoop& loop) { run_floating<2>("xlogy_cpu", loop, XlogyLanes{}, kHeavyGrain); }

struct HeavisideLanes {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V values) const {
    const V step = hn::IfThenElseZero(hn::Gt(x, hn::Zero(d)), hn::Set(d, hn::TFromD<D>(1)));
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), values, step);
  }
};
template <class T>
struct Heaviside {
  T operator()(T a, T values) const { return a == 0 ? values : static_cast<T>(a > 0); }
};
void heaviside_kernel(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) return run_floating<2>("heaviside_cpu", loop, HeavisideLanes{}, kMemoryGrain);
  visit_integral_bool("heaviside_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, Heaviside<T>{}); });
}

// The neighbours of a 16-bit float are its bits, counted up or down.
template <class T>
struct Nextafter {
  T operator()(T from, T to) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::nextafter(from, to);
    } else {
      const float a = from, b = to;
      if (std::isnan(a) || std::isnan(b)) return T(a + b);
      if (a == b) return to;
      if (a == 0) return T::from_bits(static_cast<uint16_t>((std::signbit(b) ? 0x8000u : 0u) | 1u));
      return T::from_bits(static_cast<uint16_t>(from.bits + ((a < b) == (a > 0) ? 1 : -1)));
    }
  }
};
template <class T>
void nextafter_loop(char* const* data, const int64_t* strides, int64_t n, const void*) {
  auto* o = reinterpret_cast<T*>(data[0]);
  auto* a = reinterpret_cast<const T*>(data[1]);
  auto* b = reinterpret_cast<const T*>(data[2]);
  const int64_t sa = strides[1] != 0, sb = strides[2] != 0;
  for (int64_t i = 0; i < n; ++i) o[i] = Nextafter<T>()(a[i * sa], b[i * sb]);
}
void nextafter_kernel(const PointwiseLoop& loop) {
  visit_floating("nextafter_cpu", loop.dtype,
                 [&]<class T>(Tag<T>) { run_dense(loop, nextafter_loop<T>, nullptr, kSlowGrain); });
}

template <class T>
struct Gcd {
  T operator()(T a, T b) const { return static_cast<T>(greatest_divisor(magnitude(a), magnitude(b))); }
};
template <class T>
struct Lcm {
  T operator()(T a, T b) const {
    const auto x = magnitude(a), y = magnitude(b);
    const auto divisor = greatest_divisor(x, y);
    if (divisor == 0) return 0;
    // The product may overflow. Its magnitude is then computed in the widest type that integers have here, and cut.
    using Wide = std::make_signed_t<wrapping_t<T>>;
    const Wide product = static_cast<Wide>(static_cast<wrapping_t<T>>(x / divisor) * static_cast<wrapping_t<T>>(y));
    return static_cast<T>(product < 0 ? wrapping_neg(product) : product);
  }
};
void gcd_kernel(const PointwiseLoop& loop) {
  visit_integral("gcd_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, Gcd<T>{}, kSlowGrain); });
}
void lcm_kernel(const PointwiseLoop& loop) {
  visit_integral("lcm_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, Lcm<T>{}, kSlowGrain); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(hypot)
MICA_POINTWISE_SLOT(logaddexp)
MICA_POINTWISE_SLOT(logaddexp2)
MICA_POINTWISE_SLOT(xlogy)
MICA_POINTWISE_SLOT(heaviside)
MICA_POINTWISE_SLOT(nextafter)
MICA_POINTWISE_SLOT(gcd)
MICA_POINTWISE_SLOT(lcm)
}  // namespace mica::cpu
#endif
