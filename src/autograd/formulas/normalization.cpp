// Normalisations by channel: fused kernels for first derivatives, compositions where the derivative is differentiated.
#include "autograd/formulas/normalization.h"

#include "autograd/formulas/seen.h"
#include "core/allocate.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "mica/autograd.h"
#include "mica/backend/layer_backend.h"
#include "mica/ops.h"
#include "shapes/normalization.h"

namespace mica::formulas {

namespace {

// One number per channel, shaped to broadcast with an input.
Tensor per_channel(const Tensor& t, const Tensor& input) {
  DimVector shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = t.numel();
  return t.reshape(shape);
}

using Gradients = std::tuple<Tensor, Tensor, Tensor>;

// `dims` are the dimensions over which a statistic is taken. `normal` is the normalised input, recorded so that it can
// be differentiated again.
Gradients composed_batch_norm(const Tensor& grad, const Tensor& input, const Tensor& weight, const Tensor& running_mean,
                              const Tensor& running_var, bool training, double eps, const std::array<bool, 3>& wanted) {
  DimVector dims;
  for (int64_t d = 0; d < input.dim(); ++d)
    if (d != 1) dims.push_back(d);
  const Tensor x = widened(input), upstream = widened(grad), w = widened(weight);
  Tensor centred, scale;
  if (training) {
    centred = x - mean(x, dims.ref(), true);
    scale = rsqrt(mean(centred * centred, dims.ref(), true) + Scalar(eps));
  } else {
    centred = x - per_channel(widened(running_mean), x);
    scale = rsqrt(per_channel(widened(running_var), x) + Scalar(eps));
  }
  const Tensor normal = centred * scale;
  Gradients result;
  if (wanted[0]) {
    const Tensor g = w.defined() ? upstream * per_channel(w, x) : upstream;
    std::get<0>(result) =
        training ? scale * (g - mean(g, dims.ref(), true) - normal * mean(g * normal, dims.ref(), true)) : scale * g;
  }
  if (wanted[1]) std::get<1>(result) = sum(upstream * normal, dims.ref());
  if (wanted[2]) std::get<2>(result) = sum(upstream, dims.ref());
  return result;
}

TensorOptions parameter_options(const Tensor& weight, const Tensor& input) {
  return weight.defined() ? weight.options() : input.options();
}

}  // namespace

Gradients batch_norm_backward(const Tensor& grad, const Tensor& input, const Tensor& weight, const Tensor& running_mean,
                              const Tensor& running_var, const Tensor& mean, const Tensor& rstd, bool training,
                              double eps, const std::array<bool, 3>& wanted) {
  if (!grad.defined()) return {};
  if (is_seen()) {
    const TensorVec made = seen("native_batch_norm_backward",
                                {grad, input, weight, running_mean, running_var, mean, rstd, training, eps,
                                 ArrayRef<bool>(wanted.data(), wanted.size())},
                                3, {grad, input, weight}, [=](const TensorVec& t) -> TensorVec {
                                  const auto [a, b, c] = composed_batch_norm(t[0], t[1], t[2], running_mean,
                                                                             running_var, training, eps, wanted);
                                  return {a, b, c};
                                });
    return {made[0], made[1], made[2]};
  }
  if (grad_enabled()) return composed_batch_norm(grad, input, weight, running_mean, running_var, training, eps, wanted);
  const shapes::ChannelLayout layout(input);
  const TensorOptions parameters = parameter_options(weight, input);
  Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) grad_input = empty_with_strides(input.sizes(), layout.strides, input.dtype(), input.device());
  if (wanted[1]) grad_weight = zeros({layout.channels}, parameters);
  if (wanted[2]) grad_bias = zeros({layout.channels}, parameters);
  if (!has_work(input)) return {grad_input, grad_weight, grad_bias};
  const Tensor m = training ? mean : running_mean.contiguous();
  const Tensor r = training ? rstd : rsqrt(widened(running_var) + Scalar(eps)).contiguous();
  const Tensor g = layout.of(grad), x = layout.of(input), w = weight.defined() ? weight.contiguous() : weight;
  const Tensor to = wanted[0] ? layout.of(grad_input) : Tensor();
  MICA_LAYER_KERNEL(input.device(), batch_norm_backward)
  (view_or_none(to), view_or_none(grad_weight), view_or_none(grad_bias), g.view_of(), x.view_of(), view_or_none(w),
   m.view_of(), r.view_of(), training);
  return {grad_input, grad_weight, grad_bias};
}

Gradients group_norm_backward(const Tensor& grad, const Tensor& input, const Tensor& weight, const Tensor& mean,
                              const Tensor& rstd, int64_t batch, int64_t channels, int64_t inner, int64_t groups,
                              double eps, const std::array<bool, 3>& wanted) {
  if (!grad.defined()) return {};
  if (is_seen()) {
    const TensorVec made = seen(
        "native_group_norm_backward",
        {grad, input, mean, rstd, weight, batch, channels, inner, groups, ArrayRef<bool>(wanted.data(), wanted.size())},
        3, {grad, input, weight}, [=](const TensorVec& t) -> TensorVec {
          const auto [a, b, c] =
              group_norm_backward(t[0], t[1], t[2], mean, rstd, batch, channels, inner, groups, eps, wanted);
          return {a, b, c};
        });
    return {made[0], made[1], made[2]};
  }
  Tensor grad_input, grad_weight, grad_bias;
  if (grad_enabled()) {
    const DimVector grouped{batch, groups, channels / groups * inner}, split{batch, channels, inner};
    const Tensor x = widened(input).reshape(grouped), upstream = widened(grad).reshape(split);
    const Tensor centred = x - mica::mean(x, 2, true);
    const Tensor scale = rsqrt(mica::mean(centred * centred, 2, true) + Scalar(eps)), normal = centred * scale;
    const Tensor g =
        (weight.defined() ? upstream * widened(weight).reshape({1, channels, 1}) : upstream).reshape(grouped);
    if (wanted[0])
      grad_input =
          (scale * (g - mica::mean(g, 2, true) - normal * mica::mean(g * normal, 2, true))).reshape(input.sizes());
    if (wanted[1]) grad_weight = sum(upstream * normal.reshape(split), IntArrayRef{0, 2});
    if (wanted[2]) grad_bias = sum(upstream, IntArrayRef{0, 2});
    return {grad_input, grad_weight, grad_bias};
  }
  const TensorOptions parameters = parameter_options(weight, input);
  if (wanted[0]) grad_input = empty_contiguous(input.sizes(), input.dtype(), input.device());
  if (wanted[1]) grad_weight = zeros({channels}, parameters);
  if (wanted[2]) grad_bias = zeros({channels}, parameters);
  if (!has_work(input)) return {grad_input, grad_weight, grad_bias};
  const DimVector shape{batch, channels, inner};
  const Tensor g = grad.contiguous().view(shape), x = input.contiguous().view(shape),
               w = weight.defined() ? weight.contiguous() : weight, to = wanted[0] ? grad_input.view(shape) : Tensor();
  MICA_LAYER_KERNEL(input.device(), group_norm_backward)
  (view_or_none(to), view_or_none(grad_weight), view_or_none(grad_bias), g.view_of(), x.view_of(), mean.view_of(),
   rstd.view_of(), view_or_none(w));
  return {grad_input, grad_weight, grad_bias};
}

}  // namespace mica::formulas
