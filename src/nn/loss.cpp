#include "mica/nn/loss.h"

#include "mica/layers.h"

namespace mica::nn {

// The deprecated flags size_average and reduce, which C++ does not have.
constexpr std::nullopt_t kUnset = std::nullopt;

Tensor L1LossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_l1_loss(input, target, kUnset, kUnset, options.reduction);
}
Tensor MSELossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_mse_loss(input, target, kUnset, kUnset, options.reduction);
}
Tensor SoftMarginLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_soft_margin_loss(input, target, kUnset, kUnset, options.reduction);
}
Tensor MultiLabelMarginLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_multilabel_margin_loss(input, target, kUnset, kUnset, options.reduction);
}
Tensor CrossEntropyLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_cross_entropy(input, target, options.weight, kUnset, options.ignore_index, kUnset,
                                  options.reduction, options.label_smoothing);
}
Tensor NLLLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_nll_loss(input, target, options.weight, kUnset, options.ignore_index, kUnset, options.reduction);
}
Tensor BCELossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_binary_cross_entropy(input, target, options.weight, kUnset, kUnset, options.reduction);
}
Tensor BCEWithLogitsLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_binary_cross_entropy_with_logits(input, target, options.weight, kUnset, kUnset, options.reduction,
                                                     options.pos_weight);
}
Tensor SmoothL1LossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_smooth_l1_loss(input, target, kUnset, kUnset, options.reduction, options.beta);
}
Tensor HuberLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_huber_loss(input, target, options.reduction, options.delta);
}
Tensor KLDivLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_kl_div(input, target, kUnset, kUnset, options.reduction, options.log_target);
}
Tensor PoissonNLLLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_poisson_nll_loss(input, target, options.log_input, options.full, kUnset, options.eps, kUnset,
                                     options.reduction);
}
Tensor GaussianNLLLossImpl::forward(const Tensor& input, const Tensor& target, const Tensor& var) {
  return functional_gaussian_nll_loss(input, target, var, options.full, options.eps, options.reduction);
}
Tensor HingeEmbeddingLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_hinge_embedding_loss(input, target, options.margin, kUnset, kUnset, options.reduction);
}
Tensor CosineEmbeddingLossImpl::forward(const Tensor& input1, const Tensor& input2, const Tensor& target) {
  return functional_cosine_embedding_loss(input1, input2, target, options.margin, kUnset, kUnset, options.reduction);
}
Tensor MarginRankingLossImpl::forward(const Tensor& input1, const Tensor& input2, const Tensor& target) {
  return functional_margin_ranking_loss(input1, input2, target, options.margin, kUnset, kUnset, options.reduction);
}
Tensor MultiMarginLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_multi_margin_loss(input, target, options.p, options.margin, options.weight, kUnset, kUnset,
                                      options.reduction);
}
Tensor MultiLabelSoftMarginLossImpl::forward(const Tensor& input, const Tensor& target) {
  return functional_multilabel_soft_margin_loss(input, target, options.weight, kUnset, kUnset, options.reduction);
}
Tensor TripletMarginLossImpl::forward(const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
  return functional_triplet_margin_loss(anchor, positive, negative, options.margin, options.p, options.eps,
                                        options.swap, kUnset, kUnset, options.reduction);
}
Tensor CTCLossImpl::forward(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                            const Tensor& target_lengths) {
  return functional_ctc_loss(log_probs, targets, input_lengths, target_lengths, options.blank, options.reduction,
                             options.zero_infinity);
}

}  // namespace mica::nn
