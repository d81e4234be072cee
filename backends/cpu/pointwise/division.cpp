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
// Processors divide words of 32 bits in less time than those of 64.
template <class T>
HWY_INLINE T quotient_of(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    if ((x | y) >> 32 == 0) return static_cast<T>(static_cast<uint32_t>(x) / static_cast<uint32_t>(y));
  }
  return static_cast<T>(a / b);
}

// For integers one by one: operands. In vectors: the divisor, the quotient rounded towards zero, what it leaves, and
// where that is not zero and has another sign than the divisor.
struct DivTrunc {
  template <class T>
  HWY_INLINE T operator()(T a, T b) const {
    return is_minus_one(b) ? wrapping_neg(a) : quotient_of(a, b);
  }
  template <class D, class V, class M>
  static HWY_INLINE V lanes(D, V, V quotient, V, M) {
    return quotient;
  }
};
struct DivFloor {
  template <class T>
  HWY_INLINE T operator()(T a, T b) const {
    if (is_minus_one(b)) return wrapping_neg(a);
    const T quotient = quotient_of(a, b), rest = static_cast<T>(a - quotient * b);
    return static_cast<T>(quotient - (rest != 0 && (rest < 0) != (b < 0)));
  }
  template <class D, class V, class M>
  static HWY_INLINE V lanes(D d, V, V quotient, V, M opposite) {
    return hn::IfThenElse(opposite, hn::Sub(quotient, hn::Set(d, 1)), quotient);
  }
};
struct Fmod {
  template <class T>
  HWY_INLINE T operator()(T a, T b) const {
    return is_minus_one(b) ? T(0) : static_cast<T>(a - quotient_of(a, b) * b);
  }
  template <class D, class V, class M>
  static HWY_INLINE V lanes(D, V, V, V rest, M) {
    return rest;
  }
};
struct Remainder {
  template <class T>
  HWY_INLINE T operator()(T a, T b) const {
    if (is_minus_one(b)) return T(0);
    const T rest = static_cast<T>(a - quotient_of(a, b) * b);
    return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
  }
  template <class D, class V, class M>
  static HWY_INLINE V lanes(D, V b, V, V rest, M opposite) {
    return hn::IfThenElse(opposite, hn::Add(rest, b), rest);
  }
};

// Integers of up to 32 bits are divided as floating-point numbers that hold them exactly. Where the quotient is not
// whole, it is farther from the next whole number than its rounding reaches.
template <class T>
struct WordQuotient {
  template <class D, class V>
  static HWY_INLINE V of(D d, V a, V b) {
    if constexpr (sizeof(T) == 4) {
      const hn::Half<D> dh;
      const hn::Rebind<double, decltype(dh)> dd;
      const auto divide = [&](auto x, auto y) HWY_ATTR {
        return hn::DemoteTo(dh, hn::Div(hn::PromoteTo(dd, x), hn::PromoteTo(dd, y)));
      };
      const V quotient = hn::Combine(d, divide(hn::UpperHalf(dh, a), hn::UpperHalf(dh, b)),
                                     divide(hn::LowerHalf(dh, a), hn::LowerHalf(dh, b)));
      return hn::IfThenElse(hn::Eq(b, hn::Set(d, -1)), hn::Neg(a), quotient);  // wraps around
    } else {
      const hn::Rebind<float, D> df;
      return hn::ConvertTo(d, hn::Div(hn::ConvertTo(df, a), hn::ConvertTo(df, b)));
    }
  }
};
template <class T, class Op>
struct DivisionLanes {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    if constexpr (sizeof(T) == 4) {
      return words(d, a, b);
    } else {
      constexpr size_t kLanes = hn::MaxLanes(D());
      const hn::ScalableTag<int32_t> dw;
      const hn::Rebind<T, decltype(dw)> dn;
      const hn::RebindToUnsigned<decltype(dw)> duw;
      const hn::RebindToUnsigned<decltype(dn)> dun;
      HWY_ALIGN T x[kLanes], y[kLanes];
      hn::Store(a, d, x);
      hn::Store(b, d, y);
      for (size_t i = 0; i < kLanes; i += hn::Lanes(dw)) {
        const auto result = words(dw, hn::PromoteTo(dw, hn::LoadU(dn, x + i)), hn::PromoteTo(dw, hn::LoadU(dn, y + i)));
        hn::StoreU(hn::BitCast(dn, hn::TruncateTo(dun, hn::BitCast(duw, result))), dn, x + i);
      }
      return hn::Load(d, x);
    }
  }
  template <class D, class V>
  static HWY_INLINE V words(D d, V a, V b) {
    const V quotient = WordQuotient<T>::of(d, a, b), rest = hn::Sub(a, hn::Mul(quotient, b)), zero = hn::Zero(d);
    const auto opposite = hn::And(hn::Ne(rest, zero), hn::Lt(hn::Xor(rest, b), zero));
    return Op::lanes(d, b, quotient, rest, opposite);
  }
};

template <class Lanes, class Op>
void divide(const char* name, const PointwiseLoop& loop) {
  if (!is_integral(loop.dtype)) return run_floating<2>(name, loop, Lanes{}, kHeavyGrain);
  check_divisor(loop, 2);
  visit_integral(name, loop.dtype, [&]<class T>(Tag<T>) {
    if constexpr (sizeof(T) < 4 || std::is_same_v<T, int32_t>) {
      run_lanes<T, 2>(loop, DivisionLanes<T, Op>{}, kHeavyGrain);
    } else {
      run_binary<T>(loop, Op{}, kHeavyGrain);
    }
  });
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
