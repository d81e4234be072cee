// Values at the edges of each domain, and the independence of a lane from its neighbours.
#include <gtest/gtest.h>

#include "tests/backends/simd_math/samples.h"

namespace mica::cpu {
namespace {

template <class T>
std::vector<T> edges() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> out;
  for (T x : {T(0), T(1), T(2), T(3), T(0.5), T(1.5), T(2.5), T(10), T(89), T(104), T(750), T(1e10), Limits::infinity(),
              Limits::min(), Limits::denorm_min(), Limits::max(), Limits::epsilon(), T(0x1p40), T(0x1p100)}) {
    out.push_back(x);
    out.push_back(-x);
  }
  out.push_back(Limits::quiet_NaN());
  return out;
}

// Equal, or as near as the two libraries' last bits allow; zeros, infinities and NaNs exactly.
template <class T>
bool agrees(T got, T want) {
  if (std::isnan(want) || std::isinf(want) || want == 0) return same_bits(got, want);
  return std::fabs(got - want) <=
         4 * std::numeric_limits<T>::epsilon() * std::fabs(want) + std::numeric_limits<T>::denorm_min();
}

template <class T>
void expect_standard_edges() {
  for (const Target& target : targets()) {
    const Loops<T>& loops = loops_of<T>(target);
    const std::vector<T> in = edges<T>();
    std::vector<T> out(in.size());
#define EXPECT_EDGES(NAME, REFERENCE)                                                                            \
  loops.NAME(in.data(), out.data(), in.size());                                                                  \
  for (size_t i = 0; i < in.size(); ++i) {                                                                       \
    const T x = in[i];                                                                                           \
    EXPECT_TRUE(agrees(out[i], T(REFERENCE))) << #NAME << "(" << x << ") = " << out[i] << " on " << target.name; \
  }
    EXPECT_EDGES(exp, std::exp(x))
    EXPECT_EDGES(exp2, std::exp2(x))
    EXPECT_EDGES(expm1, std::expm1(x))
    EXPECT_EDGES(log, std::log(x))
    EXPECT_EDGES(log2, std::log2(x))
    EXPECT_EDGES(log10, std::log10(x))
    EXPECT_EDGES(log1p, std::log1p(x))
    EXPECT_EDGES(sin, std::sin(x))
    EXPECT_EDGES(cos, std::cos(x))
    EXPECT_EDGES(tan, std::tan(x))
    EXPECT_EDGES(asin, std::asin(x))
    EXPECT_EDGES(acos, std::acos(x))
    EXPECT_EDGES(atan, std::atan(x))
    EXPECT_EDGES(sinh, std::sinh(x))
    EXPECT_EDGES(cosh, std::cosh(x))
    EXPECT_EDGES(tanh, std::tanh(x))
    EXPECT_EDGES(asinh, std::asinh(x))
    EXPECT_EDGES(acosh, std::acosh(x))
    EXPECT_EDGES(atanh, std::atanh(x))
    EXPECT_EDGES(erf, std::erf(x))
    EXPECT_EDGES(erfc, std::erfc(x))
    EXPECT_EDGES(lgamma, std::lgamma(x))
    EXPECT_EDGES(floor, std::floor(x))
    EXPECT_EDGES(ceil, std::ceil(x))
    EXPECT_EDGES(trunc, std::trunc(x))
    EXPECT_EDGES(round, std::nearbyint(x))
    EXPECT_EDGES(sqrt, std::sqrt(x))
    EXPECT_EDGES(grouped_sqrt, std::sqrt(x))
    EXPECT_EDGES(reciprocal, T(1) / x)
    EXPECT_EDGES(rsqrt, T(1) / std::sqrt(x))
    std::vector<T> a, b;
    for (T x : in) {
      for (T y : in) {
        a.push_back(x);
        b.push_back(y);
      }
    }
    out.resize(a.size());
#define EXPECT_BINARY_EDGES(NAME, REFERENCE)                                            \
  loops.NAME(a.data(), b.data(), out.data(), a.size());                                 \
  for (size_t i = 0; i < a.size(); ++i) {                                               \
    const T x = a[i];                                                                   \
    const T y = b[i];                                                                   \
    EXPECT_TRUE(agrees(out[i], T(REFERENCE)))                                           \
        << #NAME << "(" << x << ", " << y << ") = " << out[i] << " on " << target.name; \
  }
    EXPECT_BINARY_EDGES(pow, std::pow(x, y))
    EXPECT_BINARY_EDGES(atan2, std::atan2(x, y))
    EXPECT_BINARY_EDGES(hypot, std::hypot(x, y))
    EXPECT_BINARY_EDGES(fmod, std::fmod(x, y))
    EXPECT_BINARY_EDGES(copysign, std::copysign(x, y))
    EXPECT_BINARY_EDGES(nextafter, std::nextafter(x, y))
  }
}

TEST(SimdMath, EdgesAreThoseOfTheStandardLibrary) {
  expect_standard_edges<float>();
  expect_standard_edges<double>();
}

// Where torch's answer is not that of a standard function: values taken from torch.
TEST(SimdMath, EdgesOfActivationsAreTorchs) {
  const double inf = INFINITY, nan = NAN;
  for (const Target& target : targets()) {
    const auto expect = [&](UnaryLoop<double> Loops<double>::*loop, UnaryLoop<float> Loops<float>::*float_loop,
                            const char* name, double x, double want) {
      double out;
      (target.doubles.*loop)(&x, &out, 1);
      EXPECT_TRUE(agrees(out, want)) << name << "(" << x << ") = " << out << " on " << target.name;
      const float narrow = float(x);
      float narrow_out;
      (target.floats.*float_loop)(&narrow, &narrow_out, 1);
      EXPECT_TRUE(agrees(narrow_out, float(want))) << name << "(" << x << ") = " << narrow_out << " on " << target.name;
    };
#define EXPECT_AT(NAME, X, WANT) expect(&Loops<double>::NAME, &Loops<float>::NAME, #NAME, X, WANT);
    EXPECT_AT(sigmoid, inf, 1)
    EXPECT_AT(sigmoid, -inf, 0)
    EXPECT_AT(sigmoid, nan, nan)
    EXPECT_AT(sigmoid, 0, 0.5)
    EXPECT_AT(silu, inf, inf)
    EXPECT_AT(silu, -inf, nan)
    EXPECT_AT(silu, -0.0, -0.0)
    EXPECT_AT(gelu, inf, inf)
    EXPECT_AT(gelu, -inf, nan)
    EXPECT_AT(gelu, nan, nan)
    EXPECT_AT(gelu, -0.0, -0.0)
    EXPECT_AT(gelu_tanh, inf, inf)
    EXPECT_AT(gelu_tanh, -inf, nan)
    EXPECT_AT(mish, inf, inf)
    EXPECT_AT(mish, -inf, nan)
    EXPECT_AT(mish, 89, 89)
    EXPECT_AT(log_sigmoid, inf, 0)
    EXPECT_AT(log_sigmoid, -inf, -inf)
    EXPECT_AT(log1p_exp, inf, inf)
    EXPECT_AT(log1p_exp, -inf, 0)
    EXPECT_AT(logit, 0, -inf)
    EXPECT_AT(logit, 1, inf)
    EXPECT_AT(logit, 2, nan)
    EXPECT_AT(logit, -1, nan)
    EXPECT_AT(sinc, 0, 1)
    EXPECT_AT(sinc, inf, nan)
    EXPECT_AT(erfinv, 1, inf)
    EXPECT_AT(erfinv, -1, -inf)
    EXPECT_AT(erfinv, 1.5, nan)
    EXPECT_AT(erfinv, -0.0, -0.0)
    EXPECT_AT(digamma, 0, -inf)
    EXPECT_AT(digamma, -0.0, inf)
    EXPECT_AT(digamma, -1, nan)
    EXPECT_AT(digamma, inf, inf)
    EXPECT_AT(digamma, 10, 2.25175258906672110765)
    EXPECT_AT(i0, 0, 1)
    EXPECT_AT(i0, -1, 1.26606587775200833560)
    double x = inf, y = inf, out;
    target.doubles.logaddexp(&x, &y, &out, 1);
    EXPECT_EQ(out, inf);
    x = y = -inf;
    target.doubles.logaddexp(&x, &y, &out, 1);
    EXPECT_EQ(out, -inf);
  }
}

// A value gives the same bits in every lane, beside any neighbours, in a whole vector and in a tail.
template <class T>
void expect_lanes_independent() {
  std::vector<T> in = edges<T>();
  for (const Range range : {Range{-4, 4}, Range{1e-30, 1e30, true}}) {
    const std::vector<T> more = samples<T>(range, 40);
    in.insert(in.end(), more.begin(), more.end());
  }
  std::shuffle(in.begin(), in.end(), std::mt19937_64(3));
  std::vector<T> alone(in.size()), together(in.size());
  for (const Target& target : targets()) {
    const Loops<T>& loops = loops_of<T>(target);
#define EXPECT_INDEPENDENT(NAME)                                                                      \
  loops.NAME(in.data(), together.data(), in.size());                                                  \
  for (size_t i = 0; i < in.size(); ++i) loops.NAME(&in[i], &alone[i], 1);                            \
  for (size_t i = 0; i < in.size(); ++i) {                                                            \
    EXPECT_TRUE(same_bits(alone[i], together[i])) << #NAME << "(" << in[i] << ") on " << target.name; \
  }
    MICA_TEST_UNARY(EXPECT_INDEPENDENT)
    const std::vector<T> second(in.rbegin(), in.rend());
#define EXPECT_BINARY_INDEPENDENT(NAME)                                                                 \
  loops.NAME(in.data(), second.data(), together.data(), in.size());                                     \
  for (size_t i = 0; i < in.size(); ++i) loops.NAME(&in[i], &second[i], &alone[i], 1);                  \
  for (size_t i = 0; i < in.size(); ++i) {                                                              \
    EXPECT_TRUE(same_bits(alone[i], together[i])) << #NAME << "(" << in[i] << ", " << second[i] << ")"; \
  }
    MICA_TEST_BINARY(EXPECT_BINARY_INDEPENDENT)
  }
}

TEST(SimdMath, LanesAreIndependent) {
  expect_lanes_independent<float>();
  expect_lanes_independent<double>();
}

}  // namespace
}  // namespace mica::cpu
