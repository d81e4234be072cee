#include "backends/cpu/convolution/correlation.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/pointwise/transpose.h"

namespace mica::cpu::convolution {

namespace {

constexpr int64_t kStreams = 16;  // planes that are read or written side by side

Plane plane_of(const Images& images) {
  return {reinterpret_cast<float*>(images.data),
          images.batch_stride,
          images.channel_stride,
          images.strides[1],
          images.strides[2],
          images.sizes[1],
          images.sizes[2]};
}

// to[c * to_stride + r] = from[r * from_stride + c]
void transpose_floats(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows,
                      int64_t columns) {
  transpose(sizeof(float), reinterpret_cast<const char*>(from), from_stride * static_cast<int64_t>(sizeof(float)),
            reinterpret_cast<char*>(to), to_stride * static_cast<int64_t>(sizeof(float)), rows, columns);
}

}  // namespace

bool is_planar(const Problem& p) {
  return p.dtype == DType::Float32 && p.kernel[0] == 1 && p.input.sizes[0] == 1 && p.output.sizes[0] == 1 &&
         p.padding[0] == 0;
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
  return c;
}

Correlation input_gradient_correlation(const Problem& p) {
  Correlation c = forward_correlation(p);
  std::swap(c.source, c.target);
  std::swap(c.channels, c.filters);
  std::swap(c.weight_channel, c.weight_filter);
  c.pad_y = c.dilation_y * (c.kernel_y - 1) - c.pad_y;
  c.pad_x = c.dilation_x * (c.kernel_x - 1) - c.pad_x;
  c.weight += (c.kernel_y - 1) * c.weight_y + (c.kernel_x - 1) * c.weight_x;
  c.weight_y = -c.weight_y;
  c.weight_x = -c.weight_x;
  return c;
}

void load_band(const Plane& source, int64_t image, int64_t first_channel, int64_t channels, const Band& band) {
  const float* from = source.data + image * source.batch_stride + first_channel * source.channel_stride;
  const int64_t left = std::clamp<int64_t>(-band.first_col, 0, band.cols);
  const int64_t right = std::clamp<int64_t>(source.width - band.first_col, left, band.cols);
  const int64_t low = std::clamp<int64_t>(-band.first_row, 0, band.rows);
  const int64_t high = std::clamp<int64_t>(source.height - band.first_row, low, band.rows);
  const auto source_at = [&](int64_t row) {
    return from + (band.first_row + row) * source.row_stride + (band.first_col + left) * source.col_stride;
  };
  if (band.channels_last) {
    const int64_t step = band.cols * channels;
    std::fill_n(band.data, low * step, 0.0f);
    for (int64_t r = low; r < high; ++r) {
      float* to = band.data + r * step;
      std::fill_n(to, left * channels, 0.0f);
      std::fill_n(to + right * channels, (band.cols - right) * channels, 0.0f);
    }
    std::fill_n(band.data + high * step, (band.rows - high) * step, 0.0f);
    if (source.channel_stride == 1) {
      for (int64_t r = low; r < high; ++r) {
        float* to = band.data + r * step + left * channels;
        const float* row = source_at(r);
        if (source.col_stride == channels) {
          std::memcpy(to, row, static_cast<size_t>((right - left) * channels) * sizeof(float));
          continue;
        }
        for (int64_t x = left; x < right; ++x, to += channels, row += source.col_stride)
          std::memcpy(to, row, static_cast<size_t>(channels) * sizeof(float));
      }
      return;
    }
    for (int64_t c = 0; c < channels; c += kStreams) {
      for (int64_t r = low; r < high; ++r) {
        transpose_floats(source_at(r) + c * source.channel_stride, source.channel_stride,
                         band.data + r * step + left * channels + c, channels, std::min(kStreams, channels - c),
                         right - left);
      }
    }
    return;
  }
  for (int64_t c = 0; c < channels; ++c) {
    float* plane = band.data + c * band.rows * band.cols;
    std::fill_n(plane, low * band.cols, 0.0f);
    for (int64_t r = low; r < high; ++r) {
      float* to = plane + r * band.cols;
      const float* row = source_at(r) + c * source.channel_stride;
      std::fill_n(to, left, 0.0f);
      if (source.col_stride == 1) {
        std::memcpy(to + left, row, static_cast<size_t>(right - left) * sizeof(float));
      } else {
        for (int64_t x = left; x < right; ++x, row += source.col_stride) to[x] = *row;
      }
      std::fill_n(to + right, band.cols - right, 0.0f);
    }
    std::fill_n(plane + high * band.cols, (band.rows - high) * band.cols, 0.0f);
  }
}

void store_positions(const Plane& target, int64_t image, int64_t first_channel, int64_t channels, int64_t first,
                     int64_t count, const float* rows) {
  float* to = target.data + image * target.batch_stride + first_channel * target.channel_stride + first;
  // Some channels at a time: more streams of writing would meet in the same sets of the cache.
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
