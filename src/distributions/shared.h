// Functions that the sources of the distributions share: shapes, limits of dtypes, sums over events.
#pragma once

#include <limits>

#include <string>

#include "mica/distributions/distribution.h"

namespace mica::distributions {

inline constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

constexpr double kEuler = 0.57721566490153286060;
constexpr double kPi = 3.14159265358979323846;

inline IntArrayRef first(const IntArrayRef& shape, size_t count) { return {shape.data(), count}; }
inline IntArrayRef last(const IntArrayRef& shape, size_t count) {
  return {shape.data() + (shape.size() - count), count};
}
inline IntArrayRef without_last(const IntArrayRef& shape, size_t count = 1) {
  return first(shape, shape.size() - count);
}
inline DimVector joined(const IntArrayRef& a, const IntArrayRef& b) {
  DimVector result(a);
  for (int64_t size : b) result.push_back(size);
  return result;
}
std::string size_text(IntArrayRef shape);   // "torch.Size([2, 3])"
std::string tuple_text(IntArrayRef shape);  // "(2, 3)"

// The limits of a floating-point dtype. Other dtypes are refused, in the words of torch.finfo.
struct FloatLimits {
  double eps, tiny, max;
};
FloatLimits limits_of(const Tensor& t);

Tensor sum_rightmost(const Tensor& value, int64_t count);  // sums over the last dimensions
Tensor standard_normal(IntArrayRef shape, const Tensor& like);
inline Tensor clamp_below(const Tensor& x, double low) { return x.clamp(Scalar(low)); }
bool all_true(const Tensor& flags);

void check_one_of_two(const OddsOptions& odds);
// An element as Python formats it within a text: a tensor without dimensions by its number.
std::string format_tensor(const Tensor& t);
// Values of a discrete support along a new first dimension, before a batch.
Tensor enumerated(const Tensor& values, IntArrayRef batch_shape, bool expand);

}  // namespace mica::distributions
