// Element types on the device, conversions between them, and visits by dtype.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "backends/cuda/complex.cuh"
#include "backends/shared/element_types.h"
#include "backends/shared/read_element.h"
#include "mica/backend/pointwise_loop.h"
#include "mica/backend/tensor_view.h"
#include "mica/core/scalar.h"

// These two are in mica/backend/kernel_types.h, of which files of kernels need no more than this and the headers above.
namespace mica {
using TensorViewList = ArrayRef<const TensorView*>;
[[noreturn]] void unsupported_dtype(const char* op, DType dtype);
}  // namespace mica

namespace mica::cuda {

using half = __half;
using bfloat16 = __nv_bfloat16;
using complexf = Complex<float>;
using complexd = Complex<double>;

// ---- storage-only types

// One sign bit, then exponent and mantissa. `kUnsignedZero`: the code of -0 is the only NaN.
template <int kMantissa, int kBias, uint8_t kLargest, uint8_t kOverflow, bool kUnsignedZero, uint8_t kNan>
struct Float8 {
  uint8_t bits;

  __device__ static Float8 from(float value) {
    constexpr int shift = 23 - kMantissa;
    constexpr uint32_t smallest_normal = static_cast<uint32_t>(128 - kBias) << 23;
    constexpr uint32_t magic = smallest_normal + (static_cast<uint32_t>(shift) << 23);
    const uint32_t all = __float_as_uint(value), magnitude = all & 0x7fffffffu, sign = all >> 24 & 0x80u;
    if (magnitude > 0x7f800000u) return {static_cast<uint8_t>(kUnsignedZero ? 0x80u : 0x7fu | sign)};
    uint32_t code;
    if (magnitude < smallest_normal) {
      // Adding the power of two whose last place is the smallest subnormal rounds to it.
      code = __float_as_uint(__fadd_rn(__uint_as_float(magnitude), __uint_as_float(magic))) - magic;
    } else {
      const uint32_t rebased = magnitude - (static_cast<uint32_t>(127 - kBias) << 23);
      code = (rebased + (1u << (shift - 1)) - 1 + (rebased >> shift & 1u)) >> shift;
      if (code > kLargest) code = kOverflow;
    }
    return {static_cast<uint8_t>(code | (kUnsignedZero && code == 0 ? 0u : sign))};
  }

  __device__ float value() const {
    const uint32_t magnitude = bits & 0x7fu;
    const bool nan = kUnsignedZero ? bits == 0x80u : magnitude >= kNan && !(kBias == 15 && magnitude == 0x7c);
    float v;
    if (nan) {
      v = __uint_as_float(0x7fc00000u);
    } else if (kBias == 15 && magnitude == 0x7c) {
      v = __uint_as_float(0x7f800000u);
    } else if (magnitude >> kMantissa == 0) {
      v = static_cast<float>(magnitude) * __uint_as_float(static_cast<uint32_t>(128 - kBias - kMantissa) << 23);
    } else {
      v = __uint_as_float((magnitude << (23 - kMantissa)) + (static_cast<uint32_t>(127 - kBias) << 23));
    }
    return bits & 0x80u && !nan ? -v : v;
  }
};
using float8_e5m2 = Float8<2, 15, 0x7b, 0x7c, false, 0x7d>;
using float8_e4m3fn = Float8<3, 7, 0x7e, 0x7e, false, 0x7f>;
using float8_e5m2fnuz = Float8<2, 16, 0x7f, 0x80, true, 0x80>;
using float8_e4m3fnuz = Float8<3, 8, 0x7f, 0x80, true, 0x80>;

// A power of two from 2^-127 on, by the float's exponent; 255 is NaN. It rounds as float_to_float8_e8m0fnu does.
struct float8_e8m0fnu {
  uint8_t bits;
  __device__ static float8_e8m0fnu from(float value) {
    const uint32_t all = __float_as_uint(value), exponent = all >> 23 & 0xffu, fraction = all & 0x7fffffu;
    const bool up = exponent == 255 ? false : exponent > 0 ? fraction >= 0x400000u : fraction > 0x400000u;
    return {static_cast<uint8_t>(exponent + up)};
  }
  __device__ float value() const {
    if (bits == 0) return __uint_as_float(0x00400000u);
    return __uint_as_float(bits == 255 ? 0x7f800001u : static_cast<uint32_t>(bits) << 23);
  }
};

struct complexh {
  half re, im;
};

// ---- what an element is computed in

template <class T>
struct Compute {
  using type = T;
};
template <>
struct Compute<half> {
  using type = float;
};
template <>
struct Compute<bfloat16> {
  using type = float;
};
template <class T>
using compute_t = typename Compute<T>::type;

template <class T>
inline constexpr bool is_complex_v = std::is_same_v<T, complexf> || std::is_same_v<T, complexd>;
template <class T>
inline constexpr bool is_float8_v = false;
template <int M, int B, uint8_t L, uint8_t O, bool U, uint8_t N>
inline constexpr bool is_float8_v<Float8<M, B, L, O, U, N>> = true;
template <>
inline constexpr bool is_float8_v<float8_e8m0fnu> = true;

// A value on its way between element types: small floats as float, complex32 as complex64.
template <class T>
__device__ auto widen(const T& v) {
  if constexpr (std::is_same_v<T, complexh>) {
    return complexf(__half2float(v.re), __half2float(v.im));
  } else if constexpr (std::is_same_v<T, half>) {
    return __half2float(v);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return __bfloat162float(v);
  } else if constexpr (is_float8_v<T>) {
    return v.value();
  } else {
    return read_element(v);
  }
}

// Converts as copy_ does.
template <class To, class From>
__device__ To convert(const From& from) {
  if constexpr (std::is_same_v<To, From>) {
    return read_element(from);
  } else {
    const auto v = widen(from);
    using V = std::remove_const_t<decltype(v)>;
    if constexpr (std::is_same_v<To, V>) {
      return v;
    } else if constexpr (std::is_same_v<To, complexh>) {
      const complexf z = convert<complexf>(v);
      return {__float2half_rn(z.real()), __float2half_rn(z.imag())};
    } else if constexpr (is_complex_v<To>) {
      using R = typename To::value_type;
      if constexpr (is_complex_v<V>) {
        return To(static_cast<R>(v.real()), static_cast<R>(v.imag()));
      } else {
        return To(static_cast<R>(v), R(0));
      }
    } else if constexpr (is_complex_v<V>) {
      if constexpr (std::is_same_v<To, bool>) {
        return v.real() != 0 || v.imag() != 0;
      } else {
        return convert<To>(v.real());
      }
    } else if constexpr (std::is_same_v<To, bool>) {
      return v != V(0);
    } else if constexpr (std::is_same_v<To, half>) {
      return __float2half_rn(static_cast<float>(v));
    } else if constexpr (std::is_same_v<To, bfloat16>) {
      return __float2bfloat16_rn(static_cast<float>(v));
    } else if constexpr (is_float8_v<To>) {
      return To::from(static_cast<float>(v));
    } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<V>) {
      // As on the CPU, what does not fit a narrow type wraps.
      return static_cast<To>(static_cast<std::conditional_t<(sizeof(To) < 4), int32_t, int64_t>>(v));
    } else {
      return static_cast<To>(v);
    }
  }
}

// The larger of two, and a NaN where one is: of floats a single instruction.
__device__ inline float larger_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
template <class T>
__device__ T larger_or_nan(T a, T b) {
  return a != a || a > b ? a : b;
}

// Whether an element is another than zero, by the bits of `mask`.
template <class T>
struct Truth {
  T mask, always = 0;  // `always` is 1 where no element is zero
  __device__ bool operator()(T bits) const { return ((bits & mask) | always) != 0; }
};
template <>
struct Truth<ulonglong2> {  // complex128
  __device__ bool operator()(ulonglong2 bits) const { return ((bits.x | bits.y) & 0x7fffffffffffffffull) != 0; }
};

// ---- visits

#define MICA_CUDA_INTEGRAL(X) \
  X(uint8_t, UInt8)           \
  X(int8_t, Int8)             \
  X(int16_t, Int16) X(int32_t, Int32) X(int64_t, Int64) X(uint16_t, UInt16) X(uint32_t, UInt32) X(uint64_t, UInt64)
#define MICA_CUDA_FLOATING(X) X(half, Float16) X(bfloat16, BFloat16) X(float, Float32) X(double, Float64)
#define MICA_CUDA_COMPLEX(X) X(complexf, Complex64) X(complexd, Complex128)
#define MICA_CUDA_STORAGE(X)          \
  X(float8_e5m2, Float8_e5m2)         \
  X(float8_e4m3fn, Float8_e4m3fn)     \
  X(float8_e5m2fnuz, Float8_e5m2fnuz) \
  X(float8_e4m3fnuz, Float8_e4m3fnuz) X(float8_e8m0fnu, Float8_e8m0fnu) X(complexh, Complex32)

#define MICA_CUDA_CASE(T, Name) \
  case DType::Name:             \
    return f(Tag<T>{});
#define MICA_CUDA_VISIT(name, ...)                     \
  template <class F>                                   \
  void name(const char* op, DType dtype, const F& f) { \
    switch (dtype) {                                   \
      __VA_ARGS__                                      \
      default:                                         \
        unsupported_dtype(op, dtype);                  \
    }                                                  \
  }
MICA_CUDA_VISIT(visit_floating, MICA_CUDA_FLOATING(MICA_CUDA_CASE))
MICA_CUDA_VISIT(visit_floating_complex, MICA_CUDA_FLOATING(MICA_CUDA_CASE) MICA_CUDA_COMPLEX(MICA_CUDA_CASE))
MICA_CUDA_VISIT(visit_integral_bool, MICA_CUDA_INTEGRAL(MICA_CUDA_CASE) MICA_CUDA_CASE(bool, Bool))
MICA_CUDA_VISIT(visit_real, MICA_CUDA_INTEGRAL(MICA_CUDA_CASE) MICA_CUDA_FLOATING(MICA_CUDA_CASE))
MICA_CUDA_VISIT(visit_real_bool,
                MICA_CUDA_INTEGRAL(MICA_CUDA_CASE) MICA_CUDA_FLOATING(MICA_CUDA_CASE) MICA_CUDA_CASE(bool, Bool))
MICA_CUDA_VISIT(visit_number,
                MICA_CUDA_INTEGRAL(MICA_CUDA_CASE) MICA_CUDA_FLOATING(MICA_CUDA_CASE) MICA_CUDA_COMPLEX(MICA_CUDA_CASE))
MICA_CUDA_VISIT(visit_number_bool, MICA_CUDA_INTEGRAL(MICA_CUDA_CASE) MICA_CUDA_FLOATING(MICA_CUDA_CASE)
                                       MICA_CUDA_COMPLEX(MICA_CUDA_CASE) MICA_CUDA_CASE(bool, Bool))
MICA_CUDA_VISIT(visit_any,
                MICA_CUDA_INTEGRAL(MICA_CUDA_CASE) MICA_CUDA_FLOATING(MICA_CUDA_CASE) MICA_CUDA_COMPLEX(MICA_CUDA_CASE)
                    MICA_CUDA_STORAGE(MICA_CUDA_CASE) MICA_CUDA_CASE(bool, Bool))

// Integers whose sign makes no difference, and bools: by their size.
template <class F>
void visit_width(const char* op, DType dtype, const F& f) {
  if (is_floating(dtype) || is_complex(dtype) || is_storage_only(dtype)) unsupported_dtype(op, dtype);
  switch (element_size(dtype)) {
    case 1:
      return f(Tag<uint8_t>{});
    case 2:
      return f(Tag<int16_t>{});
    case 4:
      return f(Tag<int32_t>{});
    default:
      return f(Tag<int64_t>{});
  }
}
// The same, and floating and complex numbers as they are.
template <class F>
void visit_wrapping_number(const char* op, DType dtype, const F& f) {
  if (is_floating(dtype) || is_complex(dtype)) return visit_floating_complex(op, dtype, f);
  visit_width(op, dtype, f);
}

// Elements of which only matters whether they are zero: f(Tag of their size, a mask of the bits of which one is set in
// every element but zero). The sign of a floating zero is not in the mask.
template <class F>
void visit_truth(DType dtype, const F& f) {
  if (is_storage_only(dtype)) unsupported_dtype("copy_", dtype);
  switch (dtype) {
    case DType::Float8_e8m0fnu:  // which has no zero
      return f(Tag<uint8_t>{}, Truth<uint8_t>{0, 1});
    case DType::Float8_e5m2:
    case DType::Float8_e4m3fn:
      return f(Tag<uint8_t>{}, Truth<uint8_t>{0x7f});
    case DType::Float16:
    case DType::BFloat16:
      return f(Tag<int16_t>{}, Truth<int16_t>{0x7fff});
    case DType::Float32:
      return f(Tag<int32_t>{}, Truth<int32_t>{0x7fffffff});
    case DType::Complex32:
      return f(Tag<int32_t>{}, Truth<int32_t>{0x7fff7fff});
    case DType::Float64:
      return f(Tag<int64_t>{}, Truth<int64_t>{0x7fffffffffffffff});
    case DType::Complex64:
      return f(Tag<int64_t>{}, Truth<int64_t>{0x7fffffff7fffffff});
    case DType::Complex128:
      return f(Tag<ulonglong2>{}, Truth<ulonglong2>{});
    default:
      break;
  }
  switch (element_size(dtype)) {
    case 1:
      return f(Tag<uint8_t>{}, Truth<uint8_t>{0xff});
    case 2:
      return f(Tag<int16_t>{}, Truth<int16_t>{-1});
    case 4:
      return f(Tag<int32_t>{}, Truth<int32_t>{-1});
    default:
      return f(Tag<int64_t>{}, Truth<int64_t>{-1});
  }
}

// Elements that are only moved: by their size.
template <class F>
void visit_size(int64_t size, const F& f) {
  visit_bytes<uint4>(size, f);
}
#undef MICA_CUDA_VISIT

// A number as the type an element is computed in.
template <class C>
C number(const Scalar& s) {
  if constexpr (is_complex_v<C>) {
    const auto z = s.cast<complex128>();
    using R = typename C::value_type;
    return C(static_cast<R>(z.real()), static_cast<R>(z.imag()));
  } else {
    return s.cast<C>();
  }
}

}  // namespace mica::cuda
