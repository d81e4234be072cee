// Conversions between float and the 16-bit formats.
#include <bit>

#include <gtest/gtest.h>

#include "tests/backends/simd_math/samples.h"

namespace mica::cpu {
namespace {

uint16_t bfloat16_reference(float x) {
  if (std::isnan(x)) return 0x7fc0;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float half_reference(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const float sign = bits >> 15 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(float(mantissa), -24);
  return sign * std::ldexp(float(1024 + mantissa), exponent - 25);
}

TEST(SimdConvert, EverySixteenBitNumberSurvivesTheWayThroughFloat) {
  std::vector<uint16_t> bits(65536), back(bits.size());
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = uint16_t(i);
  std::vector<float> floats(bits.size());
  for (const Target& target : targets()) {
    target.conversions.from_bfloat16(bits.data(), floats.data(), bits.size());
    target.conversions.to_bfloat16(floats.data(), back.data(), bits.size());
    for (size_t i = 0; i < bits.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), uint32_t(i) << 16);
      ASSERT_EQ(back[i], std::isnan(floats[i]) ? 0x7fc0 : bits[i]);
    }
    target.conversions.from_half(bits.data(), floats.data(), bits.size());
    target.conversions.to_half(floats.data(), back.data(), bits.size());
    for (size_t i = 0; i < bits.size(); ++i) {
      ASSERT_TRUE(same_bits(floats[i], half_reference(bits[i]))) << i;
      if (!std::isnan(floats[i])) {
        ASSERT_EQ(back[i], bits[i]);
      }
    }
  }
}

// Between two neighbouring halves lies their midpoint; it goes to the even one, its neighbours to the nearer.
TEST(SimdConvert, RoundsToNearestEven) {
  for (const Target& target : targets()) {
    std::vector<float> in;
    std::vector<uint16_t> want;
    for (uint16_t low = 0; low < 0x7bff; ++low) {
      const float middle = (half_reference(low) + half_reference(low + 1)) / 2;
      in.insert(in.end(), {std::nextafter(middle, 0.0f), middle, -middle, std::nextafter(middle, INFINITY)});
      const uint16_t even = low % 2 ? low + 1 : low;
      want.insert(want.end(), {low, even, uint16_t(even | 0x8000), uint16_t(low + 1)});
    }
    in.insert(in.end(), {65519.99f, 65520.0f, 1e30f, -INFINITY, 1e-10f});
    want.insert(want.end(), {0x7bff, 0x7c00, 0x7c00, 0xfc00, 0});
    std::vector<uint16_t> out(in.size());
    target.conversions.to_half(in.data(), out.data(), in.size());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], want[i]) << in[i] << " on " << target.name;

    std::mt19937 generator(5);
    for (float& x : in) {
      uint32_t bits = uint32_t(generator());
      if (generator() % 2) bits = (bits & 0xffff0000u) | 0x8000u;
      x = std::bit_cast<float>(bits);
    }
    target.conversions.to_bfloat16(in.data(), out.data(), in.size());
    for (size_t i = 0; i < in.size(); ++i)
      ASSERT_EQ(out[i], bfloat16_reference(in[i])) << in[i] << " on " << target.name;
  }
}

TEST(SimdConvert, TailsTouchNothingBeyondThem) {
  for (const Target& target : targets()) {
    for (size_t n = 0; n < 40; ++n) {
      const std::vector<float> in(n, 1.5f);
      std::vector<uint16_t> out(n + 20, 7);
      target.conversions.to_half(in.data(), out.data(), n);
      for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i < n ? 0x3e00 : 7);
      const std::vector<uint16_t> halves(n, 0x3e00);
      std::vector<float> floats(n + 20, 7.0f);
      target.conversions.from_half(halves.data(), floats.data(), n);
      for (size_t i = 0; i < floats.size(); ++i) ASSERT_EQ(floats[i], i < n ? 1.5f : 7.0f);
    }
  }
}

}  // namespace
}  // namespace mica::cpu
