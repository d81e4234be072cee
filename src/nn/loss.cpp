#include "mica/nn/loss.h"

#include "mica/layers.h"

namespace mica::nn {

namespace functional {

// The deprecated flags size_average and reduce, which C++ does not have.
constexpr std::nullopt_t kUnset = std::nullopt;

Tensor l1_loss(const Tensor& input, const Tensor& target, const LossOptions& o) {
  return functional_l1_loss(input, target, kUnset, kUnset, o.reduction);
}
Tensor mse_loss(const Tensor& input, const Tensor& target, const LossOptions& o) {
  return functional_mse_loss(input, target, kUnset, kUnset, o.reduction);
}
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const SmoothL1LossOptions& o) {
  return functional_smooth_l1_loss(input, target, kUnset, kUnset, o.reduction, o.beta);
}
Tensor huber_loss(const Tensor& input, const Tensor& target, const HuberLossOptions& o) {
  return functional_huber_loss(input, target, o.reduction, o.delta);
}
Tensor cross_entropy(const Tensor& input, const Tensor& target, const CrossEntropyLossOptions& o) {
  return functional_cross_entropy(input, target, o.weight, kUnset, o.ignore_index, kUnset, o.reduction,
                                  o.label_smoothing);
}
Tensor nll_loss(const Tensor& input, const Tensor& target, const NLLLossOptions& o) {
  return functional_nll_loss(input, target, o.weight, kUnset, o.ignore_index, kUnset, o.reduction);
}
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const BCELossOptions& o) {
  return functional_binary_cross_entropy(input, target, o.weight, kUnset, kUnset, o.reduction);
}
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const BCEWithLogitsLossOptions& o) {
  return functional_binary_cross_entropy_with_logits(input, target, o.weight, kUnset, kUnset, o.reduction,
                                                     o.pos_weight);
}
Tensor kl_div(const Tensor& input, const Tensor& target, const KLDivLossOptions& o) {
  return functional_kl_div(input, target, kUnset, kUnset, o.reduction, o.log_target);
}
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, const PoissonNLLLossOptions& o) {
  return functional_poisson_nll_loss(input, target, o.log_input, o.full, kUnset, o.eps, kUnset, o.reduction);
}
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var,
                         const GaussianNLLLossOptions& o) {
  return functional_gaussian_nll_loss(input, target, var, o.full, o.eps, o.reduction);
}
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCLossOptions& o) {
  return functional_ctc_loss(log_probs, targets, input_lengths, target_lengths, o.blank, o.reduction, o.zero_infinity);
}
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, const HingeEmbeddingLossOptions& o) {
  return functional_hinge_embedding_loss(input, target, o.margin, kUnset, kUnset, o.reduction);
}
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                             const EmbeddingMarginOptions& o) {
  return functional_cosine_embedding_loss(input1, input2, target, o.margin, kUnset, kUnset, o.reduction);
}
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target,
                           const EmbeddingMarginOptions& o) {
  return functional_margin_ranking_loss(input1, input2, target, o.margin, kUnset, kUnset, o.reduction);
}
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, const MultiMarginLossOptions& o) {
  return functional_multi_margin_loss(input, target, o.p, o.margin, o.weight, kUnset, kUnset, o.reduction);
}
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, const LossOptions& o) {
  return functional_multilabel_margin_loss(input, target, kUnset, kUnset, o.reduction);
}
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target,
                                   const MultiLabelSoftMarginLossOptions& o) {
  return functional_multilabel_soft_margin_loss(input, target, o.weight, kUnset, kUnset, o.reduction);
}
Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const LossOptions& o) {
  return functional_soft_margin_loss(input, target, kUnset, kUnset, o.reduction);
}
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& o) {
  return functional_triplet_margin_loss(anchor, positive, negative, o.margin, o.p, o.eps, o.swap, kUnset, kUnset,
                                        o.reduction);
}

Tensor triplet_margin_with_distance_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                         const TripletMarginWithDistanceLossOptions& o) {
  MICA_CHECK_KIND(o.reduction == "mean" || o.reduction == "sum" || o.reduction == "none", Value, o.reduction,
                  " is not a valid value for reduction");
  MICA_CHECK_KIND(o.margin > 0, Value, "margin must be greater than 0, got ", o.margin);
  MICA_CHECK(anchor.dim() == positive.dim() && anchor.dim() == negative.dim(),
             "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: ",
             "anchor ", anchor.dim(), "D, positive ", positive.dim(), "D, and negative ", negative.dim(), "D inputs");
  const auto distance = [&](const Tensor& a, const Tensor& b) {
    return o.distance_function ? o.distance_function(a, b) : pairwise_distance(a, b);
  };
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (o.swap) far = minimum(far, distance(positive, negative));
  const Tensor loss = clamp_min(o.margin + near - far, 0);
  return o.reduction == "none" ? loss : o.reduction == "sum" ? loss.sum() : loss.mean();
}

}  // namespace functional

// Weights are buffers, as in Python: they move with the module and are part of its state.
template <class Options>
static Options with_buffers(Module& module, Options options) {
  const auto add = [&](const char* name, Tensor& weight) {
    weight = module.register_buffer(name, weight.defined() ? weight.detach() : weight);
  };
  if constexpr (requires { options.weight; }) add("weight", options.weight);
  if constexpr (requires { options.pos_weight; }) add("pos_weight", options.pos_weight);
  return options;
}

#define MICA_LOSS(Name, function, parameters, arguments)                                    \
  Name##Impl::Name##Impl(Options given) : options(with_buffers(*this, std::move(given))) {} \
  Tensor Name##Impl::forward parameters { return functional::function arguments; }
#define MICA_PAIR_LOSS(Name, function) \
  MICA_LOSS(Name, function, (const Tensor& input, const Tensor& target), (input, target, options))
#define MICA_TRIPLE_LOSS(Name, function) \
  MICA_LOSS(Name, function, (const Tensor& a, const Tensor& b, const Tensor& c), (a, b, c, options))
MICA_PAIR_LOSS(L1Loss, l1_loss)
MICA_PAIR_LOSS(MSELoss, mse_loss)
MICA_PAIR_LOSS(SmoothL1Loss, smooth_l1_loss)
MICA_PAIR_LOSS(HuberLoss, huber_loss)
MICA_PAIR_LOSS(CrossEntropyLoss, cross_entropy)
MICA_PAIR_LOSS(NLLLoss, nll_loss)
MICA_PAIR_LOSS(BCELoss, binary_cross_entropy)
MICA_PAIR_LOSS(BCEWithLogitsLoss, binary_cross_entropy_with_logits)
MICA_PAIR_LOSS(KLDivLoss, kl_div)
MICA_PAIR_LOSS(PoissonNLLLoss, poisson_nll_loss)
MICA_TRIPLE_LOSS(GaussianNLLLoss, gaussian_nll_loss)
MICA_LOSS(CTCLoss, ctc_loss,
          (const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths),
          (log_probs, targets, input_lengths, target_lengths, options))
MICA_PAIR_LOSS(HingeEmbeddingLoss, hinge_embedding_loss)
MICA_TRIPLE_LOSS(CosineEmbeddingLoss, cosine_embedding_loss)
MICA_TRIPLE_LOSS(MarginRankingLoss, margin_ranking_loss)
MICA_PAIR_LOSS(MultiMarginLoss, multi_margin_loss)
MICA_PAIR_LOSS(MultiLabelMarginLoss, multilabel_margin_loss)
MICA_PAIR_LOSS(MultiLabelSoftMarginLoss, multilabel_soft_margin_loss)
MICA_PAIR_LOSS(SoftMarginLoss, soft_margin_loss)
MICA_TRIPLE_LOSS(TripletMarginLoss, triplet_margin_loss)
MICA_TRIPLE_LOSS(TripletMarginWithDistanceLoss, triplet_margin_with_distance_loss)

}  // namespace mica::nn
