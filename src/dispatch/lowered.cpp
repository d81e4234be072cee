#include "dispatch/lowered.h"

#include <limits>

#include "mica/generated/layers/loss_implementations.h"
#include "mica/layers.h"
#include "mica/ops.h"

namespace mica::dispatch::lowered {

Tensor isfinite(const Tensor& self) {
  if (self.is_complex()) return logical_and(lowered::isfinite(real(self)), lowered::isfinite(imag(self)));
  if (!self.is_floating_point()) return ones_like(self, TensorOptions(DType::Bool));
  const Tensor bounded = ne(abs(self), Scalar(std::numeric_limits<double>::infinity()));
  return eq(self, self) * bounded;
}

Tensor l1_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  const Tensor distances = abs(self - target);
  return reduction == 1 ? mean(distances) : reduction == 2 ? sum(distances) : distances;
}

Tensor log_sigmoid_backward(const Tensor& grad_output, const Tensor& self) { return grad_output * sigmoid(-self); }

Tensor _masked(const Tensor& self, const Tensor& mask) {
  return where(mask, self, scalar_tensor(Scalar(0.0), self.options().layout(Layout::Strided)));
}

std::tuple<Tensor, Tensor> _fused_rms_norm(const Tensor& input, IntArrayRef normalized_shape, const Tensor& weight,
                                           std::optional<double> eps) {
  const bool narrow = input.dtype() == DType::Float16 || input.dtype() == DType::BFloat16;
  const Tensor x = narrow ? input.to(DType::Float32) : input;
  DimVector dims;
  for (int64_t d = x.dim() - static_cast<int64_t>(normalized_shape.size()); d < x.dim(); ++d) dims.push_back(d);
  const double epsilon = eps.value_or(x.dtype() == DType::Float64 ? std::numeric_limits<double>::epsilon()
                                                                  : std::numeric_limits<float>::epsilon());
  const Tensor scale = rsqrt(mean(pow(x, Scalar(int64_t{2})), dims.ref(), true) + Scalar(epsilon));
  Tensor result = x * scale;
  if (weight.defined()) result = result * weight;
  return {result.dtype() == input.dtype() ? result : result.to(input.dtype()), scale};
}

namespace {

DimVector after(int64_t first, IntArrayRef rest) {
  DimVector all;
  if (!rest.empty()) all.push_back(first);
  for (const int64_t each : rest) all.push_back(each);
  return all;
}

}  // namespace

std::tuple<Tensor, Tensor> max_pool1d_with_indices(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                                                   IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  const auto [values, places] = max_pool2d_with_indices(self.unsqueeze(-2), after(1, kernel_size),
                                                        after(1, stride.empty() ? kernel_size : stride),
                                                        after(0, padding), after(1, dilation), ceil_mode);
  return {values.squeeze(-2), places.squeeze(-2)};
}

Tensor avg_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                  bool count_include_pad) {
  return avg_pool2d(self.unsqueeze(-2), after(1, kernel_size), after(1, stride.empty() ? kernel_size : stride),
                    after(0, padding), ceil_mode, count_include_pad, std::nullopt)
      .squeeze(-2);
}

Tensor _adaptive_avg_pool1d(const Tensor& self, IntArrayRef output_size) {
  return adaptive_avg_pool2d(self.unsqueeze(-2), after(1, output_size)).squeeze(-2);
}

std::tuple<Tensor, Tensor> adaptive_max_pool1d(const Tensor& self, IntArrayRef output_size) {
  const auto [values, places] = adaptive_max_pool2d(self.unsqueeze(-2), after(1, output_size));
  return {values.squeeze(-2), places.squeeze(-2)};
}

Tensor _max_pool_gather(const Tensor& self, const Tensor& indices, int64_t spatial_dims) {
  const auto flat = [&](const Tensor& t) {
    DimVector sizes(t.sizes().slice(0, t.sizes().size() - static_cast<size_t>(spatial_dims)));
    sizes.push_back(-1);
    return t.reshape(sizes);
  };
  return flat(self).gather(-1, flat(indices)).reshape(indices.sizes());
}

Tensor relu6(const Tensor& self) { return hardtanh(self, Scalar(int64_t{0}), Scalar(int64_t{6})); }

Tensor max_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(lowered::max_pool1d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

Tensor max_pool2d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(max_pool2d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

Tensor max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode) {
  return std::get<0>(max_pool3d_with_indices(self, kernel_size, stride, padding, dilation, ceil_mode));
}

Tensor cross_entropy_loss(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                          int64_t ignore_index, double label_smoothing) {
  if (target.is_floating_point() || self.dim() == 0)
    return composite::cross_entropy_loss(self, target, weight, reduction, ignore_index, label_smoothing);
  const int64_t dim = self.dim() == 1 ? 0 : 1;
  const Tensor scores = mica::log_softmax(self, dim, std::nullopt);
  const Tensor loss = nll_loss(scores, target, weight, reduction, ignore_index);
  if (label_smoothing == 0) return loss;
  DimVector row(static_cast<size_t>(self.dim()), 1);
  row[static_cast<size_t>(dim)] = self.size(dim);
  const Tensor ignored = target.eq(Scalar(ignore_index));
  Tensor spread = -sum(weight.defined() ? scores * weight.view(row) : scores, dim);
  spread = spread.masked_fill(ignored, Scalar(int64_t{0}));
  if (reduction == 1) {
    Tensor counted = ignored.logical_not().to(self.dtype());
    if (weight.defined()) {
      const Tensor labels = target.masked_fill(ignored, Scalar(int64_t{0}));
      counted = counted * weight.index_select(0, labels.reshape({-1})).view(target.sizes());
    }
    spread = spread.sum() / counted.sum();
  } else if (reduction == 2) {
    spread = spread.sum();
  }
  const double share = label_smoothing / static_cast<double>(self.size(dim));
  return loss * Scalar(1 - label_smoothing) + spread * Scalar(share);
}

}  // namespace mica::dispatch::lowered
