#include "backends/cpu/convolution/problem.h"

#include <algorithm>

namespace mica::cpu::convolution {

namespace {

Images images_of(const TensorView& t) {
  Images images{static_cast<char*>(t.data), t.stride(0), t.stride(1), {1, 1, 1}, {0, 0, 0}};
  const int dims = t.ndim - 2;
  for (int d = 0; d < dims; ++d) {
    images.sizes[3 - dims + d] = t.size(2 + d);
    images.strides[3 - dims + d] = t.stride(2 + d);
  }
  // The stride of an extent of one is arbitrary. It is set so that positions follow each other.
  if (images.sizes[2] == 1) images.strides[2] = images.channel_stride == 1 ? t.size(1) : 1;
  for (int d = 1; d >= 0; --d) {
    if (images.sizes[d] == 1) images.strides[d] = images.sizes[d + 1] * images.strides[d + 1];
  }
  if (t.size(1) == 1) images.channel_stride = images.strides[2] == 1 ? images.positions() : 1;
  return images;
}

}  // namespace

Problem make_problem(const TensorView& input, const TensorView& output, const TensorView& weight,
                     const TensorView& bias, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                     int64_t groups) {
  Problem p;
  p.dtype = input.dtype;
  p.element_size = element_size(input.dtype);
  p.batch = input.size(0);
  p.groups = groups;
  p.channels = input.size(1) / groups;
  p.filters = output.size(1) / groups;
  p.input = images_of(input);
  p.output = images_of(output);
  p.weight = static_cast<char*>(weight.data);
  p.filter_stride = weight.stride(0);
  p.weight_channel_stride = weight.stride(1);
  p.bias = bias.data;
  const int dims = weight.ndim - 2;
  for (int d = 0; d < 3; ++d) {
    const int from = d - (3 - dims);
    p.kernel[d] = from < 0 ? 1 : weight.size(2 + from);
    p.tap_strides[d] = from < 0 ? 0 : weight.stride(2 + from);
    p.stride[d] = from < 0 ? 1 : stride[static_cast<size_t>(from)];
    p.padding[d] = from < 0 ? 0 : padding[static_cast<size_t>(from)];
    p.dilation[d] = from < 0 ? 1 : dilation[static_cast<size_t>(from)];
  }
  return p;
}

bool drop_unmet_taps(Problem& p) {
  if (p.input.positions() != 1 || p.output.positions() != 1 || p.taps() == 1 || p.groups != 1) return false;
  int64_t offset = 0;
  for (int d = 0; d < 3; ++d) {
    if (p.padding[d] % p.dilation[d] || p.padding[d] / p.dilation[d] >= p.kernel[d]) return false;  // no tap meets it
    offset += p.padding[d] / p.dilation[d] * p.tap_strides[d];
  }
  p.weight += offset * p.element_size;
  for (int d = 0; d < 3; ++d) {
    p.kernel[d] = p.stride[d] = p.dilation[d] = 1;
    p.padding[d] = 0;
  }
  return true;
}

bool Problem::is_pointwise() const {
  for (int d = 0; d < 3; ++d)
    if (kernel[d] != 1 || stride[d] != 1 || padding[d] != 0) return false;
  return true;
}

}  // namespace mica::cpu::convolution
