// pow.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/power.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <complex>
#include <cstring>

#include "backends/cpu/pointwise/complex_math.h"
#include "backends/cpu/pointwise/float8.h"
#include "backends/cpu/pointwise/numbers.h"
#include "backends/cpu/pointwise/complex_lanes-inl.h"
#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_others.h"
#include "backends/cpu/simd/arithmetic-inl.h"
#include "backends/cpu/simd/pow-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

MICA_LANES_2(PowLanes, pow(d, x, y))
MICA_LANES_2(SquareLanes, hn::Mul(x, x))
MICA_LANES_2(CubeLanes, hn::Mul(hn::Mul(x, x), x))
MICA_LANES_2(SqrtLanes, hn::Sqrt(x))
MICA_LANES_2(RsqrtLanes, rsqrt(d, x))
MICA_LANES_2(ReciprocalLanes, hn::Div(hn::Set(d, T(1)), x))
MICA_LANES_2(InverseSquareLanes, hn::Div(hn::Set(d, T(1)), hn::Mul(x, x)))
MICA_LANES_2(IdentityLanes, x)
MICA_LANES_2(OneLanes, hn::Set(d, T(1)))

// Exponents for which a shorter function gives torch's result. torch uses it for the same ones.
void pow_constant(const PointwiseLoop& loop, double exponent) {
  const auto run = [&](const auto& f) { run_floating<2>("pow", loop, f, kMemoryGrain); };
  if (exponent == 2) return run(SquareLanes{});
  if (exponent == 3) return run(CubeLanes{});
  if (exponent == 1) return run(IdentityLanes{});
  if (exponent == 0) return run(OneLanes{});
  const bool half = loop.dtype == DType::Float16;
  if (exponent == 0.5 && !half) return run(SqrtLanes{});
  if (exponent == -0.5 && !half) return run(RsqrtLanes{});
  if (exponent == -1) return run(ReciprocalLanes{});
  if (exponent == -2) return run(InverseSquareLanes{});
  run_floating<2>("pow", loop, PowLanes{}, kHeavyGrain);
}

// By squaring, wrapping around, for unsigned lanes of 16 bits and more: as many rounds as the largest exponent has
// bits.
template <class D, class V>
HWY_INLINE V pow_by_squaring(D d, V base, V exponent) {
  const V one = hn::Set(d, hn::TFromD<D>(1));
  V result = one;
  for (;;) {
    result = hn::IfThenElse(hn::Eq(hn::And(exponent, one), one), hn::Mul(result, base), result);
    exponent = hn::ShiftRight<1>(exponent);
    if (hn::AllTrue(d, hn::Eq(exponent, hn::Zero(d)))) return result;
    base = hn::Mul(base, base);
  }
}
// Bytes are computed in two halves: a product's low byte depends on the factors' low bytes alone.
template <class D, class V>
HWY_INLINE V byte_pow(D d, V base, V exponent) {
  const hn::Repartition<uint16_t, D> pairs;
  const auto low_byte = hn::Set(pairs, uint16_t{0xff});
  const auto b = hn::BitCast(pairs, base), e = hn::BitCast(pairs, exponent);
  const auto even = pow_by_squaring(pairs, b, hn::And(e, low_byte));
  const auto odd = pow_by_squaring(pairs, hn::ShiftRight<8>(b), hn::ShiftRight<8>(e));
  return hn::BitCast(d, hn::Or(hn::And(even, low_byte), hn::ShiftLeft<8>(odd)));
}

struct IntegerPowLanes {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V base, V exponent) const {
    using T = hn::TFromD<D>;
    const hn::RebindToUnsigned<D> du;
    V positive = exponent;
    if constexpr (std::is_signed_v<T>) positive = hn::IfThenZeroElse(hn::Lt(exponent, hn::Zero(d)), exponent);
    V result;
    if constexpr (sizeof(T) == 1) {
      result = hn::BitCast(d, byte_pow(du, hn::BitCast(du, base), hn::BitCast(du, positive)));
    } else {
      result = hn::BitCast(d, pow_by_squaring(du, hn::BitCast(du, base), hn::BitCast(du, positive)));
    }
    if constexpr (std::is_signed_v<T>) {
      // A negative exponent leaves only 1 and -1.
      const V one = hn::Set(d, T(1)), sign = hn::IfThenElse(hn::Eq(hn::And(exponent, one), one), base, one);
      const auto is_unit = hn::Or(hn::Eq(base, one), hn::Eq(base, hn::Set(d, T(-1))));
      result = hn::IfThenElse(hn::Lt(exponent, hn::Zero(d)), hn::IfThenElseZero(is_unit, sign), result);
    }
    return result;
  }
};

// Exponents that programs use often, without the rounds.
template <class T>
struct IntegerSquare {
  T operator()(T base, T) const { return wrapping_mul(base, base); }
};
template <class T>
struct IntegerCube {
  T operator()(T base, T) const { return wrapping_mul(wrapping_mul(base, base), base); }
};
template <class T>
struct IntegerOne {
  T operator()(T, T) const { return T(1); }
};
template <class T>
void integer_pow(const PointwiseLoop& loop) {
  if (!is_constant(loop, 2)) return run_lanes<T, 2>(loop, IntegerPowLanes{}, kHeavyGrain);
  const T exponent = *reinterpret_cast<const T*>(loop.data[2]);
  if (exponent == 0) return run_binary<T>(loop, IntegerOne<T>{});
  if (exponent == 2) return run_binary<T>(loop, IntegerSquare<T>{});
  if (exponent == 3) return run_binary<T>(loop, IntegerCube<T>{});
  run_lanes<T, 2>(loop, IntegerPowLanes{}, kHeavyGrain);
}

#define MICA_COMPLEX_POWER(Name, result)                    \
  struct Name {                                             \
    template <class D, class V>                             \
    HWY_INLINE Parts<V> operator()(D d, Parts<V> z) const { \
      (void)d;                                              \
      return result;                                        \
    }                                                       \
  };
MICA_COMPLEX_POWER(ComplexSquareLanes, z* z)
MICA_COMPLEX_POWER(ComplexCubeLanes, z* z* z)
MICA_COMPLEX_POWER(ComplexReciprocalLanes, reciprocal_of(d, z))
MICA_COMPLEX_POWER(ComplexInverseSquareLanes, reciprocal_of(d, z* z))
#undef MICA_COMPLEX_POWER

// As pow_constant. Returns false for other exponents.
bool complex_pow_constant(const PointwiseLoop& loop, std::complex<double> exponent) {
  const auto run = [&](const auto& f) { return run_complex<1>(loop, f, kMemoryGrain); };
  if (exponent == 2.0) return run(ComplexSquareLanes{});
  if (exponent == 3.0) return run(ComplexCubeLanes{});
  if (exponent == 0.5) return complex_sqrt("pow", loop), true;
  if (exponent == -0.5) return complex_rsqrt("pow", loop), true;
  if (exponent == -1.0) return run(ComplexReciprocalLanes{});
  if (exponent == -2.0) return run(ComplexInverseSquareLanes{});
  return false;
}
template <class C>
struct ComplexPow {
  C operator()(C base, C exponent) const {
    if (exponent == C(2)) return base * base;
    if (exponent == C(0)) return C(1);
    if (exponent == C(1)) return base;  // infinities keep their parts
    return std::pow(base, exponent);
  }
};

// torch looks for the exponents 0 and 1 and the base 1 before it checks the dtype. It computes no other power of these
// dtypes.
void pow_of_few(const PointwiseLoop& loop) {
  const auto is = [&](int operand, float number) {
    return is_number(loop, operand) && exact_number(loop, operand) == number;
  };
  const bool ones = is(2, 0) || is(1, 1);
  if (!ones && !is(2, 1)) unsupported_dtype("pow", loop.dtype);
  visit_any("pow", loop.dtype, [&]<class T>(Tag<T>) {
    if constexpr (is_float8_v<T> || std::is_same_v<T, ComplexHalf>) {
      using C = compute_t<T>;
      run_binary<T>(
          loop, [ones](C base, C) { return ones ? C(1) : base; }, kMemoryGrain);
    }
  });
}

void pow_kernel(const PointwiseLoop& loop) {
  if (is_float8(loop.dtype) || loop.dtype == DType::Complex32) return pow_of_few(loop);
  if (is_floating(loop.dtype)) {
    if (!is_constant(loop, 2)) return run_floating<2>("pow", loop, PowLanes{}, kHeavyGrain);
    double exponent = 0;
    visit_floating("pow", loop.dtype, [&]<class T>(Tag<T>) {
      T value;
      std::memcpy(static_cast<void*>(&value), loop.data[2], sizeof value);
      exponent = static_cast<double>(static_cast<compute_t<T>>(value));
    });
    return pow_constant(loop, exponent);
  }
  if (is_complex(loop.dtype))
    return visit_complex("pow", loop.dtype, [&]<class T>(Tag<T>) {
      const bool constant = is_constant(loop, 2);
      if (constant && complex_pow_constant(loop, *reinterpret_cast<const T*>(loop.data[2]))) return;
      run_binary<T>(loop, ComplexPow<T>{}, kSlowGrain);
    });
  if (loop.dtype == DType::Bool && is_constant(loop, 2))  // x ** True is x, x ** False is True
    return run_binary<bool>(
        loop, [](bool base, bool exponent) { return base || !exponent; }, kMemoryGrain);
  visit_integral("pow", loop.dtype, [&]<class T>(Tag<T>) { integer_pow<T>(loop); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(pow)
}  // namespace mica::cpu
#endif
