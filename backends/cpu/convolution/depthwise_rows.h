// Inner loops of convolutions in which every filter sees one channel.
#pragma once

#include <cstdint>

namespace mica::cpu::convolution {

// One output row where channels are last, with all channels at once: target[x] = bias + sum over taps of weights[tap] *
// source[tap]. Only tap rows [first_y, last_y), and the taps of a row that meet the image, are summed.
struct ChannelRows {
  const float* source;  // the image's first element
  int64_t col_stride, width;
  const float* weights;  // [tap][channel]
  const float* bias;     // may be null
  int64_t channels;
  int64_t kernel_x, stride_x, pad_x, dilation_x;
  int64_t dilated_row;  // floats between rows of taps
  int64_t first_y, last_y;
  int64_t top;  // the offset in floats of the row that tap 0 meets, which may lie outside the image
  float* target;
  int64_t target_stride, count;
};

// A source and its weights, both with channels along vectors.
struct ChannelTerm {
  const float* source;
  const float* weights;
};

// Rows of an output plane from a padded plane: to[y][x] = start + the sum over ky and kx of
// weights[ky][kx] * from[y * stride + ky][columns[kx] + x]. With `add` the result is added to `to`.
struct PlaneRows {
  const float* from;
  int64_t from_step;  // floats between rows
  const int64_t* columns;
  int64_t kernel_x;
  const float* weights;
  float start;
  bool add;
  float* to;
  int64_t to_step, rows, count;
};

struct DepthwiseLoops {
  void (*channel_row)(const ChannelRows& rows);
  // target = bias (or zero) + sum over terms of weights * source.
  void (*channel_terms)(const ChannelTerm* terms, int64_t count, const float* bias, int64_t channels, float* target);
  // sums[c] += sum over i of a[i * a_stride + c] * b[i * b_stride + c].
  void (*channel_dot)(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t count,
                      int64_t channels, float* sums);
  // to[i] = start + sum over taps of weights[t] * from[offsets[t] + i]. With `add` the result is added to `to`. Reads
  // up to a block of 64 floats behind the last element.
  void (*plane_row)(const float* from, const int64_t* offsets, const float* weights, int64_t taps, float start,
                    bool add, float* to, int64_t count);
  // Computes all rows of an output plane at once. Returns false where there is no loop for the kernel's height and the
  // stride. Reads up to a vector behind a row.
  bool (*plane_rows)(const PlaneRows& rows, int64_t kernel_y, int64_t stride_y);
  // Copies rows.
  void (*place_rows)(const float* from, int64_t from_step, int64_t rows, int64_t count, float* to, int64_t to_step);
  // Copies the elements 0, 2, 4 ... of rows to `even`, the others to `odd`.
  void (*split_rows)(const float* from, int64_t from_step, int64_t rows, int64_t count, float* even, float* odd,
                     int64_t to_step);
  // The sum of products of two arrays of rows.
  float (*dot)(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows, int64_t count);
};
const DepthwiseLoops& depthwise_loops();

}  // namespace mica::cpu::convolution
