// Arithmetic of single numbers that the CPU's and CUDA's kernels share.
#pragma once

#include <limits>
#include <type_traits>

#include "backends/shared/host_device.h"
#include "mica/dtype.h"

namespace mica {

// The distance of an integer from zero, unsigned: the smallest integer has one there.
template <class T>
MICA_HD inline std::make_unsigned_t<T> magnitude(T a) {
  using U = std::make_unsigned_t<T>;
  return a < 0 ? static_cast<U>(0 - static_cast<U>(a)) : static_cast<U>(a);
}

template <class U>
MICA_HD inline U greatest_divisor(U a, U b) {
  while (a) {
    const U rest = static_cast<U>(b % a);
    b = a;
    a = rest;
  }
  return b;
}

// The largest finite number of a floating dtype, or of the parts of a complex one.
inline double largest_finite(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return 65504.0;
    case DType::BFloat16:
      return 3.38953138925153547590470800371487866880e38;
    case DType::Float32:
    case DType::Complex64:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

}  // namespace mica
