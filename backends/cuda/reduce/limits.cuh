// The lowest and the highest value of an element type.
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

}  // namespace mica::cuda
