#include "backends/cpu/convolution/correlation.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/pointwise/transpose.h"

namespace mica::cpu::convolution {

namespace {

constexpr int64_t kStreams = 16;  // the most planes that are read or written side by side

Plane plane_of(const Images& images) {
  return {reinterpret_cast<float*>(images.data),
          images.batch_stride,
          images.channel_stride,
          images.strides[1],
          images.strides[2],
          images.sizes[1],
          images.sizes[2]};
}

// The part of a band that lies in the image: columns [left, right) of rows [low, high).
struct Overlap {
  int64_t left, right, low, high;

  Overlap(const Plane& source, const Band& band) {
    left = std::clamp<int64_t>(-band.first_col, 0, band.cols);
    right = std::clamp<int64_t>(source.width - band.first_col, left, band.cols);
    low = std::clamp<int64_t>(-band.first_row, 0, band.rows);
    high = std::clamp<int64_t>(source.height - band.first_row, low, band.rows);
  }
};

// Fills the rows of a band: fetch(row, to) writes the columns that lie in the image, and zeros are put around them. A
// column has `width` floats. Rows are filled in order, so that a row may be moved up from a place behind its own.
template <class Fetch>
void fill_rows(float* band, int64_t rows, int64_t cols, int64_t width, const Overlap& in, const Fetch& fetch) {
  const int64_t step = cols * width;
  std::fill_n(band, in.low * step, 0.0f);
  for (int64_t r = in.low; r < in.high; ++r) {
    float* to = band + r * step;
    fetch(r, to + in.left * width);
    std::fill_n(to, in.left * width, 0.0f);
    std::fill_n(to + in.right * width, (cols - in.right) * width, 0.0f);
  }
  std::fill_n(band + in.high * step, (rows - in.high) * step, 0.0f);
}

void copy_floats(const float* from, float* to, int64_t count) {
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace

void transpose_floats(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows,
                      int64_t columns) {
  transpose(sizeof(float), reinterpret_cast<const char*>(from), from_stride * static_cast<int64_t>(sizeof(float)),
            reinterpret_cast<char*>(to), to_stride * static_cast<int64_t>(sizeof(float)), rows, columns);
}

bool is_planar(const Problem& p) {
  return p.dtype == DType::Float32 && p.kernel[0] == 1 && p.input.sizes[0] == 1 && p.output.sizes[0] == 1 &&
         p.padding[0] == 0;
}

bool is_volume(const Problem& p) { return p.dtype == DType::Float32 && !is_planar(p); }

bool is_short(const Correlation& c) {
  constexpr int64_t kFewPositions = 64, kLargeFilters = 1 << 18;
  return c.batch * c.target_planes * c.target.height * c.target.width <= kFewPositions && c.groups == 1 &&
         c.depth() * c.filters >= kLargeFilters;
}

Correlation forward_correlation(const Problem& p) {
  Correlation c;
  c.batch = p.batch;
  c.groups = p.groups;
  c.channels = p.channels;
  c.filters = p.filters;
  c.source = plane_of(p.input);
  c.target = plane_of(p.output);
  c.kernel_y = p.kernel[1], c.kernel_x = p.kernel[2];
  c.stride_y = p.stride[1], c.stride_x = p.stride[2];
  c.pad_y = p.padding[1], c.pad_x = p.padding[2];
  c.dilation_y = p.dilation[1], c.dilation_x = p.dilation[2];
  c.weight = reinterpret_cast<const float*>(p.weight);
  c.weight_group = p.filters * p.filter_stride;
  c.weight_filter = p.filter_stride;
  c.weight_channel = p.weight_channel_stride;
  c.weight_y = p.tap_strides[1], c.weight_x = p.tap_strides[2];
  c.bias = static_cast<const float*>(p.bias);
  c.source_planes = p.input.sizes[0], c.target_planes = p.output.sizes[0];
  c.source_plane_stride = p.input.strides[0], c.target_plane_stride = p.output.strides[0];
  c.kernel_z = p.kernel[0], c.stride_z = p.stride[0], c.pad_z = p.padding[0], c.dilation_z = p.dilation[0];
  c.weight_z = p.tap_strides[0];
  c.work = p.work;
  return c;
}

Correlation input_gradient_correlation(const Problem& p) {
  Correlation c = forward_correlation(p);
  std::swap(c.source, c.target);
  std::swap(c.channels, c.filters);
  std::swap(c.weight_channel, c.weight_filter);
  std::swap(c.source_planes, c.target_planes);
  std::swap(c.source_plane_stride, c.target_plane_stride);
  c.pad_y = c.dilation_y * (c.kernel_y - 1) - c.pad_y;
  c.pad_x = c.dilation_x * (c.kernel_x - 1) - c.pad_x;
  c.pad_z = c.dilation_z * (c.kernel_z - 1) - c.pad_z;
  c.weight += (c.kernel_z - 1) * c.weight_z + (c.kernel_y - 1) * c.weight_y + (c.kernel_x - 1) * c.weight_x;
  c.weight_z = -c.weight_z;
  c.weight_y = -c.weight_y;
  c.weight_x = -c.weight_x;
  return c;
}

void load_band(const Plane& source, int64_t image, int64_t first_channel, int64_t channels, const Band& band) {
  const Overlap in(source, band);
  const int64_t width = in.right - in.left;
  const float* corner = source.data + image * source.batch_stride + first_channel * source.channel_stride +
                        (band.first_row + in.low) * source.row_stride + (band.first_col + in.left) * source.col_stride;
  const auto row_of = [&](int64_t r) { return corner + (r - in.low) * source.row_stride; };

  if (!band.channels_last) {
    for (int64_t c = 0; c < channels; ++c) {
      fill_rows(band.data + c * band.rows * band.cols, band.rows, band.cols, 1, in, [&](int64_t r, float* to) {
        const float* from = row_of(r) + c * source.channel_stride;
        if (source.col_stride == 1) return copy_floats(from, to, width);
        for (int64_t x = 0; x < width; ++x) to[x] = from[x * source.col_stride];
      });
    }
    return;
  }
  if (source.channel_stride == 1) {
    fill_rows(band.data, band.rows, band.cols, channels, in, [&](int64_t r, float* to) {
      const float* from = row_of(r);
      if (source.col_stride == channels) return copy_floats(from, to, width * channels);
      for (int64_t x = 0; x < width; ++x) copy_floats(from + x * source.col_stride, to + x * channels, channels);
    });
    return;
  }
  if (width == source.row_stride) {
    // All rows are transposed at once to the end of the band, and then moved up to their places.
    const int64_t count = (in.high - in.low) * width;
    float* turned = band.data + (band.rows * band.cols - count) * channels;
    for (int64_t c = 0; c < channels; c += kStreams)
      transpose_floats(corner + c * source.channel_stride, source.channel_stride, turned + c, channels,
                       std::min(kStreams, channels - c), count);
    fill_rows(band.data, band.rows, band.cols, channels, in, [&](int64_t r, float* to) {
      const float* from = turned + (r - in.low) * width * channels;
      if (from != to) std::memmove(to, from, static_cast<size_t>(width * channels) * sizeof(float));
    });
    return;
  }
  fill_rows(band.data, band.rows, band.cols, channels, in, [&](int64_t r, float* to) {
    for (int64_t c = 0; c < channels; c += kStreams)
      transpose_floats(row_of(r) + c * source.channel_stride, source.channel_stride, to + c, channels,
                       std::min(kStreams, channels - c), width);
  });
}

void store_positions(const Plane& target, int64_t image, int64_t first_channel, int64_t channels, int64_t first,
                     int64_t count, const float* rows) {
  float* to = target.data + image * target.batch_stride + first_channel * target.channel_stride + first;
  // Some channels are written at a time: more streams would fall into the same sets of the cache.
  for (int64_t c = 0; c < channels; c += kStreams) {
    transpose_floats(rows + c, channels, to + c * target.channel_stride, target.channel_stride, count,
                     std::min(kStreams, channels - c));
  }
}

void load_positions(const Plane& source, int64_t image, int64_t first_channel, int64_t channels, int64_t first,
                    int64_t count, float* rows) {
  const float* from = source.data + image * source.batch_stride + first_channel * source.channel_stride;
  transpose_floats(from + first, source.channel_stride, rows, channels, channels, count);
}

}  // namespace mica::cpu::convolution
