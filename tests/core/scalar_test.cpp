#include "mica/core/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mica/error.h"

namespace mica {
namespace {

template <class T>
std::string refusal(const Scalar& s) {
  try {
    s.to<T>();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Runtime);
    return e.what();
  }
  return "converted";
}

template <class T>
bool refuses(const Scalar& s) {
  return refusal<T>(s) != "converted";
}

TEST(Scalar, RemembersItsKind) {
  EXPECT_EQ(Scalar().dtype(), DType::Int64);
  EXPECT_EQ(Scalar(true).dtype(), DType::Bool);
  EXPECT_EQ(Scalar(int8_t{3}).dtype(), DType::Int64);
  EXPECT_EQ(Scalar(3u).dtype(), DType::Int64);
  EXPECT_EQ(Scalar(3ll).dtype(), DType::Int64);
  EXPECT_EQ(Scalar(uint64_t{1} << 63).dtype(), DType::UInt64);
  EXPECT_EQ(Scalar(1.5f).dtype(), DType::Float64);
  EXPECT_EQ(Scalar(Half(1.5f)).dtype(), DType::Float64);
  EXPECT_EQ(Scalar(BFloat16(1.5f)).dtype(), DType::Float64);
  EXPECT_EQ(Scalar(Float8_e4m3fn(1.5f)).dtype(), DType::Float64);
  EXPECT_EQ(Scalar(complex64(1, 2)).dtype(), DType::Complex128);
  EXPECT_EQ(Scalar(ComplexHalf(complex64(1, 2))).dtype(), DType::Complex128);
  EXPECT_TRUE(Scalar(true).is_bool());
  EXPECT_FALSE(Scalar(true).is_integral());
  EXPECT_TRUE(Scalar(uint64_t{1} << 63).is_integral());
  EXPECT_TRUE(Scalar(1.0).is_floating());
  EXPECT_TRUE(Scalar(complex128(0, 1)).is_complex());
  EXPECT_EQ(Scalar(2).category(), Category::Integral);
  EXPECT_EQ(Scalar(complex128(0, 1)).category(), Category::Complex);
}

TEST(Scalar, PointersAreNotNumbers) {
  EXPECT_FALSE((std::is_convertible_v<const char*, Scalar>));
  EXPECT_FALSE((std::is_convertible_v<void*, Scalar>));
}

TEST(Scalar, RefusesWhatAnIntegerCannotHold) {
  EXPECT_EQ(refusal<int8_t>(300),
            "value cannot be converted to type int8_t without overflow: 300 lies beyond the range of int8.");
  EXPECT_EQ(refusal<int32_t>(1e20).find("value cannot be converted to type int without overflow"), 0u);
  EXPECT_EQ(refusal<int64_t>(complex128(3, 1)).find("value cannot be converted to type int64_t without overflow"), 0u);
  EXPECT_TRUE(refuses<int8_t>(-129));
  EXPECT_TRUE(refuses<int8_t>(127.5));
  EXPECT_TRUE(refuses<int8_t>(-128.9));
  EXPECT_TRUE(refuses<uint8_t>(256));
  EXPECT_TRUE(refuses<uint8_t>(-256));
  EXPECT_TRUE(refuses<uint8_t>(-0.5));
  EXPECT_TRUE(refuses<int32_t>(std::nan("")));
  EXPECT_TRUE(refuses<int32_t>(INFINITY));
  EXPECT_TRUE(refuses<int64_t>(uint64_t{1} << 63));
  EXPECT_TRUE(refuses<uint64_t>(1.9e19));
  EXPECT_FALSE(refuses<bool>(std::nan("")));
}

TEST(Scalar, RefusesWhatAFloatCannotHold) {
  EXPECT_EQ(refusal<Half>(70000.0).find("value cannot be converted to type c10::Half without overflow"), 0u);
  EXPECT_TRUE(refuses<Half>(70000));
  EXPECT_TRUE(refuses<float>(1e40));
  EXPECT_TRUE(refuses<BFloat16>(1e39));
  EXPECT_TRUE(refuses<complex64>(complex128(0, 1e40)));
  EXPECT_TRUE(refuses<ComplexHalf>(complex128(0, 70000)));
  EXPECT_TRUE(refuses<double>(complex128(3, 1)));
  EXPECT_TRUE(refuses<Float8_e4m3fn>(INFINITY));
  EXPECT_FALSE(refuses<Float8_e5m2>(INFINITY));
  EXPECT_FALSE(refuses<float>(INFINITY));
  EXPECT_FALSE(refuses<Half>(std::nan("")));
  EXPECT_FALSE(refuses<float>(complex128(3, 0)));
}

TEST(Scalar, ConvertsWhatFits) {
  EXPECT_EQ(Scalar(3.99).to<int64_t>(), 3);
  EXPECT_EQ(Scalar(-1).to<uint8_t>(), 255);
  EXPECT_EQ(Scalar(-255).to<uint8_t>(), 1);
  EXPECT_EQ(Scalar(-1).to<uint64_t>(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(Scalar(9.3e18).to<uint64_t>(), 9300000000000000000u);
  EXPECT_EQ(Scalar(~uint64_t{0}).to<uint64_t>(), ~uint64_t{0});
  EXPECT_EQ(Scalar(70000.0).to<BFloat16>().bits, BFloat16(70144.f).bits);
  EXPECT_EQ(Scalar(complex128(1, 2)).to<complex64>(), complex64(1, 2));
  EXPECT_EQ(Scalar(7).to<complex128>(), complex128(7, 0));
  EXPECT_EQ(Scalar(2).to<bool>(), true);
  EXPECT_EQ(Scalar(complex128(0, 1)).to<bool>(), true);
  EXPECT_EQ(Scalar(true).to<double>(), 1.0);
}

TEST(Scalar, CastNeverThrows) {
  EXPECT_EQ(Scalar(300).cast<int8_t>(), 44);
  EXPECT_EQ(Scalar(300.7).cast<uint8_t>(), 44);
  EXPECT_TRUE(std::isinf(float(Scalar(70000.0).cast<Half>())));
  EXPECT_EQ(float(Scalar(1000.0).cast<Float8_e4m3fn>()), 448.f);
  EXPECT_EQ(Scalar(std::nan("")).cast<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Scalar(1e20).cast<int32_t>(), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Scalar(-2147483648.5).cast<int32_t>(), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Scalar(complex128(3, 1)).cast<float>(), 3.f);
}

TEST(Scalar, EqualityIsNumericAndExact) {
  EXPECT_EQ(Scalar(1), Scalar(1.0));
  EXPECT_EQ(Scalar(1), Scalar(complex128(1, 0)));
  EXPECT_NE(Scalar(1), Scalar(complex128(1, 1)));
  EXPECT_NE(Scalar(1), Scalar(true));
  EXPECT_EQ(Scalar(true), Scalar(true));
  EXPECT_NE(Scalar(std::nan("")), Scalar(std::nan("")));
  EXPECT_NE(Scalar((int64_t{1} << 53) + 1), Scalar(0x1p53));
  EXPECT_EQ(Scalar(uint64_t{1} << 63), Scalar(0x1p63));
  EXPECT_NE(Scalar(std::numeric_limits<int64_t>::max()), Scalar(0x1p63));
  EXPECT_NE(Scalar(1), Scalar(1.5));
  EXPECT_NE(Scalar(-1), Scalar(~uint64_t{0}));
}

TEST(Scalar, NegatesAndConjugates) {
  EXPECT_EQ(-Scalar(3), Scalar(-3));
  EXPECT_TRUE(std::signbit((-Scalar(0.0)).to<double>()));
  EXPECT_EQ(-Scalar(complex128(1, -2)), Scalar(complex128(-1, 2)));
  EXPECT_EQ(-Scalar(uint64_t{1} << 63), Scalar(std::numeric_limits<int64_t>::min()));
  EXPECT_THROW(-Scalar(~uint64_t{0}), Error);
  EXPECT_THROW(-Scalar(true), Error);
  EXPECT_EQ(Scalar(complex128(1, 2)).conj(), Scalar(complex128(1, -2)));
  EXPECT_EQ(Scalar(2.5).conj(), Scalar(2.5));
}

TEST(Scalar, PrintsAsPythonDoes) {
  EXPECT_EQ(cat(Scalar(true), " ", Scalar(-3), " ", Scalar(3.0), " ", Scalar(1e-5)), "True -3 3.0 1e-05");
  EXPECT_EQ(to_string(~uint64_t{0}), "18446744073709551615");
  EXPECT_EQ(to_string(complex128(1, 2)), "(1+2j)");
  EXPECT_EQ(to_string(complex128(1.5, -0.0)), "(1.5-0j)");
  EXPECT_EQ(to_string(complex128(0, -1)), "-1j");
  EXPECT_EQ(to_string(complex128(-0.0, 1)), "(-0+1j)");
  EXPECT_EQ(to_string(complex128(INFINITY, NAN)), "(inf+nanj)");
}

}  // namespace
}  // namespace mica
