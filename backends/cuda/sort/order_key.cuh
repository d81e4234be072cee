// Elements as unsigned numbers of the same order: a NaN is the largest, -0 equals 0.
#pragma once

#include "backends/cuda/element.cuh"

namespace mica::cuda {

template <class T>
using key_t = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

template <class T>
__device__ key_t<T> order_key(T v) {
  using K = key_t<T>;
  constexpr K kSign = static_cast<K>(K(1) << (sizeof(T) * 8 - 1));
  if constexpr (std::is_same_v<T, bool>) {
    return v ? 1 : 0;
  } else if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? static_cast<K>(static_cast<K>(v) ^ kSign) : static_cast<K>(v);
  } else {
    const auto wide = widen(v);
    if (wide != wide) return static_cast<K>(~K(0));
    if (wide == 0) return kSign;
    const K bits = reinterpret_cast<const K&>(v);
    return bits & kSign ? static_cast<K>(~bits) : static_cast<K>(bits | kSign);
  }
}

// Whether the element is a NaN; its key is the largest.
template <class T>
__device__ bool is_nan(T v) {
  const auto wide = widen(v);
  return wide != wide;
}

}  // namespace mica::cuda
