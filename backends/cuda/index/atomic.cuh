// Read, combine and write back of one element that other threads may write too.
#pragma once

#include "backends/cuda/element.cuh"

namespace mica::cuda {

// An element of up to eight bytes through compare-and-swap of the word it lies in.
template <class T, class F>
__device__ void atomic_update(T* place, const F& f) {
  if constexpr (sizeof(T) == 8 || sizeof(T) == 4) {
    using Word = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned int>;
    auto* word = reinterpret_cast<Word*>(place);
    Word old = *word, seen;
    do {
      seen = old;
      const T next = f(reinterpret_cast<const T&>(seen));
      old = atomicCAS(word, seen, reinterpret_cast<const Word&>(next));
    } while (old != seen);
  } else if constexpr (sizeof(T) < 4) {
    const auto address = reinterpret_cast<uintptr_t>(place);
    auto* word = reinterpret_cast<unsigned int*>(address & ~uintptr_t{3});
    const unsigned shift = static_cast<unsigned>(address & 3) * 8;
    constexpr unsigned kMask = sizeof(T) == 1 ? 0xffu : 0xffffu;
    using Bits = std::conditional_t<sizeof(T) == 1, uint8_t, uint16_t>;
    unsigned int old = *word, seen;
    do {
      seen = old;
      const auto bits = static_cast<Bits>(seen >> shift & kMask);
      const T next = f(reinterpret_cast<const T&>(bits));
      const unsigned written = static_cast<unsigned>(reinterpret_cast<const Bits&>(next)) << shift;
      old = atomicCAS(word, seen, (seen & ~(kMask << shift)) | written);
    } while (old != seen);
  } else {
    __trap();  // no caller has such an element
  }
}

template <class T>
__device__ void atomic_add(T* place, T value) {
  if constexpr (is_complex_v<T>) {
    auto* parts = reinterpret_cast<typename T::value_type*>(place);
    atomicAdd(parts, value.real());
    atomicAdd(parts + 1, value.imag());
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, int32_t> ||
                       std::is_same_v<T, uint32_t> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
    atomicAdd(place, value);
  } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) {
    atomicAdd(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    if (value) *place = true;
  } else {
    atomic_update(place, [=](T old) { return static_cast<T>(old + value); });
  }
}

}  // namespace mica::cuda
