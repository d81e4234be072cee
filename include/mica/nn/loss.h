// Losses: as functions in nn::functional, and as modules with the same options. `reduction` is "mean", "sum" or "none".
#pragma once

#include <functional>

#include "mica/generated/nn/loss.h"

namespace mica::nn {

using BCELossOptions = WeightedLossOptions;
using MultiLabelSoftMarginLossOptions = WeightedLossOptions;

struct TripletMarginWithDistanceLossOptions {
  std::function<Tensor(const Tensor&, const Tensor&)> distance_function = {};  // pairwise_distance unless given
  double margin = 1;
  bool swap = false;
  std::string reduction = "mean";
};

#define MICA_PARENTHESES_OFF(...) __VA_ARGS__
// A loss: its function, of these tensors and its options, and its module.
#define MICA_LOSS(Name, OptionsType, function, parameters)                           \
  namespace functional {                                                             \
  Tensor function(MICA_PARENTHESES_OFF parameters, const OptionsType& options = {}); \
  }                                                                                  \
  class Name##Impl : public Module {                                                 \
   public:                                                                           \
    using Options = OptionsType;                                                     \
    explicit Name##Impl(Options options = {});                                       \
    Tensor forward parameters;                                                       \
    const Options options;                                                           \
  };                                                                                 \
  MICA_MODULE(Name);
MICA_LOSS(L1Loss, LossOptions, l1_loss, (const Tensor& input, const Tensor& target))
MICA_LOSS(MSELoss, LossOptions, mse_loss, (const Tensor& input, const Tensor& target))
MICA_LOSS(SmoothL1Loss, SmoothL1LossOptions, smooth_l1_loss, (const Tensor& input, const Tensor& target))
MICA_LOSS(HuberLoss, HuberLossOptions, huber_loss, (const Tensor& input, const Tensor& target))
MICA_LOSS(CrossEntropyLoss, CrossEntropyLossOptions, cross_entropy, (const Tensor& input, const Tensor& target))
MICA_LOSS(NLLLoss, NLLLossOptions, nll_loss, (const Tensor& input, const Tensor& target))
MICA_LOSS(BCELoss, BCELossOptions, binary_cross_entropy, (const Tensor& input, const Tensor& target))
MICA_LOSS(BCEWithLogitsLoss, BCEWithLogitsLossOptions, binary_cross_entropy_with_logits,
          (const Tensor& input, const Tensor& target))
MICA_LOSS(KLDivLoss, KLDivLossOptions, kl_div, (const Tensor& input, const Tensor& target))
MICA_LOSS(PoissonNLLLoss, PoissonNLLLossOptions, poisson_nll_loss, (const Tensor& input, const Tensor& target))
MICA_LOSS(GaussianNLLLoss, GaussianNLLLossOptions, gaussian_nll_loss,
          (const Tensor& input, const Tensor& target, const Tensor& var))
MICA_LOSS(CTCLoss, CTCLossOptions, ctc_loss,
          (const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths, const Tensor& target_lengths))
MICA_LOSS(HingeEmbeddingLoss, HingeEmbeddingLossOptions, hinge_embedding_loss,
          (const Tensor& input, const Tensor& target))
MICA_LOSS(CosineEmbeddingLoss, EmbeddingMarginOptions, cosine_embedding_loss,
          (const Tensor& input1, const Tensor& input2, const Tensor& target))
MICA_LOSS(MarginRankingLoss, EmbeddingMarginOptions, margin_ranking_loss,
          (const Tensor& input1, const Tensor& input2, const Tensor& target))
MICA_LOSS(MultiMarginLoss, MultiMarginLossOptions, multi_margin_loss, (const Tensor& input, const Tensor& target))
MICA_LOSS(MultiLabelMarginLoss, LossOptions, multilabel_margin_loss, (const Tensor& input, const Tensor& target))
MICA_LOSS(MultiLabelSoftMarginLoss, MultiLabelSoftMarginLossOptions, multilabel_soft_margin_loss,
          (const Tensor& input, const Tensor& target))
MICA_LOSS(SoftMarginLoss, LossOptions, soft_margin_loss, (const Tensor& input, const Tensor& target))
MICA_LOSS(TripletMarginLoss, TripletMarginLossOptions, triplet_margin_loss,
          (const Tensor& anchor, const Tensor& positive, const Tensor& negative))
MICA_LOSS(TripletMarginWithDistanceLoss, TripletMarginWithDistanceLossOptions, triplet_margin_with_distance_loss,
          (const Tensor& anchor, const Tensor& positive, const Tensor& negative))
#undef MICA_LOSS
#undef MICA_PARENTHESES_OFF

}  // namespace mica::nn
