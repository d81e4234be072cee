// Losses: as functions in nn::functional, and as modules with the same options. `reduction` is "mean", "sum" or "none".
#pragma once

#include <functional>

#include "mica/nn/module.h"

namespace mica::nn {

struct LossOptions {
  std::string reduction = "mean";
};
struct CrossEntropyLossOptions {
  Tensor weight = {};  // of the classes
  int64_t ignore_index = -100;
  std::string reduction = "mean";
  double label_smoothing = 0;
};
struct NLLLossOptions {
  Tensor weight = {};
  int64_t ignore_index = -100;
  std::string reduction = "mean";
};
struct BCELossOptions {
  Tensor weight = {};
  std::string reduction = "mean";
};
struct BCEWithLogitsLossOptions {
  Tensor weight = {};
  std::string reduction = "mean";
  Tensor pos_weight = {};
};
struct SmoothL1LossOptions {
  std::string reduction = "mean";
  double beta = 1;
};
struct HuberLossOptions {
  std::string reduction = "mean";
  double delta = 1;
};
struct KLDivLossOptions {
  std::string reduction = "mean";  // or "batchmean"
  bool log_target = false;
};
struct PoissonNLLLossOptions {
  bool log_input = true, full = false;
  double eps = 1e-8;
  std::string reduction = "mean";
};
struct GaussianNLLLossOptions {
  bool full = false;
  double eps = 1e-6;
  std::string reduction = "mean";
};
struct HingeEmbeddingLossOptions {
  double margin = 1;
  std::string reduction = "mean";
};
struct EmbeddingMarginOptions {
  double margin = 0;
  std::string reduction = "mean";
};
struct MultiMarginLossOptions {
  int64_t p = 1;  // or 2
  double margin = 1;
  Tensor weight = {};
  std::string reduction = "mean";
};
struct MultiLabelSoftMarginLossOptions {
  Tensor weight = {};
  std::string reduction = "mean";
};
struct TripletMarginLossOptions {
  double margin = 1, p = 2, eps = 1e-6;
  bool swap = false;
  std::string reduction = "mean";
};
struct TripletMarginWithDistanceLossOptions {
  std::function<Tensor(const Tensor&, const Tensor&)> distance_function = {};  // pairwise_distance unless given
  double margin = 1;
  bool swap = false;
  std::string reduction = "mean";
};
struct CTCLossOptions {
  int64_t blank = 0;
  std::string reduction = "mean";
  bool zero_infinity = false;
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
