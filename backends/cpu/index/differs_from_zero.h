// Whether an element counts as one that is not zero: for nonzero, and for conversions to sparse layouts.
#pragma once

#include <type_traits>

#include "backends/shared/read_element.h"
#include "mica/dtype.h"

namespace mica::cpu {

template <class T>
bool differs_from_zero(const T& v) {
  if constexpr (std::is_same_v<T, ComplexHalf>) {
    return static_cast<complex64>(v) != complex64(0);
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return (v.bits & 0x7fff) != 0;  // both zeros have no bit but the sign
  } else if constexpr (std::is_class_v<T> && sizeof(T) <= 2) {
    return static_cast<float>(v) != 0.0f;
  } else {
    return read_element(v) != T(0);
  }
}

}  // namespace mica::cpu
