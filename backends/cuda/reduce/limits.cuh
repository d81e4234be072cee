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

// Numbers that have an order; bools are bytes of 0 and 1.
template <class F>
void visit_ordered(const char* op, DType dtype, const F& f) {
  if (dtype == DType::Bool) return f(Tag<uint8_t>{});
  visit_real(op, dtype, f);
}

}  // namespace mica::cuda
