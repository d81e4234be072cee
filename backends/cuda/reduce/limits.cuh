// The lowest and the highest value of an element type, and the smallest element as the largest of others.
#pragma once

#include "backends/cuda/element.cuh"

namespace mica::cuda {

template <class T>
__device__ T lowest() {
  if constexpr (std::is_same_v<T, bool>) {
    return false;
  } else if constexpr (std::is_integral_v<T>) {
    return std::is_signed_v<T> ? static_cast<T>(static_cast<T>(1) << (sizeof(T) * 8 - 1)) : T(0);
  } else {
    return -static_cast<T>(INFINITY);
  }
}
template <class T>
__device__ T highest() {
  if constexpr (std::is_same_v<T, bool>) {
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(~lowest<T>());
  } else {
    return static_cast<T>(INFINITY);
  }
}

// Numbers in the opposite order where the smallest of them is looked for, so that it is the largest.
template <class C>
struct Turned {
  bool largest;
  __device__ C operator()(C v) const {
    if constexpr (std::is_integral_v<C>) {
      return largest ? v : static_cast<C>(~v);
    } else {
      return largest ? v : -v;
    }
  }
};

// A bool in memory, where any byte but zero is true. It is computed as 0 or 1.
struct TruthByte {
  uint8_t byte;
};
template <>
struct Compute<TruthByte> {
  using type = uint8_t;
};
template <>
__device__ inline uint8_t convert<uint8_t, TruthByte>(const TruthByte& from) {
  return from.byte != 0;
}
template <>
__device__ inline TruthByte convert<TruthByte, uint8_t>(const uint8_t& from) {
  return {from};
}

// Numbers that have an order, and bools by what they mean.
template <class F>
void visit_ordered(const char* op, DType dtype, const F& f) {
  if (dtype == DType::Bool) return f(Tag<TruthByte>{});
  visit_real(op, dtype, f);
}

}  // namespace mica::cuda
