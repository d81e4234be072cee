// Convolutions of small images, float32 with channels first. A product for each image would read the filters once per
// image. Here the columns of many images lie side by side, and one product takes them all.
#include <algorithm>
#include <vector>

#include "backends/cpu/convolution/columns.h"
#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/gemm/gemm.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

namespace {

constexpr int64_t kSmallImage = 64;        // an image of so many positions has enough columns for a product of its own
constexpr int64_t kColumnBytes = 1 << 22;  // the most bytes of columns of the images that are taken together
constexpr int64_t kCopyGrain = 1 << 14;

bool has_dense_planes(const Images& images) {
  if (images.positions() == 1) return images.channel_stride == 1;
  return !images.channels_last() && images.strides[2] == 1 && images.strides[1] == images.sizes[2] &&
         images.strides[0] == images.sizes[1] * images.sizes[2] && images.channel_stride == images.positions();
}

bool is_plain(const Problem& p) {
  return p.dtype == DType::Float32 && has_dense_planes(p.input) && has_dense_planes(p.output);
}

bool suits_together(const Problem& p) { return is_plain(p) && p.batch > 1 && p.output.positions() < kSmallImage; }

float* floats(char* data) { return reinterpret_cast<float*>(data); }

// Some images of one group, and their columns.
struct Together {
  const Problem& p;
  int64_t group, first, images;
  int64_t positions = p.output.positions(), columns = images * positions;

  // Calls body(image, first channel, number of channels) for parts of all images, in many threads.
  template <class Body>
  void for_each_channel(int64_t channels, int64_t work, const Body& body) const {
    parallel_for(0, images * channels, std::max<int64_t>(1, kCopyGrain / work), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i / channels, i % channels);
    });
  }
  Columns columns_of(int64_t image, char* data) const {
    return {data + image * positions * p.element_size, 0, positions, false, columns};
  }
  void gather(char* data) const {
    for_each_channel(p.channels, p.taps() * positions, [&](int64_t image, int64_t channel) {
      gather_columns(p, p.input_at(first + image, group), channel, channel + 1, columns_of(image, data));
    });
  }
  void scatter(char* data) const {
    const float* bias = p.bias ? static_cast<const float*>(p.bias) + group * p.channels : nullptr;
    for_each_channel(p.channels, p.taps() * positions, [&](int64_t image, int64_t channel) {
      char* target = p.input_at(first + image, group);
      std::fill_n(floats(target) + channel * p.input.channel_stride, p.input.positions(), bias ? bias[channel] : 0.0f);
      scatter_columns(p, target, channel, channel + 1, columns_of(image, data));
    });
  }
  // Copy the images of the output to a matrix with one row per filter, and back, adding the bias.
  void gather_output(float* rows) const {
    for_each_channel(p.filters, positions, [&](int64_t image, int64_t filter) {
      const float* from = floats(p.output_at(first + image, group)) + filter * positions;
      std::copy(from, from + positions, rows + filter * columns + image * positions);
    });
  }
  void scatter_output(const float* rows) const {
    const float* bias = reinterpret_cast<const float*>(p.bias_at(group));
    for_each_channel(p.filters, positions, [&](int64_t image, int64_t filter) {
      const float* from = rows + filter * columns + image * positions;
      float* to = floats(p.output_at(first + image, group)) + filter * positions;
      const float add = bias ? bias[filter] : 0.0f;
      for (int64_t i = 0; i < positions; ++i) to[i] = from[i] + add;
    });
  }
};

// Calls body(images, their columns, rows of the output) for all images of all groups.
template <class Body>
void for_each_together(const Problem& p, const Body& body) {
  const int64_t positions = p.output.positions();
  const int64_t fitting = kColumnBytes / std::max<int64_t>(1, p.depth() * positions * p.element_size);
  const int64_t images = equal_part(p.batch, std::max<int64_t>(1, fitting));
  const Scratch columns(static_cast<size_t>(p.depth() * images * positions * p.element_size));
  const Scratch output(static_cast<size_t>(p.filters * images * positions * p.element_size));
  for (int64_t g = 0; g < p.groups; ++g)
    for (int64_t first = 0; first < p.batch; first += images)
      body(Together{p, g, first, std::min(images, p.batch - first)}, columns.data(), output.as<float>());
}

GemmCall product(const Problem& p, int64_t m, int64_t n, int64_t k) {
  GemmCall call;
  call.dtype = p.dtype;
  call.m = m;
  call.n = n;
  call.k = k;
  call.c_col_stride = 1;
  return call;
}

}  // namespace

bool convolve_together(const Problem& p) {
  if (!suits_together(p) || !filters_are_ordered(p, false)) return false;
  for_each_together(p, [&](const Together& part, char* columns, float* output) {
    part.gather(columns);
    GemmCall call = product(p, p.filters, part.columns, p.depth());
    call.a = {p.weight_at(part.group), p.filter_stride, 1, 0};
    call.b = {columns, part.columns, 1, 0};
    call.c = output;
    call.c_row_stride = part.columns;
    gemm(call);
    part.scatter_output(output);
  });
  return true;
}

bool input_gradient_together(const Problem& p) {
  if (!suits_together(p) || !filters_are_ordered(p, false)) return false;
  for_each_together(p, [&](const Together& part, char* columns, float* output) {
    part.gather_output(output);
    GemmCall call = product(p, p.depth(), part.columns, p.filters);
    call.a = {p.weight_at(part.group), 1, p.filter_stride, 0};
    call.b = {output, part.columns, 1, 0};
    call.c = columns;
    call.c_row_stride = part.columns;
    gemm(call);
    part.scatter(columns);
  });
  return true;
}

bool weight_gradient_together(const Problem& p) {
  if (!suits_together(p)) return false;
  const bool ordered = filters_are_ordered(p, false);
  const int64_t row = ordered ? p.filter_stride : p.depth(), size = p.filters * row * p.element_size;
  const Scratch sums(ordered ? 0 : static_cast<size_t>(p.groups * size));
  char* weight = ordered ? p.weight : sums.data();
  for_each_together(p, [&](const Together& part, char* columns, float* output) {
    part.gather(columns);
    part.gather_output(output);
    GemmCall call = product(p, p.filters, p.depth(), part.columns);
    call.a = {output, part.columns, 1, 0};
    call.b = {columns, 1, part.columns, 0};
    call.c = weight + part.group * size;
    call.c_row_stride = row;
    call.beta = part.first > 0 ? 1 : 0;
    gemm(call);
  });
  if (!ordered) restore_filters(p, false, sums.data());
  return true;
}

bool is_whole(const Problem& p) {
  if (!is_plain(p) || !filters_are_ordered(p, false)) return false;
  for (int d = 0; d < 3; ++d)
    if (p.kernel[d] != p.input.sizes[d] || p.padding[d] != 0 || p.output.sizes[d] != 1 || p.dilation[d] != 1)
      return false;
  return true;
}

void convolve_whole(const Problem& p) {
  for (int64_t g = 0; g < p.groups; ++g) {
    GemmCall call = product(p, p.batch, p.filters, p.depth());
    call.a = {p.input_at(0, g), p.input.batch_stride, 1, 0};
    call.b = {p.weight_at(g), 1, p.filter_stride, 0};
    call.c = p.output_at(0, g);
    call.c_row_stride = p.output.batch_stride;
    call.bias = p.bias_at(g);
    gemm(call);
  }
}

void input_gradient_whole(const Problem& p) {
  std::vector<float> bias(p.bias ? static_cast<size_t>(p.depth()) : 0);
  for (int64_t g = 0; g < p.groups; ++g) {
    GemmCall call = product(p, p.batch, p.depth(), p.filters);
    call.a = {p.output_at(0, g), p.output.batch_stride, 1, 0};
    call.b = {p.weight_at(g), p.filter_stride, 1, 0};
    call.c = p.input_at(0, g);
    call.c_row_stride = p.input.batch_stride;
    if (p.bias) {
      for (int64_t c = 0; c < p.channels; ++c)
        std::fill_n(bias.begin() + c * p.taps(), p.taps(), static_cast<const float*>(p.bias)[g * p.channels + c]);
      call.bias = bias.data();
    }
    gemm(call);
  }
}

void weight_gradient_whole(const Problem& p) {
  for (int64_t g = 0; g < p.groups; ++g) {
    GemmCall call = product(p, p.filters, p.depth(), p.batch);
    call.a = {p.output_at(0, g), 1, p.output.batch_stride, 0};
    call.b = {p.input_at(0, g), p.input.batch_stride, 1, 0};
    call.c = p.weight_at(g);
    call.c_row_stride = p.filter_stride;
    gemm(call);
  }
}

}  // namespace mica::cpu::convolution
