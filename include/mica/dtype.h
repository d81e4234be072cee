// The element types of a tensor: their names, sizes, categories and C++ representations.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace mica {

enum class DType : uint8_t {
  UInt8,
  Int8,
  Int16,
  Int32,
  Int64,
  Float16,
  Float32,
  Float64,
  Complex32,
  Complex64,
  Complex128,
  Bool,
  BFloat16,
  Float8_e5m2,
  Float8_e4m3fn,
  Float8_e5m2fnuz,
  Float8_e4m3fnuz,
  Float8_e8m0fnu,
  UInt16,
  UInt32,
  UInt64,
  // Elements that are stored, moved and viewed as other bytes, but not computed with (is_storage_only).
  Float4_e2m1fn_x2,
  UInt1,
  UInt2,
  UInt3,
  UInt4,
  UInt5,
  UInt6,
  UInt7,
  Int1,
  Int2,
  Int3,
  Int4,
  Int5,
  Int6,
  Int7,
  Bits1x8,
  Bits2x4,
  Bits4x2,
  Bits8,
  Bits16,
  QUInt4x2,
  QUInt2x4,
  Undefined,
  // torch's older names of the same types
  Byte = UInt8,
  Char = Int8,
  Short = Int16,
  Int = Int32,
  Long = Int64,
  Half = Float16,
  Float = Float32,
  Double = Float64,
  ComplexHalf = Complex32,
  ComplexFloat = Complex64,
  ComplexDouble = Complex128,
};
using ScalarType = DType;
using Dtype = DType;

// kFloat32, kInt64 and so on, and torch's older names for them: kFloat, kLong.
#define MICA_DTYPE_CONSTANT(Name) inline constexpr DType k##Name = DType::Name;
MICA_DTYPE_CONSTANT(UInt8)
MICA_DTYPE_CONSTANT(Int8)
MICA_DTYPE_CONSTANT(Int16)
MICA_DTYPE_CONSTANT(Int32)
MICA_DTYPE_CONSTANT(Int64)
MICA_DTYPE_CONSTANT(UInt16)
MICA_DTYPE_CONSTANT(UInt32)
MICA_DTYPE_CONSTANT(UInt64)
MICA_DTYPE_CONSTANT(Float16)
MICA_DTYPE_CONSTANT(Float32)
MICA_DTYPE_CONSTANT(Float64)
MICA_DTYPE_CONSTANT(BFloat16)
MICA_DTYPE_CONSTANT(Float8_e5m2)
MICA_DTYPE_CONSTANT(Float8_e4m3fn)
MICA_DTYPE_CONSTANT(Float8_e5m2fnuz)
MICA_DTYPE_CONSTANT(Float8_e4m3fnuz)
MICA_DTYPE_CONSTANT(Float8_e8m0fnu)
MICA_DTYPE_CONSTANT(Float4_e2m1fn_x2)
MICA_DTYPE_CONSTANT(UInt1)
MICA_DTYPE_CONSTANT(UInt2)
MICA_DTYPE_CONSTANT(UInt3)
MICA_DTYPE_CONSTANT(UInt4)
MICA_DTYPE_CONSTANT(UInt5)
MICA_DTYPE_CONSTANT(UInt6)
MICA_DTYPE_CONSTANT(UInt7)
MICA_DTYPE_CONSTANT(Int1)
MICA_DTYPE_CONSTANT(Int2)
MICA_DTYPE_CONSTANT(Int3)
MICA_DTYPE_CONSTANT(Int4)
MICA_DTYPE_CONSTANT(Int5)
MICA_DTYPE_CONSTANT(Int6)
MICA_DTYPE_CONSTANT(Int7)
MICA_DTYPE_CONSTANT(Bits1x8)
MICA_DTYPE_CONSTANT(Bits2x4)
MICA_DTYPE_CONSTANT(Bits4x2)
MICA_DTYPE_CONSTANT(Bits8)
MICA_DTYPE_CONSTANT(Bits16)
MICA_DTYPE_CONSTANT(QUInt4x2)
MICA_DTYPE_CONSTANT(QUInt2x4)
MICA_DTYPE_CONSTANT(Complex64)
MICA_DTYPE_CONSTANT(Complex128)
MICA_DTYPE_CONSTANT(Bool)
MICA_DTYPE_CONSTANT(Byte)
MICA_DTYPE_CONSTANT(Char)
MICA_DTYPE_CONSTANT(Short)
MICA_DTYPE_CONSTANT(Int)
MICA_DTYPE_CONSTANT(Long)
MICA_DTYPE_CONSTANT(Half)
MICA_DTYPE_CONSTANT(Float)
MICA_DTYPE_CONSTANT(Double)
MICA_DTYPE_CONSTANT(ComplexFloat)
MICA_DTYPE_CONSTANT(ComplexDouble)
#undef MICA_DTYPE_CONSTANT
inline constexpr int kNumDTypes = static_cast<int>(DType::Undefined);

// The order of type promotion: a higher category wins whatever its size. Opaque elements (bits, and integers of less
// than a byte) are not numbers to the engine.
enum class Category : uint8_t { Bool, Integral, Floating, Complex, Opaque };

// ---- element representations that C++ lacks -------------------------------------------------------------------

// Round-to-nearest-even conversions; exact for every input, subnormals and NaN included.
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);

struct Half {
  uint16_t bits = 0;
  Half() = default;
  Half(float value) : bits(float_to_half(value)) {}
  operator float() const { return half_to_float(bits); }
  static Half from_bits(uint16_t b) {
    Half h;
    h.bits = b;
    return h;
  }
};

struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  BFloat16(float value) {
    uint32_t u;
    std::memcpy(&u, &value, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = 0x7fc0;  // torch's canonical NaN
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
  }
  operator float() const {
    uint32_t u = static_cast<uint32_t>(bits) << 16;
    float f;
    std::memcpy(&f, &u, 4);
    return f;
  }
  static BFloat16 from_bits(uint16_t b) {
    BFloat16 h;
    h.bits = b;
    return h;
  }
};

// The five 8-bit floats are storage types: they convert through float and have no arithmetic of their own. e8m0fnu
// holds the powers of two from 2^-127 to 2^127 and one NaN: it is the scale of a block of smaller floats (MX formats).
float float8_e5m2_to_float(uint8_t bits);
uint8_t float_to_float8_e5m2(float value);
float float8_e4m3fn_to_float(uint8_t bits);
uint8_t float_to_float8_e4m3fn(float value);
float float8_e5m2fnuz_to_float(uint8_t bits);
uint8_t float_to_float8_e5m2fnuz(float value);
float float8_e4m3fnuz_to_float(uint8_t bits);
uint8_t float_to_float8_e4m3fnuz(float value);
float float8_e8m0fnu_to_float(uint8_t bits);
uint8_t float_to_float8_e8m0fnu(float value);

#define MICA_FLOAT8(Name, lower)                              \
  struct Name {                                               \
    uint8_t bits = 0;                                         \
    Name() = default;                                         \
    Name(float value) : bits(float_to_##lower(value)) {}      \
    operator float() const { return lower##_to_float(bits); } \
    static Name from_bits(uint8_t b) {                        \
      Name f;                                                 \
      f.bits = b;                                             \
      return f;                                               \
    }                                                         \
  };
MICA_FLOAT8(Float8_e5m2, float8_e5m2)
MICA_FLOAT8(Float8_e4m3fn, float8_e4m3fn)
MICA_FLOAT8(Float8_e5m2fnuz, float8_e5m2fnuz)
MICA_FLOAT8(Float8_e4m3fnuz, float8_e4m3fnuz)
MICA_FLOAT8(Float8_e8m0fnu, float8_e8m0fnu)
#undef MICA_FLOAT8

// The number of a 4-bit float: a sign, two bits of exponent, one of mantissa. `code` is below 16.
float float4_e2m1fn_to_float(uint8_t code);
uint8_t float_to_float4_e2m1fn(float value);  // to the nearest, ties to even; beyond 6 it is 6, and NaN is 6 too

// Two 4-bit floats in a byte, the first in its lower half. A tensor of them has a size for each byte.
struct Float4_e2m1fn_x2 {
  uint8_t bits = 0;
  static Float4_e2m1fn_x2 pack(float first, float second) {
    Float4_e2m1fn_x2 f;
    f.bits = static_cast<uint8_t>(float_to_float4_e2m1fn(first) | float_to_float4_e2m1fn(second) << 4);
    return f;
  }
  float first() const { return float4_e2m1fn_to_float(bits & 15); }
  float second() const { return float4_e2m1fn_to_float(bits >> 4); }
};

// complex32: storage only, computed on as complex64.
struct ComplexHalf {
  Half re, im;
  ComplexHalf() = default;
  ComplexHalf(std::complex<float> z) : re(z.real()), im(z.imag()) {}
  operator std::complex<float>() const { return {float(re), float(im)}; }
};

using complex64 = std::complex<float>;
using complex128 = std::complex<double>;

// Every dtype that is computed with or converted, with its C++ type: MICA_FORALL_DTYPES(X) expands X(CppType,
// EnumName).
#define MICA_FORALL_INTEGRAL(X) X(uint8_t, UInt8) X(int8_t, Int8) X(int16_t, Int16) X(int32_t, Int32) X(int64_t, Int64)
#define MICA_FORALL_UNSIGNED(X) X(uint16_t, UInt16) X(uint32_t, UInt32) X(uint64_t, UInt64)
#define MICA_FORALL_FLOATING(X) \
  X(::mica::Half, Float16) X(float, Float32) X(double, Float64) X(::mica::BFloat16, BFloat16)
#define MICA_FORALL_FLOAT8(X)                 \
  X(::mica::Float8_e5m2, Float8_e5m2)         \
  X(::mica::Float8_e4m3fn, Float8_e4m3fn)     \
  X(::mica::Float8_e5m2fnuz, Float8_e5m2fnuz) \
  X(::mica::Float8_e4m3fnuz, Float8_e4m3fnuz) X(::mica::Float8_e8m0fnu, Float8_e8m0fnu)
#define MICA_FORALL_COMPLEX(X) X(::mica::complex64, Complex64) X(::mica::complex128, Complex128)
#define MICA_FORALL_DTYPES(X) \
  MICA_FORALL_INTEGRAL(X)     \
  MICA_FORALL_UNSIGNED(X)     \
  MICA_FORALL_FLOATING(X) MICA_FORALL_FLOAT8(X) MICA_FORALL_COMPLEX(X) X(::mica::ComplexHalf, Complex32) X(bool, Bool)

// ---- facts about a dtype --------------------------------------------------------------------------------------

struct DTypeInfo {
  const char* name;    // torch's name: "float32"
  const char* legacy;  // the name in torch's messages and legacy tensor types: "Float"
  uint8_t size;        // bytes per element
  Category category;
  bool is_signed;
};
extern const DTypeInfo kDTypeInfo[kNumDTypes + 1];

inline const DTypeInfo& info(DType t) { return kDTypeInfo[static_cast<int>(t)]; }
inline int64_t element_size(DType t) { return info(t).size; }
inline const char* name(DType t) { return info(t).name; }
inline Category category(DType t) { return info(t).category; }
inline bool is_floating(DType t) { return category(t) == Category::Floating; }
inline bool is_complex(DType t) { return category(t) == Category::Complex; }
inline bool is_integral(DType t) { return category(t) == Category::Integral; }  // false for bool
inline bool is_float8(DType t) { return t >= DType::Float8_e5m2 && t <= DType::Float8_e8m0fnu; }
inline bool is_unsigned_wide(DType t) { return t >= DType::UInt16 && t <= DType::UInt64; }
inline bool is_storage_only(DType t) { return t >= DType::Float4_e2m1fn_x2 && t < DType::Undefined; }
inline bool is_bits(DType t) { return t >= DType::Bits1x8 && t <= DType::Bits16; }
// Quantized integers of 4 and of 2 bits, several in a byte. The other quantized tensors have the dtype of their
// integers.
inline bool is_packed_quantized(DType t) { return t == DType::QUInt4x2 || t == DType::QUInt2x4; }

// torch's promote_types. Throws for pairs that torch refuses (float8 with others, wide unsigned with signed...).
DType promote_types(DType a, DType b);
bool can_cast(DType from, DType to);
DType to_complex(DType floating);  // float32 -> complex64
DType to_real(DType complex);      // complex64 -> float32, others unchanged

DType default_dtype();
void set_default_dtype(DType floating);
inline DType default_complex_dtype() { return to_complex(default_dtype()); }

template <class T>
struct dtype_of;
#define MICA_DTYPE_OF(T, Name)                  \
  template <>                                   \
  struct dtype_of<T> {                          \
    static constexpr DType value = DType::Name; \
  };
MICA_FORALL_DTYPES(MICA_DTYPE_OF)
#undef MICA_DTYPE_OF
template <class T>
inline constexpr DType dtype_v = dtype_of<T>::value;

}  // namespace mica
