// Fake quantization: numbers rounded as integers would round them, in float, so that training sees the error.
#include "core/geometry.h"
#include "layouts/quantized/gradients.h"
#include "mica/generated/layers/quantized.h"
#include "mica/generated/layers/quantized_implementations.h"
#include "mica/ops.h"

namespace mica {

namespace composite {

static void check_range(int64_t quant_min, int64_t quant_max, int64_t zero_point) {
  MICA_CHECK(quant_min <= quant_max, "`quant_min` should be less than or equal to `quant_max`.");
  MICA_CHECK(zero_point >= quant_min && zero_point <= quant_max, "`zero_point` must be between `quant_min` and ",
             "`quant_max`.");
}

Tensor fake_quantize_per_tensor_affine(const Tensor& self, double scale, int64_t zero_point, int64_t quant_min,
                                       int64_t quant_max) {
  check_range(quant_min, quant_max, zero_point);
  MICA_CHECK(scale > 0, "`scale` must be positive, but is ", scale);
  return mica::_fake_quantize(self, full({}, Scalar(scale), TensorOptions(DType::Float32).device(self.device())),
                              full({}, Scalar(zero_point), TensorOptions(DType::Float32).device(self.device())),
                              quant_min, quant_max);
}

Tensor fake_quantize_per_tensor_affine(const Tensor& self, const Tensor& scale, const Tensor& zero_point,
                                       int64_t quant_min, int64_t quant_max) {
  MICA_CHECK(scale.numel() == 1 && zero_point.numel() == 1, "fake_quantize_per_tensor_affine: scale and zero_point ",
             "have one element each, but have sizes ", scale.sizes(), " and ", zero_point.sizes());
  return composite::fake_quantize_per_tensor_affine(self, scale.item<double>(), zero_point.item<int64_t>(), quant_min,
                                                    quant_max);
}

Tensor fake_quantize_per_channel_affine(const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t axis,
                                        int64_t quant_min, int64_t quant_max) {
  const int64_t d = wrap_dim(axis, self.dim());
  MICA_CHECK(scale.dim() == 1, "scale should be a 1-D tensor, but has size ", scale.sizes());
  MICA_CHECK(zero_point.dim() == 1, "zero point should be a 1-D tensor, but has size ", zero_point.sizes());
  MICA_CHECK(scale.numel() == zero_point.numel(), "scale and zero-point need to have the same dimensions");
  MICA_CHECK(scale.numel() == self.size(d), "dimensions of scale and zero-point are not consistent with input tensor");
  MICA_CHECK(quant_min <= quant_max, "`quant_min` should be less than or equal to `quant_max`.");
  if (zero_point.numel() > 0)
    MICA_CHECK(zero_point.min().item<double>() >= static_cast<double>(quant_min) &&
                   zero_point.max().item<double>() <= static_cast<double>(quant_max),
               "`zero_point` must be between `quant_min` and `quant_max`.");
  DimVector shape(static_cast<size_t>(self.dim()), 1);
  shape[d] = scale.numel();
  return mica::_fake_quantize(self, scale.detach().to(DType::Float32).reshape(shape),
                              zero_point.detach().to(DType::Float32).reshape(shape), quant_min, quant_max);
}

Tensor _fake_quantize(const Tensor& self, const Tensor& scale, const Tensor& zero_point, int64_t quant_min,
                      int64_t quant_max) {
  const Tensor steps = self.to(DType::Float32).mul(scale.reciprocal()).add(zero_point).round();
  return steps.clamp(Scalar(quant_min), Scalar(quant_max)).sub(zero_point).mul(scale).to(self.dtype());
}

}  // namespace composite

namespace formulas {

Tensor fake_quantize_backward(const Tensor& grad, const Tensor& self, const Tensor& scale, const Tensor& zero_point,
                              int64_t quant_min, int64_t quant_max) {
  const Tensor steps = self.detach().to(DType::Float32).mul(scale.reciprocal()).add(zero_point).round();
  const Tensor within = steps.ge(Scalar(quant_min)).logical_and(steps.le(Scalar(quant_max)));
  return grad.mul(within.to(grad.dtype()));
}

}  // namespace formulas

}  // namespace mica
