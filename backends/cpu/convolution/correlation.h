// What the float32 kernels compute: target(y, x) = sum over taps of weight times source(y * stride + tap), for images
// of two spatial dimensions. A convolution is one as it is. The gradient of its input is one too where the stride is
// one, with the filters turned round. Volumes are stacks of images: a plane of the target sums over planes of the
// source.
#pragma once

#include "backends/cpu/convolution/problem.h"

namespace mica::cpu::convolution {

struct Plane {
  float* data;
  int64_t batch_stride, channel_stride, row_stride, col_stride;
  int64_t height, width;

  bool channels_last() const { return channel_stride == 1 && col_stride != 1; }
};

struct Correlation {
  int64_t batch, groups;
  int64_t channels, filters;  // those of one group, on the source's and on the target's side
  Plane source, target;
  int64_t kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  const float* weight;  // the tap at (0, 0) of the first filter's first channel; its strides have any sign
  int64_t weight_group, weight_filter, weight_channel, weight_y, weight_x;
  const float* bias;
  int64_t source_planes = 1, target_planes = 1;
  int64_t source_plane_stride = 0, target_plane_stride = 0;
  int64_t kernel_z = 1, stride_z = 1, pad_z = 0, dilation_z = 1, weight_z = 0;
  recording::BlockWork* work = nullptr;  // what to run on finished blocks of the target, or null

  int64_t depth() const { return channels * kernel_z * kernel_y * kernel_x; }
  const float* weight_at(int64_t group, int64_t filter, int64_t channel) const {
    return weight + group * weight_group + filter * weight_filter + channel * weight_channel;
  }
};

// Whether the float32 kernels take the problem: images of at most two dimensions.
bool is_planar(const Problem& p);
bool is_volume(const Problem& p);  // images of three dimensions, which only the direct ways take
Correlation forward_correlation(const Problem& p);
Correlation input_gradient_correlation(const Problem& p);  // needs a stride of one

// to[c * to_stride + r] = from[r * from_stride + c]
void transpose_floats(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows,
                      int64_t columns);

// Rows of a source, with the zeros around them, as kernels read them: [row][column][channel] if channels_last, else
// [channel][row][column].
struct Band {
  float* data;
  int64_t first_row, rows;  // first_row counts from the image's first and may be negative
  int64_t first_col, cols;
  bool channels_last;

  int64_t row_step(int64_t channels) const { return channels_last ? cols * channels : cols; }
  int64_t col_step(int64_t channels) const { return channels_last ? channels : 1; }
  int64_t channel_step() const { return channels_last ? 1 : rows * cols; }
};
void load_band(const Plane& source, int64_t image, int64_t first_channel, int64_t channels, const Band& band);

// Writes positions [first, first + count) of `channels` of an image from `rows`, which have one position each.
void store_positions(const Plane& target, int64_t image, int64_t first_channel, int64_t channels, int64_t first,
                     int64_t count, const float* rows);
// Reads them into such rows.
void load_positions(const Plane& source, int64_t image, int64_t first_channel, int64_t channels, int64_t first,
                    int64_t count, float* rows);

// Whether there are so few positions that arranging the filters would cost more than the product with them as they are.
bool is_short(const Correlation& c);

// Direct convolution: each output is summed in registers, and vectors run along filters.
bool suits_direct(const Correlation& c);
void convolve_direct(const Correlation& c);

// The gradient of the source for strides of more than one. `c` is the forward correlation, whose bias is one of
// channels.
bool suits_direct_strided(const Correlation& c);
void input_gradient_strided(const Correlation& c);

// The gradient of the weight, from the source and the gradient of the target.
bool suits_direct_weight(const Correlation& c);
void weight_gradient_direct(const Correlation& c, float* weight);

}  // namespace mica::cpu::convolution
