// The vector math as loops over arrays, one table of them per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

// clang-format off
#define MICA_TEST_UNARY(X)                                                                                         \
  X(exp) X(exp2) X(expm1) X(log) X(log2) X(log10) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh)    \
  X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(sigmoid) X(silu) X(gelu) X(gelu_tanh) X(mish) X(log1p_exp)          \
  X(log_sigmoid) X(logit) X(erf) X(erfc) X(erfinv) X(lgamma) X(digamma) X(sqrt) X(rsqrt) X(reciprocal) X(floor)    \
  X(ceil) X(trunc) X(round) X(sinc) X(i0) X(grouped_sqrt)
#define MICA_TEST_BINARY(X) X(pow) X(atan2) X(hypot) X(fmod) X(remainder) X(logaddexp) X(copysign) X(nextafter)
// clang-format on

namespace mica::cpu {

template <class T>
using UnaryLoop = void (*)(const T*, T*, size_t);
template <class T>
using BinaryLoop = void (*)(const T*, const T*, T*, size_t);

#define MICA_TEST_FIELD(NAME) UnaryLoop<T> NAME;
#define MICA_TEST_BINARY_FIELD(NAME) BinaryLoop<T> NAME;
template <class T>
struct Loops {
  MICA_TEST_UNARY(MICA_TEST_FIELD)
  MICA_TEST_BINARY(MICA_TEST_BINARY_FIELD)
};

struct Conversions {
  void (*from_bfloat16)(const uint16_t*, float*, size_t);
  void (*to_bfloat16)(const float*, uint16_t*, size_t);
  void (*from_half)(const uint16_t*, float*, size_t);
  void (*to_half)(const float*, uint16_t*, size_t);
};

struct Target {
  const char* name;
  Loops<float> floats;
  Loops<double> doubles;
  Conversions conversions;
};

// Those that this machine can run.
const std::vector<Target>& targets();

}  // namespace mica::cpu
