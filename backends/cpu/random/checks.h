// Argument checks that the sampling kernels share.
#pragma once

#include <cstdio>
#include <limits>
#include <string>

#include "core/error_advice.h"
#include "mica/dtype.h"
#include "mica/error.h"

namespace mica::cpu {

[[noreturn]] inline void not_implemented(const char* kernel, DType dtype) {
  fail(ErrorKind::NotImplemented, cat("\"", kernel, "\" not implemented for '", info(dtype).legacy, "'"));
}

// A number as a C++ stream prints it, which is how torch's messages show it.
inline std::string shown(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

// Bits of the significand, and the largest finite value.
template <class T>
struct FloatRange {
  static constexpr int kDigits = std::numeric_limits<T>::digits;
  static constexpr double kMax = std::numeric_limits<T>::max();
};
template <>
struct FloatRange<Half> {
  static constexpr int kDigits = 11;
  static constexpr double kMax = 65504.0;
};
template <>
struct FloatRange<BFloat16> {
  static constexpr int kDigits = 8;
  static constexpr double kMax = 0x1.fep127;
};

// Calls f(T()) with the C++ type of a floating dtype; float8 and everything else is refused in the kernel's name.
template <class F>
void dispatch_floating(DType dtype, const char* kernel, const F& f) {
  switch (dtype) {
    case DType::Float16:
      return f(Half());
    case DType::BFloat16:
      return f(BFloat16());
    case DType::Float32:
      return f(float());
    case DType::Float64:
      return f(double());
    default:
      not_implemented(kernel, dtype);
  }
}

// The same for the floating dtypes and the integers that torch had first; bool where `AlsoBool`.
template <bool AlsoBool, class F>
void dispatch_plain(DType dtype, const char* kernel, const F& f) {
  switch (dtype) {
    case DType::UInt8:
      return f(uint8_t());
    case DType::Int8:
      return f(int8_t());
    case DType::Int16:
      return f(int16_t());
    case DType::Int32:
      return f(int32_t());
    case DType::Int64:
      return f(int64_t());
    case DType::Bool:
      if constexpr (AlsoBool) return f(bool());
      not_implemented(kernel, dtype);
    default:
      return dispatch_floating(dtype, kernel, f);
  }
}

}  // namespace mica::cpu
