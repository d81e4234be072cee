// How batch_norm maps the elements of a channel.
#pragma once

#include <cmath>

namespace mica {

// The line that a channel's elements are mapped by, x * scale + shift. The statistics are floats of any kind; the line
// is rounded once.
struct ChannelLine {
  double scale, shift;
  ChannelLine(double weight, double bias, double mean, double rstd)
      : scale(rstd * weight), shift(bias - mean * scale) {}
};
inline double reciprocal_deviation(double variance, double eps) { return 1 / std::sqrt(variance + eps); }

}  // namespace mica
