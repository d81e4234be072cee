// The geometry of pooling over (batch, channels, depth, height, width).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "mica/backend/kernel_types.h"

namespace mica::cpu {

using Extent3 = std::array<int64_t, 3>;  // depth, height, width

inline Extent3 extent3(IntArrayRef a) { return {a[0], a[1], a[2]}; }
inline Extent3 spatial(const TensorView& t) { return {t.size(2), t.size(3), t.size(4)}; }
inline int64_t volume(const Extent3& e) { return e[0] * e[1] * e[2]; }

// The taps of a window along one axis that fall inside the input.
struct Taps {
  int64_t start;  // where the window begins, which may be before the input
  int64_t first;  // input position of the first tap inside
  int64_t count;
};

// Windows of one size at equal distances.
struct Windows {
  int64_t batch, channels;
  Extent3 in, out, kernel, stride, padding, dilation;

  Taps taps(int axis, int64_t o) const {
    const int64_t start = o * stride[axis] - padding[axis], step = dilation[axis];
    const int64_t before = start < 0 ? (-start + step - 1) / step : 0;
    const int64_t until = std::min(kernel[axis], (in[axis] - start + step - 1) / step);
    return {start, start + before * step, std::max<int64_t>(until - before, 0)};
  }

  // Taps that can fall inside the input.
  int64_t most_taps() const {
    int64_t taps = 1;
    for (int a = 0; a < 3; ++a) taps *= std::min(kernel[a], in[a]);
    return taps;
  }

  // How many elements of one axis its outputs and one more vector of them read, with borders.
  double reach(int axis) const {
    return (static_cast<double>(out[axis]) + 64) * static_cast<double>(stride[axis]) +
           static_cast<double>(kernel[axis]) * static_cast<double>(dilation[axis]) + static_cast<double>(padding[axis]);
  }
};

inline Windows windows(const TensorView& in, const TensorView& out, IntArrayRef kernel, IntArrayRef stride,
                       IntArrayRef padding, IntArrayRef dilation) {
  return {in.size(0),      in.size(1),      spatial(in),      spatial(out),
          extent3(kernel), extent3(stride), extent3(padding), extent3(dilation)};
}

// The window of an adaptive pooling along one axis: [begin, end).
struct Span {
  int64_t begin, end;
};
inline Span adaptive_span(int64_t o, int64_t in, int64_t out) {
  const int64_t begin = o / out * in + o % out * in / out;
  return {begin, 1 + ((o + 1) * in - 1) / out};
}

// A position among the outputs of a plane, counted up without divisions.
struct Position {
  int64_t plane, d, h, w;
  static Position of_row(int64_t row, const Extent3& out) {
    return {row / (out[0] * out[1]), row / out[1] % out[0], row % out[1], 0};
  }
  static Position of_element(int64_t element, const Extent3& out) {
    Position p = of_row(element / out[2], out);
    p.w = element % out[2];
    return p;
  }
  void next_row(const Extent3& out) {
    if (++h < out[1]) return;
    h = 0;
    if (++d < out[0]) return;
    d = 0;
    ++plane;
  }
  void next_element(const Extent3& out) {
    if (++w < out[2]) return;
    w = 0;
    next_row(out);
  }
};

}  // namespace mica::cpu
