// Averages over boxes: for each axis, which inputs an output averages, and what it divides by. Both kinds of average
// pooling use it, and with the roles exchanged both of their derivatives.
#pragma once

#include <vector>

#include "backends/cpu/pooling/windows.h"

namespace mica::cpu {

struct BoxAxis {
  std::vector<Span> spans;        // one per output, clipped to the input
  std::vector<int64_t> divisors;  // one per output
  // Where all boxes are alike: output o begins at o * stride - padding and has `kernel` elements. Otherwise kernel is
  // 0.
  int64_t stride = 1, kernel = 0, padding = 0;
};

struct Boxes {
  int64_t batch, channels;
  Extent3 in, out;
  BoxAxis axes[3];
  int64_t divisor = 0;  // if not 0, every box is divided by it instead
};

inline Boxes regular_boxes(const TensorView& in, const TensorView& out, IntArrayRef kernel, IntArrayRef stride,
                           IntArrayRef padding, bool count_include_pad, int64_t divisor) {
  const Windows w = windows(in, out, kernel, stride, padding, IntArrayRef{1, 1, 1});
  Boxes b{w.batch, w.channels, w.in, w.out, {}, divisor};
  for (int a = 0; a < 3; ++a) {
    BoxAxis& axis = b.axes[a];
    // Padded rows are worth making where they are not far longer than the input's own.
    if (w.reach(a) <= 65536 + 8.0 * static_cast<double>(w.in[a])) {
      axis.stride = w.stride[a];
      axis.kernel = w.kernel[a];
      axis.padding = w.padding[a];
    }
    for (int64_t o = 0; o < w.out[a]; ++o) {
      const Taps t = w.taps(a, o);
      axis.spans.push_back({t.first, t.first + t.count});
      axis.divisors.push_back(w.divisor(a, o, count_include_pad));
    }
  }
  return b;
}

inline Boxes adaptive_boxes(const TensorView& in, const TensorView& out) {
  Boxes b{in.size(0), in.size(1), spatial(in), spatial(out), {}, 0};
  for (int a = 0; a < 3; ++a) {
    for (int64_t o = 0; o < b.out[a]; ++o) {
      b.axes[a].spans.push_back(adaptive_span(o, b.in[a], b.out[a]));
      b.axes[a].divisors.push_back(b.axes[a].spans.back().end - b.axes[a].spans.back().begin);
    }
  }
  return b;
}

// For every input of an axis, the outputs whose boxes hold it. They are neighbours, since boxes begin and end in order.
inline std::vector<Span> holders(const BoxAxis& axis, int64_t in) {
  std::vector<Span> found(static_cast<size_t>(in), Span{0, 0});
  const int64_t out = static_cast<int64_t>(axis.spans.size());
  int64_t begin = 0, end = 0;
  for (int64_t i = 0; i < in; ++i) {
    while (begin < out && axis.spans[begin].end <= i) ++begin;
    while (end < out && axis.spans[end].begin <= i) ++end;
    found[i] = {begin, std::max(begin, end)};
  }
  return found;
}

}  // namespace mica::cpu
