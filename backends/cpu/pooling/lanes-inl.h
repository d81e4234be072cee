// Elements of any dtype as lanes of the few types that pooling computes in, and back.

#if defined(MICA_CPU_POOLING_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_POOLING_LANES_INL_H_
#undef MICA_CPU_POOLING_LANES_INL_H_
#else
#define MICA_CPU_POOLING_LANES_INL_H_
#endif

#include <limits>
#include <type_traits>

#include "backends/cpu/simd/convert-inl.h"
#include "hwy/highway.h"
#include "mica/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The type in which an element is computed: float for the 16-bit floats, int32 for shorter integers, itself for the
// others.
template <class T>
using Computed = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float,
                                    std::conditional_t<std::is_integral_v<T> && sizeof(T) < 4, int32_t, T>>;

template <class T>
constexpr bool is_short_float = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;
template <class T>
using ShortFormat = std::conditional_t<std::is_same_v<T, Half>, HalfBits, BFloat16Bits>;

template <class D, class T>
HWY_INLINE hn::VFromD<D> load_lanes(D d, const T* from) {
  if constexpr (is_short_float<T>) {
    return load_as_float<ShortFormat<T>>(d, reinterpret_cast<const uint16_t*>(from));
  } else if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    return hn::LoadU(d, from);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<T, D>(), from));
  }
}

template <class D, class T>
HWY_INLINE hn::VFromD<D> load_first_lanes(D d, const T* from, size_t count) {
  if constexpr (is_short_float<T>) {
    return load_first_as_float<ShortFormat<T>>(d, reinterpret_cast<const uint16_t*>(from), count);
  } else if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    return load_first(d, from, count);
  } else {
    return hn::PromoteTo(d, load_first(hn::Rebind<T, D>(), from, count));
  }
}

template <class D, class T>
HWY_INLINE void store_lanes(hn::VFromD<D> v, D d, T* to) {
  if constexpr (is_short_float<T>) {
    store_from_float<ShortFormat<T>>(v, d, reinterpret_cast<uint16_t*>(to));
  } else if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Rebind<T, D> dt;
    hn::StoreU(hn::DemoteTo(dt, v), dt, to);
  }
}

template <class D, class T>
HWY_INLINE void store_first_lanes(hn::VFromD<D> v, D d, T* to, size_t count) {
  if constexpr (is_short_float<T>) {
    store_first_from_float<ShortFormat<T>>(v, d, reinterpret_cast<uint16_t*>(to), count);
  } else if constexpr (std::is_same_v<T, hn::TFromD<D>>) {
    store_first(v, d, to, count);
  } else {
    const hn::Rebind<T, D> dt;
    store_first(hn::DemoteTo(dt, v), dt, to, count);
  }
}

template <class T>
HWY_INLINE void load_run(const T* from, int64_t n, Computed<T>* to) {
  const hn::ScalableTag<Computed<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_lanes(d, from + i), d, to + i);
  if (i < n)
    store_first(load_first_lanes(d, from + i, static_cast<size_t>(n - i)), d, to + i, static_cast<size_t>(n - i));
}

template <class T>
HWY_INLINE void store_run(const Computed<T>* from, int64_t n, T* to) {
  const hn::ScalableTag<Computed<T>> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_lanes(hn::LoadU(d, from + i), d, to + i);
  if (i < n)
    store_first_lanes(load_first(d, from + i, static_cast<size_t>(n - i)), d, to + i, static_cast<size_t>(n - i));
}

// Loads lanes that are `stride` elements apart. With kStride 2 it reads one element behind that of the last lane.
template <int kStride, class D>
HWY_INLINE hn::VFromD<D> load_strided(D d, const hn::TFromD<D>* from, hn::VFromD<hn::RebindToSigned<D>> offsets) {
  if constexpr (kStride == 1) {
    return hn::LoadU(d, from);
  } else if constexpr (kStride == 2) {
    return hn::ConcatEven(d, hn::LoadU(d, from + hn::Lanes(d)), hn::LoadU(d, from));
  } else {
    return hn::GatherIndex(d, from, offsets);
  }
}

// The lowest value of a type.
template <class C>
constexpr C lowest() {
  return std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::lowest();
}

// Where v replaces the running maximum. A NaN always does.
template <class D, class V>
HWY_INLINE hn::Mask<D> exceeds(D, V v, V maximum) {
  if constexpr (std::is_floating_point_v<hn::TFromD<D>>) {
    return hn::Or(hn::Gt(v, maximum), hn::IsNaN(v));
  } else {
    return hn::Gt(v, maximum);
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_POOLING_LANES_INL_H_
