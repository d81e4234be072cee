// Every operation, as a free function and as an operator.
#pragma once

#include "mica/generated/ops.h"

namespace mica {

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator+(const Tensor& a, const Scalar& b) { return add(a, b); }
inline Tensor operator+(const Scalar& a, const Tensor& b) { return add(b, a); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator-(const Tensor& a, const Scalar& b) { return sub(a, b); }
inline Tensor operator-(const Scalar& a, const Tensor& b) { return rsub(b, a); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator*(const Tensor& a, const Scalar& b) { return mul(a, b); }
inline Tensor operator*(const Scalar& a, const Tensor& b) { return mul(b, a); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator/(const Tensor& a, const Scalar& b) { return div(a, b); }
inline Tensor operator/(const Scalar& a, const Tensor& b) { return mul(reciprocal(b), a); }
inline Tensor operator%(const Tensor& a, const Tensor& b) { return remainder(a, b); }
inline Tensor operator%(const Tensor& a, const Scalar& b) { return remainder(a, b); }
inline Tensor operator%(const Scalar& a, const Tensor& b) { return remainder(a, b); }

#define MICA_COMPARISON(symbol, name, swapped)                                           \
  inline Tensor operator symbol(const Tensor& a, const Tensor& b) { return name(a, b); } \
  inline Tensor operator symbol(const Tensor& a, const Scalar& b) { return name(a, b); } \
  inline Tensor operator symbol(const Scalar& a, const Tensor& b) { return swapped(b, a); }
MICA_COMPARISON(==, eq, eq)
MICA_COMPARISON(!=, ne, ne)
MICA_COMPARISON(<, lt, gt)
MICA_COMPARISON(<=, le, ge)
MICA_COMPARISON(>, gt, lt)
MICA_COMPARISON(>=, ge, le)
#undef MICA_COMPARISON

inline Tensor operator&(const Tensor& a, const Tensor& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Tensor& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Tensor& b) { return bitwise_xor(a, b); }
inline Tensor operator&(const Tensor& a, const Scalar& b) { return bitwise_and(a, b); }
inline Tensor operator|(const Tensor& a, const Scalar& b) { return bitwise_or(a, b); }
inline Tensor operator^(const Tensor& a, const Scalar& b) { return bitwise_xor(a, b); }
inline Tensor operator~(const Tensor& a) { return bitwise_not(a); }

// The shorter calls that Python has.
inline Tensor arange(const Scalar& end, const TensorOptions& options = {}) { return arange(0, end, 1, options); }
inline Tensor arange(const Scalar& start, const Scalar& end, const TensorOptions& options) {
  return arange(start, end, 1, options);
}

}  // namespace mica
