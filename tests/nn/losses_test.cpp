// Losses, as torch has them.
#include "mica/nn.h"
#include "mica/values.h"
#include "recorded_modules.h"

namespace mica::testing {
namespace {

Tensor class_weights() { return tensor({0.5, 1.0, 2.0, 1.5}); }

TEST(RecordedLosses, OfNumbers) {
  expect_as_recorded("L1Loss", [] { return runs<2>(nn::L1Loss()); });
  expect_as_recorded("MSELoss", [] { return runs<2>(nn::MSELoss({.reduction = "sum"})); });
  expect_as_recorded("SmoothL1Loss", [] { return runs<2>(nn::SmoothL1Loss({.beta = 0.5})); });
  expect_as_recorded("HuberLoss", [] { return runs<2>(nn::HuberLoss({.delta = 0.7})); });
  expect_as_recorded("PoissonNLLLoss", [] { return runs<2>(nn::PoissonNLLLoss({.full = true})); });
  expect_as_recorded("GaussianNLLLoss", [] { return runs<3>(nn::GaussianNLLLoss({.full = true})); });
}

TEST(RecordedLosses, OfClasses) {
  expect_as_recorded("CrossEntropyLoss", [] { return runs<2>(nn::CrossEntropyLoss()); });
  expect_as_recorded("CrossEntropyLoss weighted", [] {
    return runs<2>(nn::CrossEntropyLoss({.weight = class_weights(), .ignore_index = 2, .label_smoothing = 0.1}));
  });
  expect_as_recorded("NLLLoss", [] { return runs<2>(nn::NLLLoss({.weight = class_weights()})); });
  expect_as_recorded("BCELoss", [] { return runs<2>(nn::BCELoss()); });
  expect_as_recorded("BCEWithLogitsLoss",
                     [] { return runs<2>(nn::BCEWithLogitsLoss({.pos_weight = class_weights()})); });
  expect_as_recorded("KLDivLoss", [] { return runs<2>(nn::KLDivLoss({.reduction = "batchmean"})); });
  expect_as_recorded("CTCLoss", [] { return runs<4>(nn::CTCLoss()); });
  expect_as_recorded("MultiMarginLoss",
                     [] { return runs<2>(nn::MultiMarginLoss({.p = 2, .weight = class_weights()})); });
  expect_as_recorded("MultiLabelMarginLoss", [] { return runs<2>(nn::MultiLabelMarginLoss()); });
  expect_as_recorded("MultiLabelSoftMarginLoss", [] { return runs<2>(nn::MultiLabelSoftMarginLoss()); });
  expect_as_recorded("SoftMarginLoss", [] { return runs<2>(nn::SoftMarginLoss()); });
}

TEST(RecordedLosses, OfDistances) {
  expect_as_recorded("HingeEmbeddingLoss", [] { return runs<2>(nn::HingeEmbeddingLoss()); });
  expect_as_recorded("CosineEmbeddingLoss", [] { return runs<3>(nn::CosineEmbeddingLoss({.margin = 0.1})); });
  expect_as_recorded("MarginRankingLoss", [] { return runs<3>(nn::MarginRankingLoss({.margin = 0.2})); });
  expect_as_recorded("TripletMarginLoss", [] { return runs<3>(nn::TripletMarginLoss({.swap = true})); });
  expect_as_recorded("TripletMarginWithDistanceLoss", [] {
    const auto farthest = [](const Tensor& a, const Tensor& b) { return (a - b).abs().amax(1); };
    return runs<3>(nn::TripletMarginWithDistanceLoss({.distance_function = farthest, .margin = 2}));
  });
}

TEST(RecordedLosses, AdaptiveLogSoftmax) {
  expect_as_recorded("AdaptiveLogSoftmaxWithLoss", [] {
    return runs(nn::AdaptiveLogSoftmaxWithLoss(8, 20, {4, 10}, {.div_value = 2, .head_bias = true}),
                [](const auto& m, const Tensors& in) {
                  const auto [output, loss] = m(in[0], in[1]);
                  return flat(output, loss, m->log_prob(in[0]), m->predict(in[0]));
                });
  });
}

TEST(Losses, WeightsAreBuffersAndMove) {
  const Tensor weight = class_weights();
  const nn::CrossEntropyLoss loss({.weight = weight});
  ASSERT_EQ(loss->state_dict().size(), 1u);
  loss->to(DType::Float64);
  EXPECT_EQ(loss->options.weight.dtype(), DType::Float64);
  EXPECT_EQ(weight.dtype(), DType::Float32);
}

TEST(Losses, AsFunctions) {
  const Tensor x = tensor({1.0, 2.0}), y = tensor({3.0, 2.5});
  EXPECT_EQ(nn::functional::mse_loss(x, y).item<double>(), (4 + 0.25) / 2);
  EXPECT_EQ(nn::functional::l1_loss(x, y, {.reduction = "sum"}).item<double>(), 2.5);
  EXPECT_THROW(nn::functional::mse_loss(x, y, {.reduction = "middle"}), Error);
}

}  // namespace
}  // namespace mica::testing
