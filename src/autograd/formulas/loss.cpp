// Losses: one kernel for first derivatives, compositions where the derivative is itself differentiated.
#include "autograd/formulas/loss.h"

#include "autograd/formulas/seen.h"
#include "core/allocate.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/pointwise.h"
#include "mica/autograd.h"
#include "mica/backend/layer_backend.h"
#include "mica/ops.h"
#include "shapes/ctc.h"
#include "shapes/loss.h"

namespace mica::formulas {

namespace {

using shapes::AlikePair;
using shapes::ClassRows;

double mean_factor(const Tensor& self, const Tensor& target, int64_t reduction) {
  if (reduction != kMean) return 1;
  const bool same = self.sizes() == target.sizes();
  return 1.0 / static_cast<double>(same ? self.numel() : count_elements(broadcast_sizes(self.sizes(), target.sizes())));
}

// The gradient of the input, by the kernel.
Tensor pair_loss_backward(PairLoss kind, const Tensor& grad, const Tensor& self, const Tensor& target, double parameter,
                          double scale) {
  const AlikePair pair(self, target);
  const Tensor result = empty_dense_like(pair.input, pair.input.dtype(), pair.input.device());
  if (!has_work(result)) return result;
  Tensor g = grad.dtype() == result.dtype() ? grad : grad.to(result.dtype());
  if (g.numel() > 1 && g.strides() != result.strides())
    g = empty_dense_like(result, result.dtype(), result.device()).copy_(g);
  MICA_LAYER_KERNEL(result.device(), pair_loss_backward)
  (result.view_of(), g.view_of(), pair.input.view_of(), pair.target.view_of(), static_cast<int64_t>(kind), parameter,
   scale);
  return result;
}

// For losses whose gradients torch's operators compute one at a time: the gradient by the target is that by the input
// with the two exchanged.
std::tuple<Tensor, Tensor> seen_distance_loss(PairLoss kind, const Tensor& grad, const Tensor& self,
                                              const Tensor& target, double parameter, int64_t reduction,
                                              const std::array<bool, 2>& wanted) {
  const auto one = [&](const Tensor& a, const Tensor& b) -> Tensor {
    const TensorVec inputs{grad, a, b};
    const Composed composed = [=](const TensorVec& t) -> TensorVec {
      return {std::get<0>(distance_loss_backward(kind, t[0], t[1], t[2], parameter, reduction, {true, false}))};
    };
    if (kind == PairLoss::Squared) return seen_one("mse_loss_backward", {grad, a, b, reduction}, inputs, composed);
    const char* name = kind == PairLoss::Huber ? "huber_loss_backward" : "smooth_l1_loss_backward";
    return seen_one(name, {grad, a, b, reduction, parameter}, inputs, composed);
  };
  return {wanted[0] ? one(self, target) : Tensor(), wanted[1] ? one(target, self) : Tensor()};
}

// d loss / d input as operations, for losses of the difference d.
Tensor slope(PairLoss kind, const Tensor& d, double parameter) {
  switch (kind) {
    case PairLoss::Squared:
      return d * Scalar(2);
    case PairLoss::SmoothAbsolute:
      return clamp(d / Scalar(parameter), Scalar(-1), Scalar(1));
    case PairLoss::Huber:
      return clamp(d, Scalar(-parameter), Scalar(parameter));
    default:
      return sgn(d);
  }
}

}  // namespace

std::tuple<Tensor, Tensor> distance_loss_backward(PairLoss kind, const Tensor& grad, const Tensor& self,
                                                  const Tensor& target, double parameter, int64_t reduction,
                                                  const std::array<bool, 2>& wanted) {
  if (is_seen() && kind != PairLoss::Absolute)
    return seen_distance_loss(kind, grad, self, target, parameter, reduction, wanted);
  if (kind == PairLoss::SmoothAbsolute && parameter == 0) kind = PairLoss::Absolute;
  const double scale = mean_factor(self, target, reduction);
  if (grad_enabled() || dispatch::active || self.is_complex() || target.is_complex()) {
    const Tensor g = grad * slope(kind, self - target, parameter) * Scalar(scale);
    return {g, wanted[1] ? -g : Tensor()};
  }
  if (!wanted[0]) return {Tensor(), pair_loss_backward(kind, grad, self, target, parameter, -scale)};
  const Tensor g = pair_loss_backward(kind, grad, self, target, parameter, scale);
  return {g, wanted[1] ? -g : Tensor()};
}

std::tuple<Tensor, Tensor> binary_cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                                                         int64_t reduction, const std::array<bool, 2>& wanted) {
  const double scale = mean_factor(self, target, reduction);
  Tensor grad_self, grad_target;
  if (wanted[0] && is_seen()) {
    grad_self =
        seen_one("binary_cross_entropy_backward", {grad, self, target, Tensor(), reduction}, {grad, self, target},
                 [=](const TensorVec& t) -> TensorVec {
                   return {std::get<0>(binary_cross_entropy_backward(t[0], t[1], t[2], reduction, {true, false}))};
                 });
  } else if (wanted[0] && grad_enabled()) {
    const Tensor spread = clamp_min((Scalar(1) - self) * self, Scalar(1e-12));
    grad_self = grad * (self - target) / spread * Scalar(scale);
  } else if (wanted[0]) {
    grad_self = pair_loss_backward(PairLoss::BinaryCrossEntropy, grad, self, target, 0, scale);
  }
  if (wanted[1]) grad_target = grad * (log1p(-self) - log(self)) * Scalar(scale);
  return {grad_self, grad_target};
}

std::tuple<Tensor, Tensor> binary_cross_entropy_with_logits_backward(const Tensor& grad, const Tensor& self,
                                                                     const Tensor& target, int64_t reduction,
                                                                     const std::array<bool, 2>& wanted) {
  const double scale = mean_factor(self, target, reduction);
  Tensor grad_self, grad_target;
  if (wanted[0] && (grad_enabled() || dispatch::active)) {
    grad_self = grad * (sigmoid(self) - target) * Scalar(scale);
  } else if (wanted[0]) {
    grad_self = pair_loss_backward(PairLoss::BinaryCrossEntropyOfLogit, grad, self, target, 0, scale);
  }
  if (wanted[1]) grad_target = grad * self * Scalar(-scale);
  return {grad_self, grad_target};
}

namespace {

// The dimension of an input along which its classes lie.
int64_t class_dim(IntArrayRef sizes) { return sizes.size() > 1 ? 1 : 0; }

// For every element of an input what the loss counts against its log-probability: the weight of the target class at the
// target, nothing elsewhere; with label smoothing a share of every class's weight too.
Tensor class_shares(IntArrayRef sizes, const TensorOptions& options, const Tensor& target, const Tensor& weight,
                    int64_t ignore_index, double label_smoothing) {
  const int64_t dim = class_dim(sizes), classes = sizes[static_cast<size_t>(dim)];
  DimVector row(sizes.size(), 1), one(sizes);
  row[static_cast<size_t>(dim)] = classes;
  one[static_cast<size_t>(dim)] = 1;
  const Tensor labels = target.to(DType::Int64).reshape(one), counted = labels.ne(Scalar(ignore_index));
  const Tensor places = where(counted, labels, zeros_like(labels));
  Tensor shares = zeros(sizes, options).scatter(dim, places, Scalar(1 - label_smoothing));
  if (label_smoothing > 0) shares = shares + Scalar(label_smoothing / static_cast<double>(classes));
  if (weight.defined()) shares = shares * weight.reshape(row);
  return shares * counted.to(options.dtype());
}

// The factor by which each row's loss is multiplied: from the gradient of a sum or a mean, or from each row's own.
Tensor row_factor(const Tensor& grad, IntArrayRef sizes, const Tensor& total_weight, int64_t reduction) {
  if (reduction == kNone) {
    DimVector one(sizes);
    one[static_cast<size_t>(class_dim(sizes))] = 1;
    return grad.reshape(one);
  }
  return reduction == kMean ? grad / total_weight : grad;
}

}  // namespace

Tensor nll_loss_backward(const Tensor& grad, IntArrayRef sizes, const TensorOptions& options, const Tensor& self,
                         const Tensor& target, const Tensor& weight, const Tensor& total_weight, int64_t reduction,
                         int64_t ignore_index) {
  if (!grad.defined()) return {};
  if (self.defined() && is_seen()) {
    const DimVector own(sizes);
    return seen_one(
        sizes.size() == 4 ? "nll_loss2d_backward" : "nll_loss_backward",
        {grad, self, target, weight, reduction, ignore_index, total_weight}, {grad},
        [=](const TensorVec& t) -> TensorVec {
          return {nll_loss_backward(t[0], own, options, self, target, weight, total_weight, reduction, ignore_index)};
        });
  }
  if (grad_enabled())
    return -(class_shares(sizes, options, target, weight, ignore_index, 0) *
             row_factor(grad, sizes, total_weight.detach(), reduction));
  const Tensor result = zeros(sizes, options);
  if (!has_work(result)) return result;
  const ClassRows rows(result, target);
  const Tensor g = grad.contiguous(), w = weight.defined() ? weight.contiguous() : weight;
  MICA_LAYER_KERNEL(result.device(), nll_loss_backward)
  (rows.input.view_of(), g.view_of(), rows.labels.view_of(), view_or_none(w), total_weight.view_of(), reduction,
   ignore_index);
  return result;
}

Tensor cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target, const Tensor& weight,
                              const Tensor& statistics, int64_t reduction, int64_t ignore_index,
                              double label_smoothing) {
  if (!grad.defined()) return {};
  if (grad_enabled()) {
    const int64_t dim = class_dim(self.sizes());
    const Tensor shares = class_shares(self.sizes(), self.options(), target, weight, ignore_index, label_smoothing);
    const Tensor factor =
        row_factor(grad, self.sizes(), statistics.detach()[statistics.numel() - 1].to(self.dtype()), reduction);
    return (softmax(self, dim) * sum(shares, dim, true) - shares) * factor;
  }
  const Tensor result = empty_dense_like(self, self.dtype(), self.device());
  if (!has_work(result)) return result;
  const ClassRows rows(self, target), places(result, target);
  const Tensor input = rows.input.contiguous(), g = grad.contiguous(),
               w = weight.defined() ? weight.contiguous() : weight;
  // The kernel writes contiguous rows: the result's own where its layout is the input's or plain.
  const bool direct = rows.classes_last == places.classes_last && places.input.is_contiguous() &&
                      places.input.data_ptr() == result.data_ptr();
  const Tensor to = direct ? places.input : empty_like(input);
  MICA_LAYER_KERNEL(result.device(), cross_entropy_backward)
  (to.view_of(), g.view_of(), input.view_of(), rows.labels.view_of(), view_or_none(w), statistics.view_of(), reduction,
   ignore_index, label_smoothing);
  if (!direct) return to.view(self.sizes());
  return result;
}

Tensor ctc_loss_double_backward() { fail("derivative for aten::_ctc_loss_backward is not implemented"); }

}  // namespace mica::formulas
