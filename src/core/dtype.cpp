#include "mica/dtype.h"

#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "mica/error.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace mica {

// ---- facts ----------------------------------------------------------------------------------------------------

// In the order of the enumeration.
constexpr DTypeInfo kDTypeInfo[kNumDTypes + 1] = {
    {"uint8", "Byte", 1, Category::Integral, false},
    {"int8", "Char", 1, Category::Integral, true},
    {"int16", "Short", 2, Category::Integral, true},
    {"int32", "Int", 4, Category::Integral, true},
    {"int64", "Long", 8, Category::Integral, true},
    {"float16", "Half", 2, Category::Floating, true},
    {"float32", "Float", 4, Category::Floating, true},
    {"float64", "Double", 8, Category::Floating, true},
    {"complex32", "ComplexHalf", 4, Category::Complex, true},
    {"complex64", "ComplexFloat", 8, Category::Complex, true},
    {"complex128", "ComplexDouble", 16, Category::Complex, true},
    {"bool", "Bool", 1, Category::Bool, false},
    {"bfloat16", "BFloat16", 2, Category::Floating, true},
    {"float8_e5m2", "Float8_e5m2", 1, Category::Floating, true},
    {"float8_e4m3fn", "Float8_e4m3fn", 1, Category::Floating, true},
    {"float8_e5m2fnuz", "Float8_e5m2fnuz", 1, Category::Floating, true},
    {"float8_e4m3fnuz", "Float8_e4m3fnuz", 1, Category::Floating, true},
    {"float8_e8m0fnu", "Float8_e8m0fnu", 1, Category::Floating, false},
    {"uint16", "UInt16", 2, Category::Integral, false},
    {"uint32", "UInt32", 4, Category::Integral, false},
    {"uint64", "UInt64", 8, Category::Integral, false},
    {"float4_e2m1fn_x2", "Float4_e2m1fn_x2", 1, Category::Floating, true},
    {"uint1", "UInt1", 1, Category::Opaque, false},
    {"uint2", "UInt2", 1, Category::Opaque, false},
    {"uint3", "UInt3", 1, Category::Opaque, false},
    {"uint4", "UInt4", 1, Category::Opaque, false},
    {"uint5", "UInt5", 1, Category::Opaque, false},
    {"uint6", "UInt6", 1, Category::Opaque, false},
    {"uint7", "UInt7", 1, Category::Opaque, false},
    {"int1", "Int1", 1, Category::Opaque, true},
    {"int2", "Int2", 1, Category::Opaque, true},
    {"int3", "Int3", 1, Category::Opaque, true},
    {"int4", "Int4", 1, Category::Opaque, true},
    {"int5", "Int5", 1, Category::Opaque, true},
    {"int6", "Int6", 1, Category::Opaque, true},
    {"int7", "Int7", 1, Category::Opaque, true},
    {"bits1x8", "Bits1x8", 1, Category::Opaque, false},
    {"bits2x4", "Bits2x4", 1, Category::Opaque, false},
    {"bits4x2", "Bits4x2", 1, Category::Opaque, false},
    {"bits8", "Bits8", 1, Category::Opaque, false},
    {"bits16", "Bits16", 2, Category::Opaque, false},
    {"quint4x2", "QUInt4x2", 1, Category::Opaque, false},
    {"quint2x4", "QUInt2x4", 1, Category::Opaque, false},
    {"undefined", "Undefined", 0, Category::Bool, false},
};

namespace {

constexpr const DTypeInfo& facts(DType t) { return kDTypeInfo[static_cast<int>(t)]; }

// Undefined stands for "no such dtype" in the two functions below.
constexpr DType complex_of(DType t) {
  switch (t) {
    case DType::Float16:
    case DType::Complex32:
      return DType::Complex32;
    case DType::BFloat16:
    case DType::Float32:
    case DType::Complex64:
      return DType::Complex64;
    case DType::Float64:
    case DType::Complex128:
      return DType::Complex128;
    default:
      return DType::Undefined;
  }
}

constexpr DType real_of(DType t) {
  switch (t) {
    case DType::Complex32:
      return DType::Float16;
    case DType::Complex64:
      return DType::Float32;
    case DType::Complex128:
      return DType::Float64;
    default:
      return t;
  }
}

// ---- promotion ------------------------------------------------------------------------------------------------

constexpr bool is_small_float(DType t) { return facts(t).category == Category::Floating && facts(t).size == 1; }
// The unsigned integers that meet floats only: those wider than a byte, and those narrower.
constexpr bool is_bare_unsigned(DType t) {
  return (t >= DType::UInt16 && t <= DType::UInt64) || (t >= DType::UInt1 && t <= DType::UInt7);
}

// Undefined for the pairs that have no promotion.
constexpr DType promote_by_rule(DType a, DType b) {
  if (a == b) return a;
  if (is_small_float(a) || is_small_float(b)) return DType::Undefined;
  if (is_bare_unsigned(b)) std::swap(a, b);
  if (is_bare_unsigned(a)) return facts(b).category == Category::Floating ? b : DType::Undefined;
  if (facts(a).category == Category::Opaque || facts(b).category == Category::Opaque) return DType::Undefined;
  if (facts(a).category > facts(b).category) std::swap(a, b);

  if (facts(a).category == Category::Floating && facts(b).category == Category::Complex) {
    return complex_of(promote_by_rule(a, real_of(b)));
  }
  if (facts(a).category != facts(b).category) return b;
  if (facts(a).size != facts(b).size) return facts(a).size > facts(b).size ? a : b;
  // Two dtypes of one category and one size: neither holds the other, so the next wider one does.
  return facts(a).category == Category::Floating ? DType::Float32 : DType::Int16;
}

using PromotionTable = std::array<std::array<DType, kNumDTypes>, kNumDTypes>;
constexpr PromotionTable kPromotion = [] {
  PromotionTable table{};
  for (int a = 0; a < kNumDTypes; ++a) {
    for (int b = 0; b < kNumDTypes; ++b) table[a][b] = promote_by_rule(static_cast<DType>(a), static_cast<DType>(b));
  }
  return table;
}();

[[noreturn, gnu::cold]] void fail_promotion(DType a, DType b) {
  const auto either = [&](auto holds) { return holds(a) || holds(b); };
  const bool known = either(is_float8) || either(is_bare_unsigned);
  if (!known || either(is_bits))
    fail(cat("Promotion from ", info(a).legacy, " and ", info(b).legacy, " is unsupported."));
  const char* family = either(is_float8) ? "Float8 Types" : "uint16, uint32, uint64 types";
  fail(cat("Promotion for ", family, " is not supported, attempted to promote ", info(a).legacy, " and ",
           info(b).legacy, ". Convert one of the two first: .to(", b, ") or .to(", a, ")."));
}

std::atomic<DType> g_default_dtype{DType::Float32};

}  // namespace

DType promote_types(DType a, DType b) {
  if (a == DType::Undefined || b == DType::Undefined) return DType::Undefined;
  const DType promoted = kPromotion[static_cast<int>(a)][static_cast<int>(b)];
  if (promoted == DType::Undefined) [[unlikely]]
    fail_promotion(a, b);
  return promoted;
}

bool can_cast(DType from, DType to) {
  if (category(from) != Category::Opaque && category(to) != Category::Opaque) return category(from) <= category(to);
  return !is_complex(from) && to != DType::Bool;
}

DType to_complex(DType floating) {
  const DType t = complex_of(floating);
  MICA_CHECK(t != DType::Undefined, "Unknown Complex ScalarType for ", info(floating).legacy,
             ": only float16, bfloat16, float32 and float64 have a complex dtype.");
  return t;
}

DType to_real(DType complex) { return real_of(complex); }

DType default_dtype() { return g_default_dtype.load(std::memory_order_relaxed); }

void set_default_dtype(DType floating) {
  MICA_CHECK_KIND(is_floating(floating), Type, "only floating-point types are supported as the default type, got ",
                  floating);
  MICA_CHECK_KIND(
      !is_small_float(floating), Type, "couldn't find storage object ", info(floating).legacy,
      "Storage: floats of a byte and less store values but have no arithmetic, so none can be the default dtype.");
  g_default_dtype.store(floating, std::memory_order_relaxed);
}

// ---- small floating-point formats -----------------------------------------------------------------------------

namespace {

// A format of one sign bit, exponent bits and mantissa bits, narrower than float.
struct Format {
  int mantissa_bits;
  int bias;
  uint32_t sign_bit;
  uint32_t largest_finite;
  uint32_t overflow;  // what a magnitude that rounds beyond the largest finite value becomes
  bool signed_zero;   // false in the fnuz formats, where the code of -0 is the only NaN
};

constexpr Format kHalfFormat{10, 15, 0x8000, 0x7bff, 0x7c00, true};
constexpr Format kE5M2{2, 15, 0x80, 0x7b, 0x7c, true};
constexpr Format kE4M3FN{3, 7, 0x80, 0x7e, 0x7e, true};  // no infinity: torch saturates
constexpr Format kE5M2FNUZ{2, 16, 0x80, 0x7f, 0x80, false};
constexpr Format kE4M3FNUZ{3, 8, 0x80, 0x7f, 0x80, false};

// The code of a non-NaN float, rounded to nearest even.
template <Format format>
constexpr uint32_t encode(uint32_t float_bits) {
  constexpr int shift = 23 - format.mantissa_bits;
  constexpr uint32_t smallest_normal = static_cast<uint32_t>(127 + 1 - format.bias) << 23;
  // Adding the power of two whose unit in the last place is the format's smallest subnormal makes the FPU round to it.
  constexpr uint32_t magic = smallest_normal + (static_cast<uint32_t>(shift) << 23);

  const uint32_t magnitude = float_bits & 0x7fffffffu;
  uint32_t code;
  if (magnitude < smallest_normal) {
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(magic)) - magic;
  } else {
    const uint32_t rebased = magnitude - (static_cast<uint32_t>(127 - format.bias) << 23);
    code = (rebased + (1u << (shift - 1)) - 1 + ((rebased >> shift) & 1u)) >> shift;
    if (code > format.largest_finite) code = format.overflow;
  }
  const bool negative = float_bits >> 31;
  if constexpr (format.signed_zero) return code | (negative ? format.sign_bit : 0u);
  return code | (negative && code != 0 ? format.sign_bit : 0u);
}

// The value of a finite code.
template <Format format>
constexpr float decode(uint32_t code) {
  constexpr float smallest_subnormal =
      std::bit_cast<float>(static_cast<uint32_t>(127 + 1 - format.bias - format.mantissa_bits) << 23);
  const uint32_t magnitude = code & (format.sign_bit - 1);
  float value;
  if (magnitude >> format.mantissa_bits == 0) {
    value = static_cast<float>(magnitude) * smallest_subnormal;
  } else {
    value = std::bit_cast<float>((magnitude << (23 - format.mantissa_bits)) +
                                 (static_cast<uint32_t>(127 - format.bias) << 23));
  }
  return code & format.sign_bit ? -value : value;
}

constexpr bool is_nan_bits(uint32_t float_bits) { return (float_bits & 0x7fffffffu) > 0x7f800000u; }

// Quiets a NaN and keeps its payload, as the hardware conversions do.
constexpr float widen_half(uint16_t bits) {
  if ((bits & 0x7c00u) != 0x7c00u) return decode<kHalfFormat>(bits);
  const uint32_t mantissa = bits & 0x3ffu;
  return std::bit_cast<float>((bits & 0x8000u) << 16 | 0x7f800000u | (mantissa ? 0x400000u | mantissa << 13 : 0u));
}

using Float8Table = std::array<float, 256>;

template <Format format>
constexpr Float8Table decode_table(uint32_t nan_code) {
  Float8Table table{};
  for (uint32_t code = 0; code < 256; ++code) {
    if (format.signed_zero ? (code & 0x7fu) == nan_code : code == nan_code) {
      table[code] = code & 0x80u && format.signed_zero ? -std::numeric_limits<float>::quiet_NaN()
                                                       : std::numeric_limits<float>::quiet_NaN();
    } else {
      table[code] = decode<format>(code);
    }
  }
  return table;
}

constexpr Float8Table kE5M2Values = [] {
  Float8Table table{};
  for (uint32_t code = 0; code < 256; ++code) table[code] = widen_half(static_cast<uint16_t>(code << 8));
  return table;
}();
constexpr Float8Table kE4M3FNValues = decode_table<kE4M3FN>(0x7f);
constexpr Float8Table kE5M2FNUZValues = decode_table<kE5M2FNUZ>(0x80);
constexpr Float8Table kE4M3FNUZValues = decode_table<kE4M3FNUZ>(0x80);

// Any NaN becomes 0x7f with its sign, or the one NaN of a format without signed zero.
template <Format format>
uint8_t narrow(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (is_nan_bits(bits)) [[unlikely]]
    return static_cast<uint8_t>(format.signed_zero ? 0x7fu | (bits >> 24 & 0x80u) : 0x80u);
  return static_cast<uint8_t>(encode<format>(bits));
}

}  // namespace

#if defined(__F16C__)
float half_to_float(uint16_t bits) { return _cvtsh_ss(bits); }
uint16_t float_to_half(float value) { return _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT); }
#elif defined(__ARM_FP16_FORMAT_IEEE)
float half_to_float(uint16_t bits) { return static_cast<float>(std::bit_cast<__fp16>(bits)); }
uint16_t float_to_half(float value) { return std::bit_cast<uint16_t>(static_cast<__fp16>(value)); }
#else
float half_to_float(uint16_t bits) { return widen_half(bits); }
uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (is_nan_bits(bits)) [[unlikely]]
    return static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu));
  return static_cast<uint16_t>(encode<kHalfFormat>(bits));
}
#endif

float float8_e5m2_to_float(uint8_t bits) { return kE5M2Values[bits]; }
float float8_e4m3fn_to_float(uint8_t bits) { return kE4M3FNValues[bits]; }
float float8_e5m2fnuz_to_float(uint8_t bits) { return kE5M2FNUZValues[bits]; }
float float8_e4m3fnuz_to_float(uint8_t bits) { return kE4M3FNUZValues[bits]; }

// 2^-127 is subnormal as a float, and NaN is the signalling one that torch has.
float float8_e8m0fnu_to_float(uint8_t bits) {
  return std::bit_cast<float>(bits == 0 ? 0x00400000u : bits == 255 ? 0x7f800001u : static_cast<uint32_t>(bits) << 23);
}

// The nearest power of two by the magnitude alone; halfway between two it is the greater one, except below 2^-126.
// Infinity is NaN, and zero is 2^-127, the smallest there is.
uint8_t float_to_float8_e8m0fnu(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t exponent = bits >> 23 & 0xffu, half = 0x400000u, fraction = bits & 0x7fffffu;
  if (exponent == 255) return 255;
  const bool up = exponent > 0 ? fraction >= half : fraction > half;
  return static_cast<uint8_t>(exponent + up);
}

constexpr float kFloat4Values[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

float float4_e2m1fn_to_float(uint8_t code) {
  const float magnitude = kFloat4Values[code & 7];
  return code & 8 ? -magnitude : magnitude;
}

uint8_t float_to_float4_e2m1fn(float value) {
  const float magnitude = std::fabs(value);
  uint8_t code = 7;
  if (magnitude <= 5.0f) {  // 5 lies halfway between 4, whose code is even, and 6
    code = 0;
    while (code < 6) {
      const float middle = (kFloat4Values[code] + kFloat4Values[code + 1]) / 2;
      if (magnitude < middle || (magnitude == middle && code % 2 == 0)) break;
      ++code;
    }
  }
  return static_cast<uint8_t>(code | (std::signbit(value) ? 8 : 0));
}

uint8_t float_to_float8_e5m2(float value) { return narrow<kE5M2>(value); }
uint8_t float_to_float8_e4m3fn(float value) { return narrow<kE4M3FN>(value); }
uint8_t float_to_float8_e5m2fnuz(float value) { return narrow<kE5M2FNUZ>(value); }
uint8_t float_to_float8_e4m3fnuz(float value) { return narrow<kE4M3FNUZ>(value); }

}  // namespace mica
