// Losses of numbers and probabilities. The functions of nn.functional check and warn as torch's do, and call the
// operation below.
#include <cmath>
#include <numbers>

#include "composite/reduce_loss.h"
#include "core/geometry.h"
#include "mica/autograd.h"
#include "mica/generated/layers/loss.h"
#include "mica/generated/layers/loss_implementations.h"
#include "mica/warning.h"
#include "shapes/loss.h"

namespace mica::composite {

int64_t reduction_of(std::string_view name) {
  if (name == "mean") return kMean;
  if (name == "sum") return kSum;
  if (name == "none") return kNone;
  MICA_CHECK_KIND(name == "elementwise_mean", Value, name, " is not a valid value for reduction");
  warn("reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.");
  return kMean;
}

int64_t reduction_of(std::optional<bool> size_average, std::optional<bool> reduce, std::string_view name) {
  if (!size_average && !reduce) return reduction_of(name);
  const int64_t reduction = !reduce.value_or(true) ? kNone : size_average.value_or(true) ? kMean : kSum;
  warn(mica::cat("size_average and reduce args will be deprecated, please use reduction='",
                 reduction == kNone   ? "none"
                 : reduction == kMean ? "mean"
                                      : "sum",
                 "' instead."));
  return reduction;
}

namespace {

std::string size_text(const Tensor& t) { return mica::cat("torch.Size(", t.sizes(), ")"); }

void warn_of_broadcast(const Tensor& input, const Tensor& target) {
  if (input.sizes() == target.sizes()) [[likely]]
    return;
  warn(mica::cat("Using a target size (", size_text(target), ") that is different to the input size (",
                 size_text(input),
                 "). This will likely lead to incorrect results due to broadcasting. "
                 "Please ensure they have the same size."));
}

void check_weight(const Tensor& weight, const Tensor& input) {
  MICA_CHECK_KIND(weight.sizes() == input.sizes(), Value, "Weights and input must have the same size. Got ",
                  weight.sizes(), " and ", input.sizes());
}

// The mean divides by the sum of the weights.
Tensor weighted(const Tensor& elements, const Tensor& weight, int64_t reduction) {
  const Tensor products = elements * weight;
  return reduction == kMean ? sum(products) / sum(weight) : reduced(products, reduction);
}

bool has_probabilities(const Tensor& input, const Tensor& target) { return input.sizes() == target.sizes(); }

Tensor cross_entropy_of_probabilities(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                                      double label_smoothing) {
  MICA_CHECK(target.is_floating_point(), "Expected floating point type for target with class probabilities, got ",
             info(target.dtype()).legacy);
  const int64_t dim = self.dim() == 1 ? 0 : 1, classes = self.size(dim);
  MICA_CHECK(
      !weight.defined() || (weight.dim() == 1 && weight.numel() == classes),
      "cross_entropy: weight tensor should be defined either for all ", classes,
      " classes or no classes but got weight tensor of shape: ", weight.defined() ? weight.sizes() : IntArrayRef());
  Tensor shares = target;
  if (label_smoothing > 0)
    shares = shares * Scalar(1 - label_smoothing) + Scalar(label_smoothing / static_cast<double>(classes));
  Tensor products = log_softmax(self, dim) * shares;
  if (weight.defined()) {
    DimVector shape(static_cast<size_t>(self.dim()), 1);
    shape[static_cast<size_t>(dim)] = classes;
    products = products * weight.view(shape);
  }
  if (reduction == kNone) return -sum(products, dim);
  if (reduction == kSum) return -sum(products);
  return -sum(products) / Scalar(static_cast<double>(self.numel()) / static_cast<double>(classes));
}

}  // namespace

// ---- differences

Tensor functional_mse_loss(const Tensor& input, const Tensor& target, std::optional<bool> size_average,
                           std::optional<bool> reduce, std::string_view reduction, const Tensor& weight) {
  warn_of_broadcast(input, target);
  const int64_t how = reduction_of(size_average, reduce, reduction);
  if (!weight.defined()) return mica::mse_loss(input, target, how);
  check_weight(weight, input);
  return weighted(square(input - target), weight, how);
}

Tensor functional_l1_loss(const Tensor& input, const Tensor& target, std::optional<bool> size_average,
                          std::optional<bool> reduce, std::string_view reduction, const Tensor& weight) {
  warn_of_broadcast(input, target);
  const int64_t how = reduction_of(size_average, reduce, reduction);
  if (!weight.defined()) return mica::l1_loss(input, target, how);
  check_weight(weight, input);
  return weighted(abs(input - target), weight, how);
}

Tensor functional_smooth_l1_loss(const Tensor& input, const Tensor& target, std::optional<bool> size_average,
                                 std::optional<bool> reduce, std::string_view reduction, double beta) {
  warn_of_broadcast(input, target);
  const int64_t how = reduction_of(size_average, reduce, reduction);
  return beta == 0 ? mica::l1_loss(input, target, how) : mica::smooth_l1_loss(input, target, how, beta);
}

Tensor functional_huber_loss(const Tensor& input, const Tensor& target, std::string_view reduction, double delta,
                             const Tensor& weight) {
  warn_of_broadcast(input, target);
  const int64_t how = reduction_of(reduction);
  if (!weight.defined()) return mica::huber_loss(input, target, how, delta);
  check_weight(weight, input);
  return reduced(mica::huber_loss(input, target, kNone, delta) * weight, how);  // as in torch, the mean is not weighted
}

Tensor functional_gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full, double eps,
                                    std::string_view reduction) {
  MICA_CHECK_KIND(var.is_meta() || !any(var.lt(Scalar(0))).item<bool>(), Value, "var has negative entry/entries");
  Tensor variance = var;
  if (var.sizes() != input.sizes()) {
    const size_t n = static_cast<size_t>(input.dim());
    if (n && input.sizes().slice(0, n - 1) == var.sizes()) {
      variance = var.unsqueeze(-1);
    } else {
      // A single dimension may have one variance for all.
      int64_t differing = 0;
      for (size_t d = 0; d < n && var.dim() == input.dim(); ++d)
        if (input.sizes()[d] != var.sizes()[d]) differing += var.sizes()[d];
      MICA_CHECK_KIND(var.dim() == input.dim() && differing == 1, Value, "var is of incorrect size: ", var.sizes(),
                      " for an input of ", input.sizes());
    }
  }
  MICA_CHECK_KIND(reduction == "none" || reduction == "mean" || reduction == "sum", Value, reduction, " is not valid");
  variance = variance.clone();
  {
    NoGradGuard unrecorded;  // unrecorded, so that the gradient of a variance below eps is that at eps
    variance.clamp_(Scalar(eps));
  }
  Tensor loss = (log(variance) + square(input - target) / variance) * Scalar(0.5);
  if (full) loss = loss + Scalar(0.5 * std::log(2 * std::numbers::pi));
  return reduced(loss, reduction_of(reduction));
}

Tensor functional_gaussian_nll_loss(const Tensor& input, const Tensor& target, double var, bool full, double eps,
                                    std::string_view reduction) {
  MICA_CHECK_KIND(!(var < 0), Value, "var has negative entry/entries");
  return composite::functional_gaussian_nll_loss(input, target, ones_like(input) * Scalar(var), full, eps, reduction);
}

Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full, double eps,
                        int64_t reduction) {
  Tensor loss = log_input ? exp(input) - target * input : input - target * log(input + Scalar(eps));
  if (full) {
    const Tensor stirling = target * log(target) - target + log(target * Scalar(2 * std::numbers::pi)) * Scalar(0.5);
    loss = loss + stirling.masked_fill(target.le(Scalar(1)), Scalar(0));
  }
  return reduced(loss, reduction);
}

Tensor functional_poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full,
                                   std::optional<bool> size_average, double eps, std::optional<bool> reduce,
                                   std::string_view reduction) {
  return mica::poisson_nll_loss(input, target, log_input, full, eps, reduction_of(size_average, reduce, reduction));
}

// ---- probabilities

Tensor binary_cross_entropy(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction) {
  if (!weight.defined()) return mica::_binary_cross_entropy(self, target, reduction);
  return reduced(mica::_binary_cross_entropy(self, target, kNone) * weight, reduction);
}

Tensor functional_binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                                       std::optional<bool> size_average, std::optional<bool> reduce,
                                       std::string_view reduction) {
  const int64_t how = reduction_of(size_average, reduce, reduction);
  MICA_CHECK_KIND(input.sizes() == target.sizes(), Value, "Using a target size (", size_text(target),
                  ") that is different to the input size (", size_text(input),
                  ") is deprecated. Please ensure they have the same size.");
  const Tensor factors = weight.defined() ? weight.expand(broadcast_sizes(target.sizes(), weight.sizes())) : weight;
  return mica::binary_cross_entropy(input, target, factors, how);
}

Tensor binary_cross_entropy_with_logits(const Tensor& self, const Tensor& target, const Tensor& weight,
                                        const Tensor& pos_weight, int64_t reduction) {
  // The loss has the target's dtype, as in torch.
  const auto like_target = [&](const Tensor& t) { return target.is_floating_point() ? t.to(target.dtype()) : t; };
  if (!pos_weight.defined() && !weight.defined())
    return like_target(mica::_binary_cross_entropy_with_logits(self, target, reduction));
  Tensor loss;
  if (pos_weight.defined()) {
    // -(w t log(s) + (1 - t) log(1 - s)) with log(1 - s) = log(s) - x.
    const Tensor share = (pos_weight - Scalar(1)) * target + Scalar(1);
    loss = (Scalar(1) - target) * self - share * log_sigmoid(self);
  } else {
    loss = mica::_binary_cross_entropy_with_logits(self, target, kNone);
  }
  return reduced(like_target(weight.defined() ? loss * weight : loss), reduction);
}

Tensor functional_binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight,
                                                   std::optional<bool> size_average, std::optional<bool> reduce,
                                                   std::string_view reduction, const Tensor& pos_weight) {
  const int64_t how = reduction_of(size_average, reduce, reduction);
  MICA_CHECK_KIND(input.sizes() == target.sizes(), Value, "Target size (", size_text(target),
                  ") must be the same as input size (", size_text(input), ")");
  return mica::binary_cross_entropy_with_logits(input, target, weight, pos_weight, how);
}

Tensor kl_div(const Tensor& self, const Tensor& target, int64_t reduction, bool log_target) {
  const auto real = [](const Tensor& t) { return t.is_floating_point() || t.is_complex(); };
  MICA_CHECK(real(self) && real(target), "kl_div: Integral inputs not supported.");
  return reduced(log_target ? exp(target) * (target - self) : xlogy(target, target) - target * self, reduction);
}

Tensor functional_kl_div(const Tensor& input, const Tensor& target, std::optional<bool> size_average,
                         std::optional<bool> reduce, std::string_view reduction, bool log_target) {
  const bool legacy = size_average || reduce, per_sample = reduction == "batchmean";
  if (!legacy && reduction == "mean")
    warn(
        "reduction: 'mean' divides the total loss by both the batch size and the support size."
        "'batchmean' divides only by the batch size, and aligns with the KL div math definition."
        "'mean' will be changed to behave the same as 'batchmean' in the next major release.");
  const int64_t how = !legacy && per_sample ? int64_t{kSum} : reduction_of(size_average, reduce, reduction);
  const Tensor loss = mica::kl_div(input, target, how, log_target);
  return per_sample && input.dim() ? loss / Scalar(input.size(0)) : loss;
}

Tensor nll_loss(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                int64_t ignore_index) {
  return std::get<0>(mica::nll_loss_forward(self, target, weight, reduction, ignore_index));
}

Tensor functional_nll_loss(const Tensor& input, const Tensor& target, const Tensor& weight,
                           std::optional<bool> size_average, int64_t ignore_index, std::optional<bool> reduce,
                           std::string_view reduction) {
  return mica::nll_loss(input, target, weight, reduction_of(size_average, reduce, reduction), ignore_index);
}

Tensor cross_entropy_loss(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                          int64_t ignore_index, double label_smoothing) {
  MICA_CHECK(label_smoothing >= 0 && label_smoothing <= 1,
             "label_smoothing must be between 0.0 and 1.0. Got: ", label_smoothing);
  if (has_probabilities(self, target)) {
    MICA_CHECK(ignore_index < 0, "ignore_index is not supported for floating point target");
    return cross_entropy_of_probabilities(self, target, weight, reduction, label_smoothing);
  }
  return std::get<0>(mica::_cross_entropy(self, target, weight, reduction, ignore_index, label_smoothing));
}

Tensor functional_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight,
                                std::optional<bool> size_average, int64_t ignore_index, std::optional<bool> reduce,
                                std::string_view reduction, double label_smoothing) {
  return mica::cross_entropy_loss(input, target, weight, reduction_of(size_average, reduce, reduction), ignore_index,
                                  label_smoothing);
}

}  // namespace mica::composite
