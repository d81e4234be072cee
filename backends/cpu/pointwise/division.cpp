// Division with rounding, and remainders.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/division.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/divisor.h"
#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/simd/arithmetic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Python's //: the quotient is taken from an exact remainder, so that it is right even where x / y rounds to the next
// integer.
struct DivFloorLanes {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    using T = hn::TFromD<D>;
    const V zero = hn::Zero(d), one = hn::Set(d, T(1));
    const V ratio = hn::Div(x, y);
    const V rest = fmod(d, x, y);
    V quotient = hn::Div(hn::Sub(x, rest), y);
    const auto opposite = hn::Xor(hn::Lt(y, zero), hn::Lt(rest, zero));
    quotient = hn::IfThenElse(hn::And(hn::Ne(rest, zero), opposite), hn::Sub(quotient, one), quotient);
    const V below = hn::Floor(quotient);
    const V nearest = hn::IfThenElse(hn::Gt(hn::Sub(quotient, below), hn::Set(d, T(0.5))), hn::Add(below, one), below);
    const V result = hn::IfThenElse(hn::Eq(quotient, zero), hn::CopySign(zero, ratio), nearest);
    return hn::IfThenElse(hn::Eq(y, zero), ratio, result);
  }
};
MICA_LANES_2(DivTruncLanes, hn::Trunc(hn::Div(x, y)))
MICA_LANES_2(FmodLanes, fmod(d, x, y))
MICA_LANES_2(RemainderLanes, remainder(d, x, y))

// The one quotient of two's complement that does not fit, and traps.
template <class T>
HWY_INLINE bool is_minus_one(T b) {
  return std::is_signed_v<T> && b == static_cast<T>(-1);
}
template <class T>
struct DivTrunc {
  T operator()(T a, T b) const { return is_minus_one(b) ? wrapping_neg(a) : static_cast<T>(a / b); }
};
template <class T>
struct DivFloor {
  T operator()(T a, T b) const {
    if (is_minus_one(b)) return wrapping_neg(a);
    const T quotient = static_cast<T>(a / b);
    const bool inexact_negative = std::is_signed_v<T> && (a % b != 0) && ((a < 0) != (b < 0));
    return static_cast<T>(quotient - inexact_negative);
  }
};
template <class T>
struct Fmod {
  T operator()(T a, T b) const { return is_minus_one(b) ? T(0) : static_cast<T>(a % b); }
};
template <class T>
struct Remainder {
  T operator()(T a, T b) const {
    if (is_minus_one(b)) return T(0);
    const T rest = static_cast<T>(a % b);
    return std::is_signed_v<T> && rest != 0 && ((rest < 0) != (b < 0)) ? static_cast<T>(rest + b) : rest;
  }
};

template <class Lanes, template <class> class Integers>
void divide(const char* name, const PointwiseLoop& loop) {
  if (!is_integral(loop.dtype)) return run_floating<2>(name, loop, Lanes{}, kHeavyGrain);
  check_divisor(loop, 2);
  visit_integral(name, loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, Integers<T>{}, kHeavyGrain); });
}

void div_floor_kernel(const PointwiseLoop& loop) { divide<DivFloorLanes, DivFloor>("div_floor_cpu", loop); }
void div_trunc_kernel(const PointwiseLoop& loop) { divide<DivTruncLanes, DivTrunc>("div_trunc_cpu", loop); }
void fmod_kernel(const PointwiseLoop& loop) { divide<FmodLanes, Fmod>("fmod_cpu", loop); }
void remainder_kernel(const PointwiseLoop& loop) { divide<RemainderLanes, Remainder>("remainder_cpu", loop); }

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(div_floor)
MICA_POINTWISE_SLOT(div_trunc)
MICA_POINTWISE_SLOT(fmod)
MICA_POINTWISE_SLOT(remainder)
}  // namespace mica::cpu
#endif
