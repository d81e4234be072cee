// Losses as modules; `reduction` is "mean", "sum" or "none".
#pragma once

#include "mica/nn/module.h"

namespace mica::nn {

struct LossOptions {
  std::string reduction = "mean";
};

#define MICA_LOSS(Name)                                                        \
  class Name##Impl : public Module {                                           \
   public:                                                                     \
    using Options = LossOptions;                                               \
    explicit Name##Impl(Options options = {}) : options(std::move(options)) {} \
    Tensor forward(const Tensor& input, const Tensor& target);                 \
    const Options options;                                                     \
  };                                                                           \
  MICA_MODULE(Name);
MICA_LOSS(L1Loss)
MICA_LOSS(MSELoss)
MICA_LOSS(SoftMarginLoss)
MICA_LOSS(MultiLabelMarginLoss)
#undef MICA_LOSS

// A loss with options of its own: struct NameOptions comes before.
#define MICA_LOSS(Name, ...)                                                   \
  class Name##Impl : public Module {                                           \
   public:                                                                     \
    using Options = Name##Options;                                             \
    explicit Name##Impl(Options options = {}) : options(std::move(options)) {} \
    Tensor forward(__VA_ARGS__);                                               \
    const Options options;                                                     \
  };                                                                           \
  MICA_MODULE(Name)

struct CrossEntropyLossOptions {
  Tensor weight = {};  // of the classes
  int64_t ignore_index = -100;
  std::string reduction = "mean";
  double label_smoothing = 0;
};
MICA_LOSS(CrossEntropyLoss, const Tensor& input, const Tensor& target);

struct NLLLossOptions {
  Tensor weight = {};
  int64_t ignore_index = -100;
  std::string reduction = "mean";
};
MICA_LOSS(NLLLoss, const Tensor& input, const Tensor& target);

struct BCELossOptions {
  Tensor weight = {};
  std::string reduction = "mean";
};
MICA_LOSS(BCELoss, const Tensor& input, const Tensor& target);

struct BCEWithLogitsLossOptions {
  Tensor weight = {};
  std::string reduction = "mean";
  Tensor pos_weight = {};
};
MICA_LOSS(BCEWithLogitsLoss, const Tensor& input, const Tensor& target);

struct SmoothL1LossOptions {
  std::string reduction = "mean";
  double beta = 1;
};
MICA_LOSS(SmoothL1Loss, const Tensor& input, const Tensor& target);

struct HuberLossOptions {
  std::string reduction = "mean";
  double delta = 1;
};
MICA_LOSS(HuberLoss, const Tensor& input, const Tensor& target);

struct KLDivLossOptions {
  std::string reduction = "mean";  // or "batchmean"
  bool log_target = false;
};
MICA_LOSS(KLDivLoss, const Tensor& input, const Tensor& target);

struct PoissonNLLLossOptions {
  bool log_input = true, full = false;
  double eps = 1e-8;
  std::string reduction = "mean";
};
MICA_LOSS(PoissonNLLLoss, const Tensor& input, const Tensor& target);

struct GaussianNLLLossOptions {
  bool full = false;
  double eps = 1e-6;
  std::string reduction = "mean";
};
MICA_LOSS(GaussianNLLLoss, const Tensor& input, const Tensor& target, const Tensor& var);

struct HingeEmbeddingLossOptions {
  double margin = 1;
  std::string reduction = "mean";
};
MICA_LOSS(HingeEmbeddingLoss, const Tensor& input, const Tensor& target);

struct CosineEmbeddingLossOptions {
  double margin = 0;
  std::string reduction = "mean";
};
MICA_LOSS(CosineEmbeddingLoss, const Tensor& input1, const Tensor& input2, const Tensor& target);

struct MarginRankingLossOptions {
  double margin = 0;
  std::string reduction = "mean";
};
MICA_LOSS(MarginRankingLoss, const Tensor& input1, const Tensor& input2, const Tensor& target);

struct MultiMarginLossOptions {
  int64_t p = 1;
  double margin = 1;
  Tensor weight = {};
  std::string reduction = "mean";
};
MICA_LOSS(MultiMarginLoss, const Tensor& input, const Tensor& target);

struct MultiLabelSoftMarginLossOptions {
  Tensor weight = {};
  std::string reduction = "mean";
};
MICA_LOSS(MultiLabelSoftMarginLoss, const Tensor& input, const Tensor& target);

struct TripletMarginLossOptions {
  double margin = 1, p = 2, eps = 1e-6;
  bool swap = false;
  std::string reduction = "mean";
};
MICA_LOSS(TripletMarginLoss, const Tensor& anchor, const Tensor& positive, const Tensor& negative);

struct CTCLossOptions {
  int64_t blank = 0;
  std::string reduction = "mean";
  bool zero_infinity = false;
};
MICA_LOSS(CTCLoss, const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
          const Tensor& target_lengths);
#undef MICA_LOSS

}  // namespace mica::nn
