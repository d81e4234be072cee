
#include "core/geometry.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

namespace {

// What torch chose before `dim` had to be given.
int64_t dim_or_default(const char* op, const Tensor& input, std::optional<int64_t> dim) {
  if (dim) return *dim;
  warn(mica::cat("Implicit dimension choice for ", op,
                 " has been deprecated. Change the call to include dim=X as an argument."));
  return input.dim() == 0 || input.dim() == 1 || input.dim() == 3 ? 0 : 1;
}

}  // namespace

Tensor functional_softmax(const Tensor& input, std::optional<int64_t> dim, int64_t, std::optional<DType> dtype) {
  return mica::softmax(input, dim_or_default("softmax", input, dim), dtype);
}
Tensor functional_log_softmax(const Tensor& input, std::optional<int64_t> dim, int64_t, std::optional<DType> dtype) {
  return mica::log_softmax(input, dim_or_default("log_softmax", input, dim), dtype);
}
Tensor softmin(const Tensor& input, std::optional<int64_t> dim, int64_t, std::optional<DType> dtype) {
  return mica::softmax(-input, dim_or_default("softmin", input, dim), dtype);
}

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
