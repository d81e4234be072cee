// layer_norm and rms_norm: fused kernels for first derivatives, compositions where the derivative is differentiated.
#include <limits>

#include "autograd/formulas/normalization.h"
#include "autograd/formulas/seen.h"
#include "core/allocate.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/recorded_rows.h"
#include "mica/autograd.h"
#include "mica/backend/layer_backend.h"
#include "mica/ops.h"

namespace mica::formulas {

namespace {

DimVector trailing_dims(const Tensor& t, size_t count) {
  DimVector dims;
  for (int64_t d = t.dim() - static_cast<int64_t>(count); d < t.dim(); ++d) dims.push_back(d);
  return dims;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& input,
                                                       IntArrayRef normalized_shape, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& weight, const Tensor& bias,
                                                       double eps, const std::array<bool, 3>& wanted) {
  Tensor grad_input, grad_weight, grad_bias;
  if (!grad.defined()) return {};
  if (is_seen()) {
    const DimVector shape(normalized_shape);
    const TensorVec made =
        seen("native_layer_norm_backward",
             {grad, input, normalized_shape, mean, rstd, weight, bias, ArrayRef<bool>(wanted.data(), wanted.size())}, 3,
             {grad, input, weight}, [=](const TensorVec& t) -> TensorVec {
               const auto [a, b, c] = layer_norm_backward(t[0], t[1], shape, mean, rstd, t[2], bias, eps, wanted);
               return {a, b, c};
             });
    return {made[0], made[1], made[2]};
  }
  const bool has_weight = weight.defined();
  if (grad_enabled()) {
    const DimVector dims = trailing_dims(input, normalized_shape.size());
    const Tensor x = widened(input), upstream = widened(grad), centred = x - mica::mean(x, dims.ref(), true);
    const Tensor scale = rsqrt(mica::mean(centred * centred, dims.ref(), true) + Scalar(eps)), normal = centred * scale;
    const Tensor g = has_weight ? upstream * weight : upstream;
    if (wanted[0])
      grad_input = scale * (g - mica::mean(g, dims.ref(), true) - normal * mica::mean(g * normal, dims.ref(), true));
    if (wanted[1]) grad_weight = (upstream * normal).sum_to_size(normalized_shape);
    if (wanted[2]) grad_bias = upstream.sum_to_size(normalized_shape);
    return {grad_input, grad_weight, grad_bias};
  }
  const Tensor g = grad.contiguous(), x = input.contiguous(), w = has_weight ? weight.contiguous() : weight;
  const TensorOptions parameters = has_weight ? weight.options() : input.options().dtype(mean.dtype());
  const int64_t count = count_elements(normalized_shape);
  const Tensor means = mean.contiguous(), scales = rstd.contiguous();
  const bool waits = wanted[0] && recording::norm_gradient_waits(g, x, means, scales, w, count);
  if (wanted[0]) grad_input = empty_contiguous(x.sizes(), x.dtype(), x.device(), waits);
  // The kernel writes the sums; over no rows they are zero.
  const auto room = [&] {
    return has_work(x) ? empty(normalized_shape, parameters) : zeros(normalized_shape, parameters);
  };
  if (wanted[1]) grad_weight = room();
  if (wanted[2]) grad_bias = room();
  if (has_work(x) &&
      !(waits && recording::put_off_norm_gradient({grad_input, grad_weight, grad_bias, g}, x, means, scales, w, count)))
    MICA_LAYER_KERNEL(x.device(), layer_norm_backward)
  (view_or_none(grad_input), view_or_none(grad_weight), view_or_none(grad_bias), g.view_of(), x.view_of(),
   means.view_of(), scales.view_of(), view_or_none(w), count);
  return {grad_input, grad_weight, grad_bias};
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& input, IntArrayRef normalized_shape,
                                             const Tensor& rstd, const Tensor& weight, std::optional<double> eps,
                                             const std::array<bool, 2>& wanted) {
  Tensor grad_input, grad_weight;
  if (!grad.defined()) return {};
  if (grad_enabled()) {
    const DimVector dims = trailing_dims(input, normalized_shape.size());
    const Tensor x = widened(input), upstream = widened(grad);
    const double epsilon = eps.value_or(x.dtype() == DType::Float64 ? std::numeric_limits<double>::epsilon()
                                                                    : std::numeric_limits<float>::epsilon());
    const Tensor scale = rsqrt(mica::mean(x * x, dims.ref(), true) + Scalar(epsilon)), normal = x * scale;
    const Tensor g = weight.defined() ? upstream * weight : upstream;
    if (wanted[0]) grad_input = scale * (g - normal * mica::mean(g * normal, dims.ref(), true));
    if (wanted[1]) grad_weight = (upstream * normal).sum_to_size(normalized_shape);
    return {grad_input, grad_weight};
  }
  const Tensor g = grad.contiguous(), x = input.contiguous(), w = weight.defined() ? weight.contiguous() : weight;
  const int64_t count = count_elements(normalized_shape);
  const Tensor scales = rstd.contiguous();
  const bool waits = wanted[0] && recording::norm_gradient_waits(g, x, {}, scales, w, count);
  if (wanted[0]) grad_input = empty_contiguous(x.sizes(), x.dtype(), x.device(), waits);
  if (wanted[1])
    grad_weight = has_work(x) ? empty(normalized_shape, weight.options()) : zeros(normalized_shape, weight.options());
  if (has_work(x) &&
      !(waits && recording::put_off_norm_gradient({grad_input, grad_weight, {}, g}, x, {}, scales, w, count)))
    MICA_LAYER_KERNEL(x.device(), rms_norm_backward)
  (view_or_none(grad_input), view_or_none(grad_weight), g.view_of(), x.view_of(), scales.view_of(), view_or_none(w),
   count);
  return {grad_input, grad_weight};
}

}  // namespace mica::formulas
