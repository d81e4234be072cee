// torch::nn::functional: Mica's functions, which take arguments, and libtorch's, which take options:
// F::max_pool2d(x, F::MaxPool2dFuncOptions(3).stride(2)).
#pragma once

#include "mica/nn/functional.h"
#include "torch/nn.h"

namespace torch::nn::functional {

using namespace mica::nn::functional;  // NOLINT: the names of torch's library are Mica's

// A function whose options are all of a module's is that module, applied.
#define TORCH_FUNCTION(function, Name)                                           \
  using Name##FuncOptions = Name##Options;                                       \
  using mica::nn::functional::function;                                          \
  inline Tensor function(const Tensor& x, const Name##FuncOptions& options) {    \
    return options.construct<mica::nn::ModuleHolder<mica::nn::Name##Impl>>()(x); \
  }
#define TORCH_DIMENSIONS(function, Name) \
  TORCH_FUNCTION(function##1d, Name##1d) \
  TORCH_FUNCTION(function##2d, Name##2d) \
  TORCH_FUNCTION(function##3d, Name##3d)
TORCH_DIMENSIONS(max_pool, MaxPool)
TORCH_DIMENSIONS(avg_pool, AvgPool)
TORCH_DIMENSIONS(lp_pool, LPPool)
TORCH_DIMENSIONS(adaptive_avg_pool, AdaptiveAvgPool)
TORCH_DIMENSIONS(adaptive_max_pool, AdaptiveMaxPool)
TORCH_FUNCTION(relu, ReLU)
TORCH_FUNCTION(relu6, ReLU6)
TORCH_FUNCTION(selu, SELU)
TORCH_FUNCTION(elu, ELU)
TORCH_FUNCTION(celu, CELU)
TORCH_FUNCTION(leaky_relu, LeakyReLU)
TORCH_FUNCTION(gelu, GELU)
TORCH_FUNCTION(glu, GLU)
TORCH_FUNCTION(hardshrink, Hardshrink)
TORCH_FUNCTION(hardtanh, Hardtanh)
TORCH_FUNCTION(softshrink, Softshrink)
TORCH_FUNCTION(softplus, Softplus)
TORCH_FUNCTION(threshold, Threshold)
TORCH_FUNCTION(softmax, Softmax)
TORCH_FUNCTION(log_softmax, LogSoftmax)
TORCH_FUNCTION(softmin, Softmin)
TORCH_FUNCTION(unfold, Unfold)
TORCH_FUNCTION(fold, Fold)
TORCH_FUNCTION(local_response_norm, LocalResponseNorm)
#undef TORCH_DIMENSIONS
#undef TORCH_FUNCTION

using InterpolateFuncOptions = UpsampleOptions;
using mica::nn::functional::interpolate;
inline Tensor interpolate(const Tensor& x, const InterpolateFuncOptions& options) {
  return options.construct<mica::nn::ModuleHolder<mica::nn::UpsampleImpl>>()(x);
}

// Losses take Mica's options already, which these give.
using BinaryCrossEntropyFuncOptions = BCELossOptions;
using BinaryCrossEntropyWithLogitsFuncOptions = BCEWithLogitsLossOptions;
using CosineEmbeddingLossFuncOptions = CosineEmbeddingLossOptions;
using CrossEntropyFuncOptions = CrossEntropyLossOptions;
using CTCLossFuncOptions = CTCLossOptions;
using HingeEmbeddingLossFuncOptions = HingeEmbeddingLossOptions;
using HuberLossFuncOptions = HuberLossOptions;
using KLDivFuncOptions = KLDivLossOptions;
using L1LossFuncOptions = L1LossOptions;
using MarginRankingLossFuncOptions = MarginRankingLossOptions;
using MSELossFuncOptions = MSELossOptions;
using MultiMarginLossFuncOptions = MultiMarginLossOptions;
using MultilabelMarginLossFuncOptions = MultiLabelMarginLossOptions;
using MultilabelSoftMarginLossFuncOptions = MultiLabelSoftMarginLossOptions;
using NLLLossFuncOptions = NLLLossOptions;
using PoissonNLLLossFuncOptions = PoissonNLLLossOptions;
using SmoothL1LossFuncOptions = SmoothL1LossOptions;
using SoftMarginLossFuncOptions = SoftMarginLossOptions;
using TripletMarginLossFuncOptions = TripletMarginLossOptions;

namespace detail {
struct ConvolutionArguments {
  Tensor bias = {};
  Dims stride = 1, padding = 0, dilation = 1, output_padding = 0;
  std::string padding_word = {};
  int64_t groups = 1;
};
struct DropoutArguments {
  double p = 0.5;
  bool training = true, inplace = false;
};
struct PadArguments {
  std::string mode = "constant";
  double value = 0;
};
struct NormalizeArguments {
  double p = 2;
  int64_t dim = 1;
  double eps = 1e-12;
};
struct GridSampleArguments {
  std::string mode = "bilinear", padding_mode = "zeros";
  std::optional<bool> align_corners = {};
};
struct LayerNormArguments {
  Tensor weight = {}, bias = {};
  double eps = 1e-5;
};
}  // namespace detail

#define TORCH_CONVOLUTION(n)                                                                                           \
  class Conv##n##dFuncOptions : public Settable<Conv##n##dFuncOptions, detail::ConvolutionArguments> {};               \
  using mica::nn::functional::conv##n##d;                                                                              \
  inline Tensor conv##n##d(const Tensor& x, const Tensor& weight, const Conv##n##dFuncOptions& given) {                \
    const detail::ConvolutionArguments& o = given;                                                                     \
    if (!o.padding_word.empty())                                                                                       \
      return mica::conv##n##d_padding(x, weight, o.bias, o.stride, o.padding_word, o.dilation, o.groups);              \
    return mica::conv##n##d(x, weight, o.bias, o.stride, o.padding, o.dilation, o.groups);                             \
  }                                                                                                                    \
  class ConvTranspose##n##dFuncOptions                                                                                 \
      : public Settable<ConvTranspose##n##dFuncOptions, detail::ConvolutionArguments> {};                              \
  using mica::nn::functional::conv_transpose##n##d;                                                                    \
  inline Tensor conv_transpose##n##d(const Tensor& x, const Tensor& weight,                                            \
                                     const ConvTranspose##n##dFuncOptions& given) {                                    \
    const detail::ConvolutionArguments& o = given;                                                                     \
    return mica::conv_transpose##n##d(x, weight, o.bias, o.stride, o.padding, o.output_padding, o.groups, o.dilation); \
  }
TORCH_CONVOLUTION(1)
TORCH_CONVOLUTION(2)
TORCH_CONVOLUTION(3)
#undef TORCH_CONVOLUTION

#define TORCH_DROPOUT(function, Name)                                                        \
  class Name##FuncOptions : public Settable<Name##FuncOptions, detail::DropoutArguments> {}; \
  using mica::nn::functional::function;                                                      \
  inline Tensor function(const Tensor& x, const Name##FuncOptions& o) {                      \
    return mica::nn::functional::function(x, o.p(), o.training());                           \
  }
TORCH_DROPOUT(dropout, Dropout)
TORCH_DROPOUT(dropout2d, Dropout2d)
TORCH_DROPOUT(dropout3d, Dropout3d)
TORCH_DROPOUT(alpha_dropout, AlphaDropout)
TORCH_DROPOUT(feature_alpha_dropout, FeatureAlphaDropout)
#undef TORCH_DROPOUT

class PadFuncOptions : public Settable<PadFuncOptions, detail::PadArguments> {
 public:
  PadFuncOptions(std::vector<int64_t> pad) : pad_(std::move(pad)) {}
  const std::vector<int64_t>& pad() const { return pad_; }

 private:
  std::vector<int64_t> pad_;
};
using mica::nn::functional::pad;
inline Tensor pad(const Tensor& x, const PadFuncOptions& o) {
  return mica::nn::functional::pad(x, o.pad(), o.mode(),
                                   o.mode() == "constant" ? std::optional(o.value()) : std::nullopt);
}

class NormalizeFuncOptions : public Settable<NormalizeFuncOptions, detail::NormalizeArguments> {};
using mica::nn::functional::normalize;
inline Tensor normalize(const Tensor& x, const NormalizeFuncOptions& o) {
  return mica::nn::functional::normalize(x, o.p(), {o.dim()}, o.eps());
}

class GridSampleFuncOptions : public Settable<GridSampleFuncOptions, detail::GridSampleArguments> {};
using mica::nn::functional::grid_sample;
inline Tensor grid_sample(const Tensor& x, const Tensor& grid, const GridSampleFuncOptions& o) {
  return mica::nn::functional::grid_sample(x, grid, o.mode(), o.padding_mode(), o.align_corners());
}

class LayerNormFuncOptions : public Settable<LayerNormFuncOptions, detail::LayerNormArguments> {
 public:
  LayerNormFuncOptions(std::vector<int64_t> normalized_shape) : normalized_shape_(std::move(normalized_shape)) {}
  const std::vector<int64_t>& normalized_shape() const { return normalized_shape_; }

 private:
  std::vector<int64_t> normalized_shape_;
};
using mica::nn::functional::layer_norm;
inline Tensor layer_norm(const Tensor& x, const LayerNormFuncOptions& o) {
  return mica::nn::functional::layer_norm(x, o.normalized_shape(), o.weight(), o.bias(), o.eps());
}

using CosineSimilarityFuncOptions = CosineSimilarityOptions;
using mica::nn::functional::cosine_similarity;
inline Tensor cosine_similarity(const Tensor& a, const Tensor& b, const CosineSimilarityFuncOptions& o) {
  return mica::nn::functional::cosine_similarity(a, b, o.dim(), o.eps());
}

}  // namespace torch::nn::functional
