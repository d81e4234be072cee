// Layers and activations of tensors that are quantized per tensor: computed in float32, and rounded once.
#include "mica/generated/layouts/quantized.h"
#include "mica/layers.h"
#include "mica/ops.h"

namespace mica::layouts::quantized {
namespace {

void need_per_tensor(const char* name, const Tensor& self) {
  MICA_CHECK(!mica::_is_quantized_per_channel(self), name, ": expected a tensor that is quantized per tensor");
}

// Applies f to the numbers, and quantizes the result with the same scale and zero point.
template <class F>
Tensor rounded_alike(const char* name, const Tensor& self, const F& f) {
  need_per_tensor(name, self);
  return mica::quantize_per_tensor(f(self.dequantize()), self.q_scale(), self.q_zero_point(), self.dtype());
}

// The finest scale for results between `low` and `high`, whatever the numbers are.
Tensor rounded_between(const char* name, const Tensor& self, const Tensor& values, double low, double high) {
  need_per_tensor(name, self);
  if (self.dtype() == DType::Int32)
    return mica::quantize_per_tensor(values, (high - low) / 4294967296.0, 0, self.dtype());
  const int64_t least = self.dtype() == DType::UInt8 ? 0 : -128;
  return mica::quantize_per_tensor(values, (high - low) / 256.0, low < 0 ? least + 128 : least, self.dtype());
}

}  // namespace

std::tuple<Tensor, Tensor> _max_pool(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                                     IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, bool keep_indices) {
  Tensor indices;
  Tensor greatest = rounded_alike("max_pool", self, [&](const Tensor& x) {
    auto [values, places] = mica::_max_pool(x, kernel_size, stride, padding, dilation, ceil_mode, keep_indices);
    indices = places;
    return values;
  });
  return {greatest, indices};
}

Tensor avg_pool2d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                  bool count_include_pad, std::optional<int64_t> divisor_override) {
  return rounded_alike("avg_pool2d", self, [&](const Tensor& x) {
    return mica::avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
  });
}

Tensor avg_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                  bool count_include_pad, std::optional<int64_t> divisor_override) {
  return rounded_alike("avg_pool3d", self, [&](const Tensor& x) {
    return mica::avg_pool3d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
  });
}

Tensor _adaptive_avg_pool2d(const Tensor& self, IntArrayRef output_size) {
  return rounded_alike("adaptive_avg_pool2d", self,
                       [&](const Tensor& x) { return mica::_adaptive_avg_pool2d(x, output_size); });
}

Tensor _adaptive_avg_pool3d(const Tensor& self, IntArrayRef output_size) {
  return rounded_alike("adaptive_avg_pool3d", self,
                       [&](const Tensor& x) { return mica::_adaptive_avg_pool3d(x, output_size); });
}

Tensor _upsample(const Tensor& self, IntArrayRef output_size, std::string_view mode, bool align_corners, bool antialias,
                 ArrayRef<double> scales) {
  return rounded_alike("interpolate", self, [&](const Tensor& x) {
    return mica::_upsample(x, output_size, mode, align_corners, antialias, scales);
  });
}

Tensor mean(const Tensor& self, std::optional<IntArrayRef> dim, bool keepdim, std::optional<DType> dtype) {
  MICA_CHECK(!dtype || *dtype == self.dtype(), "mean: a quantized tensor keeps its dtype");
  return rounded_alike("mean", self, [&](const Tensor& x) { return mica::mean(x, dim, keepdim); });
}

Tensor hardtanh(const Tensor& self, const Scalar& min_val, const Scalar& max_val) {
  return rounded_alike("hardtanh", self, [&](const Tensor& x) { return mica::hardtanh(x, min_val, max_val); });
}

Tensor relu6(const Tensor& self) {
  return rounded_alike("relu6", self, [](const Tensor& x) { return mica::relu6(x); });
}

Tensor leaky_relu(const Tensor& self, const Scalar& negative_slope) {
  return rounded_alike("leaky_relu", self, [&](const Tensor& x) { return mica::leaky_relu(x, negative_slope); });
}

Tensor sigmoid(const Tensor& self) {
  return rounded_between("sigmoid", self, mica::sigmoid(self.dequantize()), 0.0, 1.0);
}

Tensor tanh(const Tensor& self) { return rounded_between("tanh", self, mica::tanh(self.dequantize()), -1.0, 1.0); }

Tensor hardsigmoid(const Tensor& self) {
  return rounded_between("hardsigmoid", self, mica::hardsigmoid(self.dequantize()), 0.0, 1.0);
}

}  // namespace mica::layouts::quantized
