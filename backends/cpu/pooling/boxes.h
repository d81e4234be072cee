// Averages over boxes: for each axis, which inputs an output averages, and what it divides by. Both kinds of average
// pooling use it, and with the roles exchanged both of their derivatives.
#pragma once

#include <vector>

#include "backends/cpu/pooling/windows.h"

namespace mica::cpu {

struct BoxAxis {
  int64_t in = 1, out = 1;
  // Output o begins at o * stride - padding and has `kernel` elements, some of which may lie outside of the input. If
  // kernel is 0, the boxes are those of an adaptive pooling.
  int64_t kernel = 0, stride = 1, padding = 0;
  bool counts_padding = false;  // divisors count the elements of the padding
  bool padded_rows = false;     // rows with their padding are not far longer than the input's own

  // Which inputs output o averages.
  Span span(int64_t o) const {
    if (!kernel) return adaptive_span(o, in, out);
    const int64_t start = o * stride - padding, begin = std::max<int64_t>(start, 0);
    return {begin, std::max(begin, start + std::min(kernel, in - start))};
  }

  // What the sum of output o is divided by, along this axis: the elements of its box in the padded input, or in the
  // input proper.
  int64_t divisor(int64_t o) const {
    if (!kernel) return span(o).end - span(o).begin;
    const int64_t start = o * stride - padding, end = start + std::min(kernel, in + padding - start);
    return counts_padding ? end - start : std::min(end, in) - std::max<int64_t>(start, 0);
  }
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
    const bool padded_rows = w.reach(a) <= 65536 + 8.0 * static_cast<double>(w.in[a]);
    b.axes[a] = {w.in[a], w.out[a], w.kernel[a], w.stride[a], w.padding[a], count_include_pad, padded_rows};
  }
  return b;
}

inline Boxes adaptive_boxes(const TensorView& in, const TensorView& out) {
  Boxes b{in.size(0), in.size(1), spatial(in), spatial(out), {}, 0};
  for (int a = 0; a < 3; ++a) b.axes[a].in = b.in[a], b.axes[a].out = b.out[a];
  return b;
}

// For every input of an axis, the outputs whose boxes hold it. They are neighbours, since boxes begin and end in order.
inline std::vector<Span> holders(const BoxAxis& axis, int64_t in) {
  std::vector<Span> found(static_cast<size_t>(in), Span{0, 0});
  int64_t begin = 0, end = 0;
  for (int64_t i = 0; i < in; ++i) {
    while (begin < axis.out && axis.span(begin).end <= i) ++begin;
    while (end < axis.out && axis.span(end).begin <= i) ++end;
    found[i] = {begin, std::max(begin, end)};
  }
  return found;
}

}  // namespace mica::cpu
