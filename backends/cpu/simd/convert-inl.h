// Half and bfloat16 arrays as streams of float vectors. Both are passed as their bits, uint16_t.

#if defined(MICA_CPU_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_CONVERT_INL_H_
#undef MICA_CPU_SIMD_CONVERT_INL_H_
#else
#define MICA_CPU_SIMD_CONVERT_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#include "backends/cpu/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The 16-bit lanes that stand beside the float lanes of D, one for one.
template <class D>
using BitsOf = hn::Rebind<uint16_t, D>;

template <class D>
HWY_INLINE hn::VFromD<D> float_from_bfloat16(D d, hn::VFromD<BitsOf<D>> bits) {
  const hn::RebindToUnsigned<D> du;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
}

// Rounds to nearest, ties to even; every NaN becomes 0x7fc0. (AVX512_BF16's own conversion takes subnormals for zero.)
template <class D>
HWY_INLINE hn::VFromD<BitsOf<D>> bfloat16_from_float(D, hn::VFromD<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu))));
  return hn::TruncateTo(BitsOf<D>(), hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), hn::Set(du, 0x7fc0u), rounded));
}

template <class D>
HWY_INLINE hn::VFromD<D> float_from_half(D d, hn::VFromD<BitsOf<D>> bits) {
  return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}

// Rounds to nearest, ties to even, overflowing to infinity; a NaN keeps its sign and leading payload bits.
template <class D>
HWY_INLINE hn::VFromD<BitsOf<D>> half_from_float(D, hn::VFromD<D> x) {
  return hn::BitCast(BitsOf<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), x));
}

// A 16-bit floating-point format, for kernels written once for both.
struct BFloat16Bits {
  template <class D>
  static HWY_INLINE hn::VFromD<D> to_float(D d, hn::VFromD<BitsOf<D>> bits) {
    return float_from_bfloat16(d, bits);
  }
  template <class D>
  static HWY_INLINE hn::VFromD<BitsOf<D>> from_float(D d, hn::VFromD<D> x) {
    return bfloat16_from_float(d, x);
  }
};

struct HalfBits {
  template <class D>
  static HWY_INLINE hn::VFromD<D> to_float(D d, hn::VFromD<BitsOf<D>> bits) {
    return float_from_half(d, bits);
  }
  template <class D>
  static HWY_INLINE hn::VFromD<BitsOf<D>> from_float(D d, hn::VFromD<D> x) {
    return half_from_float(d, x);
  }
};

// Lanes(d) floats from unaligned 16-bit memory, and back.
template <class Format, class D>
HWY_INLINE hn::VFromD<D> load_as_float(D d, const uint16_t* from) {
  return Format::to_float(d, hn::LoadU(BitsOf<D>(), from));
}

template <class Format, class D>
HWY_INLINE void store_from_float(hn::VFromD<D> x, D d, uint16_t* to) {
  hn::StoreU(Format::from_float(d, x), BitsOf<D>(), to);
}

// The first count lanes (count at most Lanes(d)); zeros behind them on load, memory behind them untouched on store.
template <class Format, class D>
HWY_INLINE hn::VFromD<D> load_first_as_float(D d, const uint16_t* from, size_t count) {
  return Format::to_float(d, load_first(BitsOf<D>(), from, count));
}

template <class Format, class D>
HWY_INLINE void store_first_from_float(hn::VFromD<D> x, D d, uint16_t* to, size_t count) {
  store_first(Format::from_float(d, x), BitsOf<D>(), to, count);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_CONVERT_INL_H_
