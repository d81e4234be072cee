#include "mica/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mica/error.h"

namespace mica {
namespace {

std::vector<DType> all_dtypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i < kNumDTypes; ++i) dtypes.push_back(static_cast<DType>(i));
  return dtypes;
}

std::string promotion(DType a, DType b) {
  try {
    return name(promote_types(a, b));
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Runtime);
    return e.what();
  }
}

// ---- facts ----------------------------------------------------------------------------------------------------

TEST(DType, SizesAreThoseOfTheElementTypes) {
#define MICA_EXPECT_SIZE(T, Name) EXPECT_EQ(element_size(DType::Name), static_cast<int64_t>(sizeof(T))) << #Name;
  MICA_FORALL_DTYPES(MICA_EXPECT_SIZE)
#undef MICA_EXPECT_SIZE
}

TEST(DType, NamesAndCategories) {
  EXPECT_STREQ(name(DType::Float32), "float32");
  EXPECT_STREQ(info(DType::Int64).legacy, "Long");
  EXPECT_STREQ(info(DType::Complex128).legacy, "ComplexDouble");
  EXPECT_TRUE(is_floating(DType::Float8_e4m3fnuz));
  EXPECT_TRUE(is_integral(DType::UInt64));
  EXPECT_FALSE(is_integral(DType::Bool));
  EXPECT_FALSE(info(DType::UInt8).is_signed);
  EXPECT_TRUE(info(DType::Complex64).is_signed);
}

// ---- promotion ------------------------------------------------------------------------------------------------

TEST(DType, PromotionOfTheOldDtypesIsTorchsTable) {
  const DType u1 = DType::UInt8, i1 = DType::Int8, i2 = DType::Int16, i4 = DType::Int32, i8 = DType::Int64;
  const DType f2 = DType::Float16, f4 = DType::Float32, f8 = DType::Float64, bf = DType::BFloat16, b1 = DType::Bool;
  const DType c2 = DType::Complex32, c4 = DType::Complex64, c8 = DType::Complex128;
  const std::vector<DType> axis = {u1, i1, i2, i4, i8, f2, f4, f8, c2, c4, c8, b1, bf};
  const std::vector<std::vector<DType>> expected = {
      {u1, i2, i2, i4, i8, f2, f4, f8, c2, c4, c8, u1, bf}, {i2, i1, i2, i4, i8, f2, f4, f8, c2, c4, c8, i1, bf},
      {i2, i2, i2, i4, i8, f2, f4, f8, c2, c4, c8, i2, bf}, {i4, i4, i4, i4, i8, f2, f4, f8, c2, c4, c8, i4, bf},
      {i8, i8, i8, i8, i8, f2, f4, f8, c2, c4, c8, i8, bf}, {f2, f2, f2, f2, f2, f2, f4, f8, c2, c4, c8, f2, f4},
      {f4, f4, f4, f4, f4, f4, f4, f8, c4, c4, c8, f4, f4}, {f8, f8, f8, f8, f8, f8, f8, f8, c8, c8, c8, f8, f8},
      {c2, c2, c2, c2, c2, c2, c4, c8, c2, c4, c8, c2, c4}, {c4, c4, c4, c4, c4, c4, c4, c8, c4, c4, c8, c4, c4},
      {c8, c8, c8, c8, c8, c8, c8, c8, c8, c8, c8, c8, c8}, {u1, i1, i2, i4, i8, f2, f4, f8, c2, c4, c8, b1, bf},
      {bf, bf, bf, bf, bf, f4, f4, f8, c4, c4, c8, bf, bf},
  };
  for (size_t a = 0; a < axis.size(); ++a) {
    for (size_t b = 0; b < axis.size(); ++b) {
      EXPECT_EQ(promote_types(axis[a], axis[b]), expected[a][b]) << name(axis[a]) << " " << name(axis[b]);
    }
  }
}

static std::string bits_are_refused(DType a, DType b) {
  return cat("Promotion from ", info(a).legacy, " and ", info(b).legacy, " is unsupported.");
}

TEST(DType, Float8PromotesOnlyToItself) {
  for (DType a : all_dtypes()) {
    for (DType b : all_dtypes()) {
      if (!is_float8(a) && !is_float8(b)) continue;
      std::string expected = cat("Promotion for Float8 Types is not supported, attempted to promote ", info(a).legacy,
                                 " and ", info(b).legacy);
      if (is_bits(a) || is_bits(b)) expected = bits_are_refused(a, b);
      if (a == b) expected = name(a);
      EXPECT_EQ(promotion(a, b).substr(0, expected.size()), expected);
    }
  }
}

TEST(DType, WideUnsignedPromotesOnlyToFloats) {
  for (DType a : {DType::UInt16, DType::UInt32, DType::UInt64}) {
    for (DType b : all_dtypes()) {
      if (is_float8(b)) continue;
      std::string expected = cat("Promotion for uint16, uint32, uint64 types is not supported, attempted to promote ",
                                 info(a).legacy, " and ", info(b).legacy);
      if (is_bits(b)) expected = bits_are_refused(a, b);
      // Pairs of 4-bit floats promote with nothing but themselves here.
      if (a == b || (is_floating(b) && b != DType::Float4_e2m1fn_x2)) expected = name(b);
      EXPECT_EQ(promotion(a, b).substr(0, expected.size()), expected);
    }
  }
}

TEST(DType, CastsGoUpTheCategories) {
  EXPECT_TRUE(can_cast(DType::Int64, DType::UInt8));
  EXPECT_TRUE(can_cast(DType::Float64, DType::Float8_e5m2));
  EXPECT_TRUE(can_cast(DType::Bool, DType::UInt64));
  EXPECT_TRUE(can_cast(DType::Float32, DType::Complex32));
  EXPECT_FALSE(can_cast(DType::UInt8, DType::Bool));
  EXPECT_FALSE(can_cast(DType::Float16, DType::Int64));
  EXPECT_FALSE(can_cast(DType::Complex32, DType::Float64));
}

TEST(DType, ComplexAndReal) {
  EXPECT_EQ(to_complex(DType::Float16), DType::Complex32);
  EXPECT_EQ(to_complex(DType::BFloat16), DType::Complex64);
  EXPECT_EQ(to_complex(DType::Complex128), DType::Complex128);
  EXPECT_EQ(to_real(DType::Complex32), DType::Float16);
  EXPECT_EQ(to_real(DType::Int8), DType::Int8);
  EXPECT_THROW(to_complex(DType::Int32), Error);
}

TEST(DType, TheDefaultIsAFloat) {
  EXPECT_EQ(default_dtype(), DType::Float32);
  set_default_dtype(DType::Float64);
  EXPECT_EQ(default_complex_dtype(), DType::Complex128);
  set_default_dtype(DType::Float32);
  for (DType refused : {DType::Int32, DType::Complex64, DType::Bool, DType::Float8_e5m2}) {
    try {
      set_default_dtype(refused);
      ADD_FAILURE() << name(refused);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Type);
    }
  }
  EXPECT_EQ(default_dtype(), DType::Float32);
}

// ---- conversions ----------------------------------------------------------------------------------------------

float next_float(float f, int steps) { return std::bit_cast<float>(std::bit_cast<uint32_t>(f) + steps); }

// Values by definition: sign, exponent and mantissa read off the bits.
double defined_value(uint32_t code, int exponent_bits, int mantissa_bits, int bias) {
  const int width = exponent_bits + mantissa_bits;
  const double sign = code >> width & 1 ? -1 : 1;
  const int exponent = static_cast<int>(code >> mantissa_bits & ((1u << exponent_bits) - 1));
  const double mantissa = code & ((1u << mantissa_bits) - 1);
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Codes 0..largest hold ascending finite values: each decodes to its definition, and every float up to the midpoint
// between two neighbours rounds to the nearer, the midpoint itself to the even code.
template <class T>
void check_finite_codes(uint32_t largest, int exponent_bits, int mantissa_bits, int bias) {
  const uint32_t sign = 1u << (exponent_bits + mantissa_bits);
  for (uint32_t code = 0; code <= largest; ++code) {
    const float value = T::from_bits(static_cast<decltype(T::bits)>(code));
    ASSERT_EQ(static_cast<double>(value), defined_value(code, exponent_bits, mantissa_bits, bias)) << code;
    ASSERT_EQ(T(value).bits, code);
    if (code > 0) {
      ASSERT_EQ(static_cast<float>(T::from_bits(static_cast<decltype(T::bits)>(code | sign))), -value);
      ASSERT_EQ(T(-value).bits, code | sign);
    }
    if (code == largest) break;
    const float above = T::from_bits(static_cast<decltype(T::bits)>(code + 1));
    const float middle = static_cast<float>((static_cast<double>(value) + above) / 2);
    ASSERT_EQ(T(next_float(middle, -1)).bits, code);
    ASSERT_EQ(T(middle).bits, code % 2 == 0 ? code : code + 1);
    ASSERT_EQ(T(next_float(middle, 1)).bits, code + 1);
    ASSERT_EQ(T(next_float(above, -1)).bits, code + 1);
    ASSERT_EQ(T(-next_float(middle, 1)).bits, (code + 1) | sign);
  }
}

TEST(Conversion, FiniteCodesRoundTripAndRoundToNearestEven) {
  check_finite_codes<Half>(0x7bff, 5, 10, 15);
  check_finite_codes<BFloat16>(0x7f7f, 8, 7, 127);
  check_finite_codes<Float8_e5m2>(0x7b, 5, 2, 15);
  check_finite_codes<Float8_e4m3fn>(0x7e, 4, 3, 7);
  check_finite_codes<Float8_e5m2fnuz>(0x7f, 5, 2, 16);
  check_finite_codes<Float8_e4m3fnuz>(0x7f, 4, 3, 8);
}

TEST(Conversion, WhatLiesBeyondTheLargestValue) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Half(65519.996f).bits, 0x7bff);
  EXPECT_EQ(Half(65520.f).bits, 0x7c00);
  EXPECT_EQ(Half(-inf).bits, 0xfc00);
  EXPECT_EQ(static_cast<float>(Half::from_bits(0xfc00)), -inf);
  EXPECT_EQ(BFloat16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(Float8_e5m2(61439.f).bits, 0x7b);
  EXPECT_EQ(Float8_e5m2(61440.f).bits, 0x7c);
  EXPECT_EQ(static_cast<float>(Float8_e5m2::from_bits(0xfc)), -inf);
  EXPECT_EQ(Float8_e4m3fn(1000.f).bits, 0x7e);
  EXPECT_EQ(Float8_e4m3fn(-inf).bits, 0xfe);
  EXPECT_EQ(Float8_e5m2fnuz(61439.f).bits, 0x7f);
  EXPECT_EQ(Float8_e5m2fnuz(-61440.f).bits, 0x80);
  EXPECT_EQ(Float8_e4m3fnuz(247.9f).bits, 0x7f);
  EXPECT_EQ(Float8_e4m3fnuz(-248.f).bits, 0x80);
}

TEST(Conversion, SignsOfZero) {
  EXPECT_EQ(Half(-0.f).bits, 0x8000);
  EXPECT_EQ(Float8_e5m2(-1e-30f).bits, 0x80);
  EXPECT_EQ(Float8_e4m3fn(-0.f).bits, 0x80);
  EXPECT_EQ(Float8_e5m2fnuz(-0.f).bits, 0);
  EXPECT_EQ(Float8_e4m3fnuz(-1e-30f).bits, 0);
}

TEST(Conversion, NaNsStayNaNs) {
  for (uint32_t bits : {0x7f800001u, 0xff800001u, 0x7fc00000u, 0xffffffffu}) {
    const float nan = std::bit_cast<float>(bits);
    EXPECT_TRUE(std::isnan(static_cast<float>(Half(nan))));
    EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(nan))));
    EXPECT_EQ(Float8_e5m2(nan).bits, 0x7f | (bits >> 24 & 0x80));
    EXPECT_EQ(Float8_e4m3fn(nan).bits, 0x7f | (bits >> 24 & 0x80));
    EXPECT_EQ(Float8_e5m2fnuz(nan).bits, 0x80);
    EXPECT_EQ(Float8_e4m3fnuz(nan).bits, 0x80);
  }
  for (uint32_t code = 0x7c01; code <= 0x7fff; ++code) {
    ASSERT_TRUE(std::isnan(static_cast<float>(Half::from_bits(static_cast<uint16_t>(code)))));
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8_e5m2::from_bits(0x7d))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8_e4m3fn::from_bits(0xff))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8_e5m2fnuz::from_bits(0x80))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8_e4m3fnuz::from_bits(0x80))));
}

// ---- messages -------------------------------------------------------------------------------------------------

TEST(ErrorText, DoublesReadAsInPython) {
  EXPECT_EQ(cat(0.0, " ", -0.0, " ", 1.0, " ", -1.5, " ", 0.1, " ", 100.0), "0.0 -0.0 1.0 -1.5 0.1 100.0");
  EXPECT_EQ(cat(1e15, " ", 1e16, " ", 1234567890123456.7), "1000000000000000.0 1e+16 1234567890123456.8");
  EXPECT_EQ(cat(1e-4, " ", 1e-5, " ", 1.5e-7, " ", 5e-324), "0.0001 1e-05 1.5e-07 5e-324");
  EXPECT_EQ(cat(INFINITY, " ", -INFINITY, " ", NAN), "inf -inf nan");
}

TEST(ErrorText, MixesItsParts) {
  EXPECT_EQ(cat("dtype ", DType::BFloat16, " of ", 3, " at ", uint64_t{7}, ' ', true), "dtype bfloat16 of 3 at 7 True");
}

// ---- scales of blocks, and 4-bit floats -----------------------------------------------------------------------

TEST(DType, ScalesOfBlocksArePowersOfTwo) {
  for (int code = 0; code < 255; ++code) {
    const float value = Float8_e8m0fnu::from_bits(static_cast<uint8_t>(code));
    EXPECT_EQ(value, std::ldexp(1.0f, code - 127)) << code;
    EXPECT_EQ(Float8_e8m0fnu(value).bits, code);
    EXPECT_EQ(Float8_e8m0fnu(-value).bits, code);  // the sign is dropped
  }
  EXPECT_TRUE(std::isnan(static_cast<float>(Float8_e8m0fnu::from_bits(255))));
  EXPECT_EQ(Float8_e8m0fnu(std::numeric_limits<float>::infinity()).bits, 255);
  EXPECT_EQ(Float8_e8m0fnu(0.0f).bits, 0);
  EXPECT_EQ(Float8_e8m0fnu(std::nextafter(1.5f, 0.0f)).bits, 127);
  EXPECT_EQ(Float8_e8m0fnu(1.5f).bits, 128);
  EXPECT_EQ(Float8_e8m0fnu(0x1.8p127f).bits, 255);
}

TEST(DType, FourBitFloatsRoundToTheNearest) {
  const float values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (uint8_t code = 0; code < 16; ++code) {
    const float value = float4_e2m1fn_to_float(code);
    EXPECT_EQ(value, code < 8 ? values[code] : -values[code - 8]);
    EXPECT_EQ(std::signbit(value), code >= 8);
    EXPECT_EQ(float_to_float4_e2m1fn(value), code);
  }
  // Halfway between two values it is the one with an even code.
  const float halves[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5};
  const uint8_t even[] = {0, 2, 2, 4, 4, 6, 6};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(float_to_float4_e2m1fn(halves[i]), even[i]) << halves[i];
    EXPECT_EQ(float_to_float4_e2m1fn(std::nextafter(halves[i], 0.0f)), i) << halves[i];
    EXPECT_EQ(float_to_float4_e2m1fn(std::nextafter(halves[i], 9.0f)), i + 1) << halves[i];
  }
  for (const float large : {7.0f, 1e30f, std::numeric_limits<float>::infinity()})
    EXPECT_EQ(float_to_float4_e2m1fn(-large), 15);
  const Float4_e2m1fn_x2 pair = Float4_e2m1fn_x2::pack(-1.5f, 6);
  EXPECT_EQ(pair.bits, 0x7b);
  EXPECT_EQ(pair.first(), -1.5f);
  EXPECT_EQ(pair.second(), 6.0f);
}

TEST(DType, StorageOnlyDtypes) {
  EXPECT_FALSE(is_storage_only(DType::Float8_e8m0fnu));
  EXPECT_TRUE(is_float8(DType::Float8_e8m0fnu));
  EXPECT_FALSE(is_float8(DType::UInt16));
  for (const DType t : all_dtypes()) {
    if (!is_storage_only(t)) continue;
    EXPECT_EQ(element_size(t), t == DType::Bits16 ? 2 : 1) << name(t);
    EXPECT_FALSE(is_integral(t)) << name(t);
    EXPECT_EQ(promote_types(t, t), t);
  }
  EXPECT_EQ(promotion(DType::Bits8, DType::Float32), "Promotion from Bits8 and Float is unsupported.");
}

}  // namespace
}  // namespace mica
