// Magnitudes, signs, and the parts of numbers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/sign.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <optional>

#include "backends/cpu/pointwise/complex_lanes-inl.h"
#include "backends/cpu/pointwise/float8.h"
#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_others.h"
#include "backends/cpu/simd/arithmetic-inl.h"
#include "backends/cpu/simd/lanes-inl.h"
#include "backends/shared/numbers.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

template <class T>
struct RealOf {
  using type = T;
};
template <class R>
struct RealOf<std::complex<R>> {
  using type = R;
};
template <>
struct RealOf<ComplexHalf> {
  using type = Half;
};
template <class T>
using real_t = typename RealOf<T>::type;

// ---- magnitude and sign

MICA_LANES_1(AbsLanes, hn::Abs(x))
template <class T>
struct Abs {
  auto operator()(T a) const {
    if constexpr (std::is_integral_v<T>) {
      return a < 0 ? wrapping_neg(a) : a;
    } else {
      return std::abs(a);
    }
  }
};
// Works on the bits of short floats: nothing is converted to clear a sign.
MICA_LANES_1(AbsBitsLanes, hn::And(x, hn::Set(d, T(0x7FFF))))
void abs_kernel(const PointwiseLoop& loop) {
  if (loop.dtype == DType::BFloat16 || loop.dtype == DType::Float16)
    return run_lanes<uint16_t, 1>(loop, AbsBitsLanes{}, kMemoryGrain);
  if (is_float8(loop.dtype) && loop.dtype != DType::Float8_e8m0fnu)
    return visit_float8("abs_cpu", loop.dtype, [&]<class T>(Tag<T>) {
      const Abs<float> f;
      run_dense(loop, unary_loop<T, T, Abs<float>>, &f);
    });
  if (is_floating(loop.dtype)) return run_floating<1>("abs_cpu", loop, AbsLanes{}, kMemoryGrain);
  visit_integral_complex("abs_cpu", loop.dtype, [&]<class T>(Tag<T>) {
    const Abs<compute_t<T>> f;
    run_dense(loop, unary_loop<real_t<T>, T, Abs<compute_t<T>>>, &f);
  });
}

// -1, 0 or 1; 0 for NaN.
struct SignLanes {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using T = hn::TFromD<D>;
    const V zero = hn::Zero(d);
    const V positive = hn::IfThenElseZero(hn::Gt(x, zero), hn::Set(d, T(1)));
    return hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, T(-1)), positive);
  }
};
template <class T>
struct Sign {
  T operator()(T a) const {
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>((a > 0) - (a < 0));
    } else {
      return static_cast<T>(a != 0);
    }
  }
};
void sign_kernel(const PointwiseLoop& loop) {
  if (is_floating(loop.dtype)) return run_floating<1>("sign_cpu", loop, SignLanes{}, kMemoryGrain);
  visit_integral_bool("sign_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_unary<T>(loop, Sign<T>{}); });
}

template <class C>
struct ComplexSign {
  C operator()(C z) const {
    const auto magnitude = std::abs(z);
    return magnitude == 0 ? C(0) : z / magnitude;
  }
};
struct ComplexSignLanes {
  template <class D, class V>
  HWY_INLINE Parts<V> operator()(D d, Parts<V> z) const {
    const V magnitude = hypot(d, z.re, z.im);
    const auto is_zero = hn::Eq(magnitude, hn::Zero(d));
    return {hn::IfThenZeroElse(is_zero, hn::Div(z.re, magnitude)),
            hn::IfThenZeroElse(is_zero, hn::Div(z.im, magnitude))};
  }
};
void sgn_kernel(const PointwiseLoop& loop) {
  if (!is_complex(loop.dtype)) return sign_kernel(loop);
  if (run_complex<1>(loop, ComplexSignLanes{}, kSlowGrain)) return;
  visit_any_complex("sgn_cpu", loop.dtype,
                    [&]<class T>(Tag<T>) { run_unary<T>(loop, ComplexSign<compute_t<T>>{}, kSlowGrain); });
}

MICA_LANES_2(CopysignLanes, hn::CopySign(x, y))
void copysign_kernel(const PointwiseLoop& loop) {
  run_floating<2>("copysign_cpu", loop, CopysignLanes{}, kMemoryGrain);
}

// ---- complex numbers and their parts

template <class C>
struct Conjugate {
  C operator()(C z) const { return std::conj(z); }
};
void conj_physical_kernel(const PointwiseLoop& loop) {
  visit_any_complex("conj_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_unary<T>(loop, Conjugate<compute_t<T>>{}); });
}

template <class R>
struct ComplexOf {
  using type = std::complex<R>;
};
template <>
struct ComplexOf<Half> {
  using type = ComplexHalf;
};
template <class R>
struct FromParts {
  std::complex<R> operator()(R re, R im) const { return {re, im}; }
};
template <class R>
struct FromPolar {
  std::complex<R> operator()(R radius, R angle) const { return {radius * std::cos(angle), radius * std::sin(angle)}; }
};
template <class T, class F>
void run_to_complex(const PointwiseLoop& loop, const F& f, int64_t grain) {
  run_dense(loop, binary_loop<typename ComplexOf<T>::type, T, F>, &f, grain);
}
void complex_kernel(const PointwiseLoop& loop) {
  switch (loop.dtype) {
    case DType::Float16:
      return run_to_complex<Half>(loop, FromParts<float>{}, kMemoryGrain);
    case DType::Float32:
      return run_to_complex<float>(loop, FromParts<float>{}, kMemoryGrain);
    case DType::Float64:
      return run_to_complex<double>(loop, FromParts<double>{}, kMemoryGrain);
    default:
      unsupported_dtype("complex_cpu", loop.dtype);
  }
}
void polar_kernel(const PointwiseLoop& loop) {
  switch (loop.dtype) {
    case DType::Float32:
      return run_to_complex<float>(loop, FromPolar<float>{}, kSlowGrain);
    case DType::Float64:
      return run_to_complex<double>(loop, FromPolar<double>{}, kSlowGrain);
    default:
      unsupported_dtype("polar_cpu", loop.dtype);
  }
}

// ---- mantissa and exponent

struct Mantissa {
  template <class T>
  T operator()(T a) const {
    int exponent;
    return std::frexp(a, &exponent);
  }
};
struct Exponent {
  template <class T>
  int32_t operator()(T a) const {
    int exponent = 0;
    std::frexp(a, &exponent);
    return std::isfinite(a) ? exponent : 0;
  }
};
void frexp_mantissa_kernel(const PointwiseLoop& loop) {
  visit_floating("frexp_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_unary<T>(loop, Mantissa{}, kSlowGrain); });
}
void frexp_exponent_kernel(const PointwiseLoop& loop) {
  visit_floating("frexp_cpu", loop.dtype, [&]<class T>(Tag<T>) {
    const Exponent f;
    run_dense(loop, unary_loop<int32_t, T, Exponent>, &f, kSlowGrain);
  });
}

// ---- nan_to_num

struct FiniteLanes {
  double nan, above, below;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    using T = hn::TFromD<D>;
    const V inf = infinity(d);
    V result = hn::IfThenElse(hn::Eq(x, inf), hn::Set(d, static_cast<T>(above)), x);
    result = hn::IfThenElse(hn::Eq(x, hn::Neg(inf)), hn::Set(d, static_cast<T>(below)), result);
    return hn::IfThenElse(hn::IsNaN(x), hn::Set(d, static_cast<T>(nan)), result);
  }
};
template <class R>
struct FiniteComplex {
  R nan, above, below;
  R part(R a) const { return std::isnan(a) ? nan : std::isinf(a) ? (a > 0 ? above : below) : a; }
  std::complex<R> operator()(std::complex<R> z) const { return {part(z.real()), part(z.imag())}; }
};
template <class T>
struct Same {
  T operator()(T a) const { return a; }
};
void nan_to_num_kernel(const PointwiseLoop& loop, std::optional<double> nan, std::optional<double> posinf,
                       std::optional<double> neginf) {
  const double limit = largest_finite(loop.dtype);
  const double zero = nan.value_or(0), above = posinf.value_or(limit), below = neginf.value_or(-limit);
  if (is_floating(loop.dtype))
    return run_floating<1>("nan_to_num", loop, FiniteLanes{zero, above, below}, kMemoryGrain);
  if (is_complex(loop.dtype)) {
    return visit_complex("nan_to_num", loop.dtype, [&]<class T>(Tag<T>) {
      using R = real_t<T>;
      run_unary<T>(loop, FiniteComplex<R>{static_cast<R>(zero), static_cast<R>(above), static_cast<R>(below)});
    });
  }
  visit_integral_bool("nan_to_num", loop.dtype, [&]<class T>(Tag<T>) { run_unary<T>(loop, Same<T>{}); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(abs)
MICA_POINTWISE_SLOT(sign)
MICA_POINTWISE_SLOT(sgn)
MICA_POINTWISE_SLOT(copysign)
MICA_POINTWISE_SLOT(conj_physical)
MICA_POINTWISE_SLOT(complex)
MICA_POINTWISE_SLOT(polar)
MICA_POINTWISE_SLOT(frexp_mantissa)
MICA_POINTWISE_SLOT(frexp_exponent)
MICA_POINTWISE_SLOT(nan_to_num)
}  // namespace mica::cpu
#endif
