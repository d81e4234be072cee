// Loads and stores of a vector's first lanes that touch no memory beyond them.

#if defined(MICA_CPU_SIMD_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_SIMD_MEMORY_INL_H_
#undef MICA_CPU_SIMD_MEMORY_INL_H_
#else
#define MICA_CPU_SIMD_MEMORY_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's masked loads and stores of these lanes are true masked instructions; others may read the whole vector.
template <class D>
constexpr bool has_masked_memory() {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  return true;
#elif HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return sizeof(hn::TFromD<D>) >= 4;
#else
  return false;
#endif
}

// The first count lanes (count at most Lanes(d)) from unaligned memory, zeros behind them.
template <class D>
HWY_INLINE hn::VFromD<D> load_first(D d, const hn::TFromD<D>* from, size_t count) {
  if constexpr (has_masked_memory<D>()) {
    return hn::MaskedLoad(hn::FirstN(d, count), d, from);
  } else {
    if (count == hn::Lanes(d)) return hn::LoadU(d, from);
    HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())] = {};
    std::memcpy(lanes, from, count * sizeof(lanes[0]));
    return hn::Load(d, lanes);
  }
}

// Writes the first count lanes and nothing else.
template <class D>
HWY_INLINE void store_first(hn::VFromD<D> v, D d, hn::TFromD<D>* to, size_t count) {
  if constexpr (has_masked_memory<D>()) {
    hn::BlendedStore(v, hn::FirstN(d, count), d, to);
  } else {
    if (count == hn::Lanes(d)) return hn::StoreU(v, d, to);
    HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    std::memcpy(to, lanes, count * sizeof(lanes[0]));
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_SIMD_MEMORY_INL_H_
