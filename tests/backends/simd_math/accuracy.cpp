// Accuracy against long double.
#include <gtest/gtest.h>

#include "tests/backends/simd_math/samples.h"

namespace mica::cpu {
namespace {

constexpr size_t kSamples = 20001;  // not a multiple of a vector: the tail is tested too

template <class T>
void expect_accurate(const char* name, UnaryLoop<T> Loops<T>::*loop, Real (*reference)(Real), double bound,
                     std::vector<Range> ranges) {
  for (const Target& target : targets()) {
    for (const Range& range : ranges) {
      const std::vector<T> in = samples<T>(range, kSamples);
      std::vector<T> out(in.size());
      (loops_of<T>(target).*loop)(in.data(), out.data(), in.size());
      double worst = 0;
      T at = 0;
      for (size_t i = 0; i < in.size(); ++i) {
        const double error = ulps(out[i], reference(Real(in[i])));
        if (!(error <= worst)) {
          worst = error;
          at = in[i];
        }
      }
      EXPECT_LE(worst, bound) << name << " of " << sizeof(T) * 8 << " bits at " << at << " on " << target.name;
    }
  }
}

#define EXPECT_ACCURATE(NAME, FLOAT_BOUND, DOUBLE_BOUND, REFERENCE, ...)                          \
  {                                                                                               \
    const auto reference = [](Real x) -> Real { return REFERENCE; };                              \
    expect_accurate<float>(#NAME, &Loops<float>::NAME, reference, FLOAT_BOUND, {__VA_ARGS__});    \
    expect_accurate<double>(#NAME, &Loops<double>::NAME, reference, DOUBLE_BOUND, {__VA_ARGS__}); \
  }

const Real kRealPi = std::acos(Real(-1));

TEST(SimdMath, ExponentialsAndLogarithmsAreAccurate) {
  const Range whole{-110, 100}, near{-1, 1}, wide{-750, 720}, tiny{1e-40, 1, true};
  EXPECT_ACCURATE(exp, 1.0, 1.0, std::exp(x), whole, near, wide, tiny)
  EXPECT_ACCURATE(exp2, 1.0, 1.0, std::exp2(x), whole, near, {-1080, 1030}, tiny)
  EXPECT_ACCURATE(expm1, 1.0, 1.0, std::expm1(x), whole, near, wide, tiny)
  const Range floats{1e-45, 3e38, true}, doubles{1e-310, 1e308, true}, around_one{0.5, 2}, close_to_one{0.99, 1.01};
  EXPECT_ACCURATE(log, 1.0, 1.0, std::log(x), floats, doubles, around_one, close_to_one)
  EXPECT_ACCURATE(log2, 1.0, 1.0, std::log2(x), floats, doubles, around_one, close_to_one)
  EXPECT_ACCURATE(log10, 1.0, 1.0, std::log10(x), floats, doubles, around_one, close_to_one)
  EXPECT_ACCURATE(log1p, 1.0, 1.0, std::log1p(x), floats, {-0.999, 1}, tiny)
}

TEST(SimdMath, CircularFunctionsAreAccurate) {
  const Range near{-1, 1}, turns{-10, 10}, many{-1e5, 1e5}, wide{1e-40, 1e12, true}, huge{1e10, 1e30, true};
  EXPECT_ACCURATE(sin, 1.0, 1.0, std::sin(x), near, turns, many, wide, huge)
  EXPECT_ACCURATE(cos, 1.0, 1.0, std::cos(x), near, turns, many, wide, huge)
  EXPECT_ACCURATE(tan, 1.0, 1.0, std::tan(x), near, turns, many, wide, huge)
  EXPECT_ACCURATE(asin, 1.0, 1.0, std::asin(x), near, {0.45, 0.55}, {0.99, 1}, {1e-40, 1, true})
  EXPECT_ACCURATE(acos, 1.0, 1.0, std::acos(x), near, {0.45, 0.55}, {0.99, 1}, {-1, -0.99})
  EXPECT_ACCURATE(atan, 1.0, 1.0, std::atan(x), near, turns, {1e-40, 1e38, true})
  EXPECT_ACCURATE(sinc, 2.0, 2.0, std::sin(kRealPi * x) / (kRealPi * x), {-0.5, 0.5}, {1e-30, 0.5, true})
}

// Doubles next to multiples of pi/16, where the reduction cancels almost everything.
TEST(SimdMath, CircularFunctionsAreAccurateNextToTheirZeros) {
  std::vector<double> in;
  for (int64_t k = 1; k < 12000000; k = k * 9 / 8 + 1) {
    const double x = double(k * kRealPi / 16);
    for (const double v : {x, std::nextafter(x, 0.0), -std::nextafter(x, 1e300)}) in.push_back(v);
  }
  std::vector<double> out(in.size());
  for (const Target& target : targets()) {
    const auto expect = [&](const char* name, UnaryLoop<double> loop, Real (*reference)(Real)) {
      loop(in.data(), out.data(), in.size());
      for (size_t i = 0; i < in.size(); ++i)
        EXPECT_LE(ulps(out[i], reference(in[i])), 1.0) << name << " of " << in[i] << " on " << target.name;
    };
    expect("sin", target.doubles.sin, [](Real x) { return std::sin(x); });
    expect("cos", target.doubles.cos, [](Real x) { return std::cos(x); });
    expect("tan", target.doubles.tan, [](Real x) { return std::tan(x); });
  }
}

TEST(SimdMath, HyperbolicFunctionsAreAccurate) {
  const Range near{-1, 1}, middle{-5, 5}, whole{-90, 90}, wide{-711, 711}, tiny{1e-40, 10, true};
  EXPECT_ACCURATE(sinh, 1.0, 1.0, std::sinh(x), near, middle, whole, wide, tiny)
  EXPECT_ACCURATE(cosh, 1.0, 1.0, std::cosh(x), near, middle, whole, wide)
  EXPECT_ACCURATE(tanh, 1.0, 1.0, std::tanh(x), near, middle, {-25, 25}, tiny)
  EXPECT_ACCURATE(asinh, 1.0, 1.0, std::asinh(x), near, middle, {1e-40, 1e38, true}, {1, 1e300, true})
  EXPECT_ACCURATE(acosh, 1.0, 1.0, std::acosh(x), {1, 2}, {1, 1.001}, {1, 1e38, true}, {1, 1e300, true})
  EXPECT_ACCURATE(atanh, 1.0, 1.0, std::atanh(x), near, {0.3, 0.6}, {0.99, 1}, {1e-40, 1, true})
  EXPECT_ACCURATE(logit, 1.0, 1.0, std::log1p((2 * x - 1) / (1 - x)), {0.3, 0.7}, {0.49, 0.51})
  EXPECT_ACCURATE(logit, 1.0, 1.0, std::log(x / (1 - x)), {1e-40, 0.3, true}, {0.7, 0.9999})
}

Real softplus_reference(Real x) { return std::fmax(x, Real(0)) + std::log1p(std::exp(-std::fabs(x))); }

// The bounds are those of the formulas that torch evaluates, measured on torch itself for float.
TEST(SimdMath, ActivationsAreAccurate) {
  const Range near{-1, 1}, middle{-5, 5}, whole{-40, 40}, tiny{1e-30, 1, true};
  EXPECT_ACCURATE(sigmoid, 1.9, 1.9, 1 / (1 + std::exp(-x)), near, middle, whole, {-87, -40})
  EXPECT_ACCURATE(silu, 2.5, 2.5, x / (1 + std::exp(-x)), near, middle, whole, tiny)
  EXPECT_ACCURATE(mish, 4.0, 4.0, x * std::tanh(softplus_reference(x)), near, middle, whole, tiny)
  EXPECT_ACCURATE(log1p_exp, 2.0, 2.0, softplus_reference(x), near, middle, whole)
  EXPECT_ACCURATE(log_sigmoid, 2.0, 2.0, -softplus_reference(-x), near, middle, whole)
  EXPECT_ACCURATE(gelu_tanh, 3.0, 3.0,
                  x / (1 + std::exp(-2 * std::sqrt(2 / kRealPi) * (x + Real(0.044715) * x * x * x))), near, {0, 10})
  EXPECT_ACCURATE(gelu, 2.5, 3.5, x * std::erfc(-x / std::sqrt(Real(2))) / 2, near, {0, 20}, tiny)
  // Torch's 1 + erf loses the tail: 38 ulp from -2 on, 63,000 from -4 on.
  EXPECT_ACCURATE(gelu, 13.0, 7.0, x * std::erfc(-x / std::sqrt(Real(2))) / 2, {-5, -1})
  EXPECT_ACCURATE(gelu, 6.0, 7.0, x * std::erfc(-x / std::sqrt(Real(2))) / 2, {-12, -5})
}

TEST(SimdMath, SpecialFunctionsAreAccurate) {
  const Range near{-1, 1}, middle{-5, 5}, whole{-30, 30}, tiny{1e-40, 1, true};
  EXPECT_ACCURATE(erf, 1.0, 1.0, std::erf(x), near, middle, whole, tiny)
  EXPECT_ACCURATE(erfc, 1.0, 1.5, std::erfc(x), near, middle, {0, 10}, {0, 27}, tiny)
  EXPECT_ACCURATE(lgamma, 1.0, 3.0, std::lgamma(x), {0.01, 0.9}, {2.1, 100}, {1e3, 1e30, true})
  EXPECT_ACCURATE(rsqrt, 1.5, 1.5, 1 / std::sqrt(x), {1e-30, 1e30, true})
  EXPECT_ACCURATE(sqrt, 0.501, 0.501, std::sqrt(x), {1e-30, 1e30, true})
  EXPECT_ACCURATE(grouped_sqrt, 0.501, 0.501, std::sqrt(x), {1e-30, 1e30, true}, {1e-310, 1e308, true}, {-1, 2})
  EXPECT_ACCURATE(reciprocal, 0.501, 0.501, 1 / x, {1e-30, 1e30, true}, {-2, 2})
}

// erf(erfinv(y)) gives y back: the error in y is the error in the result times erf's slope.
TEST(SimdMath, ErfinvInvertsErf) {
  for (const Target& target : targets()) {
    for (const Range range : {Range{-0.99, 0.99}, Range{1e-20, 0.5, true}}) {
      const std::vector<double> in = samples<double>(range, kSamples);
      std::vector<double> out(in.size());
      target.doubles.erfinv(in.data(), out.data(), in.size());
      for (size_t i = 0; i < in.size(); ++i) {
        const Real slope = 2 / std::sqrt(kRealPi) * std::exp(-Real(out[i]) * out[i]);
        const Real exact = out[i] - (std::erf(Real(out[i])) - in[i]) / slope;
        EXPECT_LE(ulps(out[i], exact), 2.0) << in[i];
      }
    }
  }
}

struct BinaryRange {
  Range first, second;
};

template <class T>
void expect_accurate(const char* name, BinaryLoop<T> Loops<T>::*loop, Real (*reference)(Real, Real), double bound,
                     std::vector<BinaryRange> ranges) {
  for (const Target& target : targets()) {
    for (const BinaryRange& range : ranges) {
      const std::vector<T> a = samples<T>(range.first, kSamples);
      std::vector<T> b = samples<T>(range.second, kSamples);
      std::shuffle(b.begin(), b.end(), std::mt19937_64(7));
      std::vector<T> out(a.size());
      (loops_of<T>(target).*loop)(a.data(), b.data(), out.data(), a.size());
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_LE(ulps(out[i], reference(a[i], b[i])), bound)
            << name << " of " << sizeof(T) * 8 << " bits at " << a[i] << ", " << b[i] << " on " << target.name;
      }
    }
  }
}

#define EXPECT_BINARY_ACCURATE(NAME, FLOAT_BOUND, DOUBLE_BOUND, REFERENCE, ...)                   \
  {                                                                                               \
    const auto reference = [](Real x, Real y) -> Real { return REFERENCE; };                      \
    expect_accurate<float>(#NAME, &Loops<float>::NAME, reference, FLOAT_BOUND, {__VA_ARGS__});    \
    expect_accurate<double>(#NAME, &Loops<double>::NAME, reference, DOUBLE_BOUND, {__VA_ARGS__}); \
  }

Real python_remainder(Real x, Real y) {
  const Real rest = std::fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

TEST(SimdMath, BinaryFunctionsAreAccurate) {
  const Range signed_small{-5, 5}, positive{1e-3, 4}, wide{1e-37, 1e37, true};
  EXPECT_BINARY_ACCURATE(pow, 0.51, 1.0, std::pow(x, y), {positive, {-10, 10}}, {wide, {-2, 2}},
                         {{0.99, 1.01}, {-8000, 8000}}, {{1e-300, 1e300, true}, {-1, 1}})
  EXPECT_BINARY_ACCURATE(atan2, 1.0, 1.0, std::atan2(x, y), {signed_small, signed_small}, {wide, wide},
                         {wide, {-1e30, 1e30}})
  EXPECT_BINARY_ACCURATE(hypot, 0.501, 0.51, std::hypot(x, y), {signed_small, signed_small}, {wide, wide},
                         {{1e-300, 1e300, true}, {1e-300, 1e300, true}})
  EXPECT_BINARY_ACCURATE(fmod, 0, 0, std::fmod(x, y), {signed_small, signed_small}, {wide, wide},
                         {{-1e6, 1e6}, signed_small})
  EXPECT_BINARY_ACCURATE(remainder, 0.501, 0.501, python_remainder(x, y), {signed_small, signed_small},
                         {{-1e6, 1e6}, signed_small})
  EXPECT_BINARY_ACCURATE(logaddexp, 2.0, 2.0, std::fmax(x, y) + std::log1p(std::exp(-std::fabs(x - y))),
                         {{1, 50}, {1, 50}})
}

}  // namespace
}  // namespace mica::cpu
