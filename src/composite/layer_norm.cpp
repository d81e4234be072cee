// layer_norm and rms_norm, in terms of the operations that also return their statistics.
#include <limits>

#include "core/geometry.h"
#include "mica/generated/layers/normalization.h"
#include "mica/generated/layers/normalization_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

Tensor layer_norm(const Tensor& input, IntArrayRef normalized_shape, const Tensor& weight, const Tensor& bias,
                  double eps, bool) {
  return std::get<0>(mica::native_layer_norm(input, normalized_shape, weight, bias, eps));
}
Tensor functional_layer_norm(const Tensor& input, IntArrayRef normalized_shape, const Tensor& weight,
                             const Tensor& bias, double eps) {
  return std::get<0>(mica::native_layer_norm(input, normalized_shape, weight, bias, eps));
}

Tensor rms_norm(const Tensor& input, IntArrayRef normalized_shape, const Tensor& weight, std::optional<double> eps) {
  if (!input.is_complex()) return std::get<0>(mica::_fused_rms_norm(input, normalized_shape, weight, eps));
  DimVector dims;
  for (int64_t d = input.dim() - static_cast<int64_t>(normalized_shape.size()); d < input.dim(); ++d) dims.push_back(d);
  const double epsilon = eps.value_or(input.dtype() == DType::Complex128 ? std::numeric_limits<double>::epsilon()
                                                                         : std::numeric_limits<float>::epsilon());
  const Tensor scaled = input * mica::rsqrt(mica::mean(input * input, dims.ref(), true) + Scalar(epsilon));
  return weight.defined() ? scaled * weight : scaled;
}
Tensor functional_rms_norm(const Tensor& input, IntArrayRef normalized_shape, const Tensor& weight,
                           std::optional<double> eps) {
  return mica::rms_norm(input, normalized_shape, weight, eps);
}

}  // namespace mica::composite
