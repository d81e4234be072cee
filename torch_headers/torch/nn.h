// Mica's modules under torch::nn, with options as libtorch writes them: torch::nn::Linear(LinearOptions(3,
// 4).bias(false)).
#pragma once

#include "mica/nn.h"
#include "torch/settable.h"
#include "torch/types.h"

// A handle named Name for the module NameImpl.
#define TORCH_MODULE(Name) MICA_MODULE(Name)
#define TORCH_MODULE_IMPL(Name, ImplType)                   \
  class Name : public ::mica::nn::ModuleHolder<ImplType> {  \
   public:                                                  \
    using ::mica::nn::ModuleHolder<ImplType>::ModuleHolder; \
  }

namespace torch::nn {

using namespace mica::nn;  // NOLINT: the names of torch's library are Mica's

// What a module is constructed from: values that it must have, then Mica's options of it.
template <class Module, class... Required>
class ModuleOptions : public Settable<ModuleOptions<Module, Required...>, typename Module::Options> {
 public:
  ModuleOptions(Required... required) : required_(std::move(required)...) {}

  template <class Holder>
  requires std::same_as<typename Holder::Impl, Module> Holder construct()
  const {
    return std::apply([&](const Required&... values) { return Holder(values..., this->options()); }, required_);
  }

 private:
  std::tuple<Required...> required_;
};

#define TORCH_OPTIONS(Name, ...) using Name##Options = ModuleOptions<mica::nn::Name##Impl __VA_OPT__(, ) __VA_ARGS__>;
TORCH_OPTIONS(Linear, int64_t, int64_t)
TORCH_OPTIONS(Bilinear, int64_t, int64_t, int64_t)
#define TORCH_DIMENSIONS(F, Name, ...) \
  F(Name##1d, __VA_ARGS__)             \
  F(Name##2d, __VA_ARGS__)             \
  F(Name##3d, __VA_ARGS__)
TORCH_DIMENSIONS(TORCH_OPTIONS, Conv, int64_t, int64_t, Dims)
TORCH_DIMENSIONS(TORCH_OPTIONS, ConvTranspose, int64_t, int64_t, Dims)
TORCH_DIMENSIONS(TORCH_OPTIONS, MaxPool, Dims)
TORCH_DIMENSIONS(TORCH_OPTIONS, AvgPool, Dims)
TORCH_DIMENSIONS(TORCH_OPTIONS, MaxUnpool, Dims)
TORCH_DIMENSIONS(TORCH_OPTIONS, LPPool, double, Dims)
TORCH_DIMENSIONS(TORCH_OPTIONS, BatchNorm, int64_t)
TORCH_DIMENSIONS(TORCH_OPTIONS, InstanceNorm, int64_t)
TORCH_OPTIONS(FractionalMaxPool2d, Dims)
TORCH_OPTIONS(FractionalMaxPool3d, Dims)
TORCH_OPTIONS(GroupNorm, int64_t, int64_t)
TORCH_OPTIONS(LayerNorm, Dims)
TORCH_OPTIONS(RMSNorm, Dims)
TORCH_OPTIONS(LocalResponseNorm, int64_t)
TORCH_OPTIONS(CrossMapLRN2d, int64_t)
TORCH_OPTIONS(Embedding, int64_t, int64_t)
TORCH_OPTIONS(EmbeddingBag, int64_t, int64_t)
TORCH_OPTIONS(RNN, int64_t, int64_t)
TORCH_OPTIONS(LSTM, int64_t, int64_t)
TORCH_OPTIONS(GRU, int64_t, int64_t)
TORCH_OPTIONS(RNNCell, int64_t, int64_t)
TORCH_OPTIONS(LSTMCell, int64_t, int64_t)
TORCH_OPTIONS(GRUCell, int64_t, int64_t)
TORCH_OPTIONS(MultiheadAttention, int64_t, int64_t)
TORCH_OPTIONS(TransformerEncoderLayer, int64_t, int64_t)
TORCH_OPTIONS(TransformerDecoderLayer, int64_t, int64_t)
TORCH_OPTIONS(Upsample)
TORCH_OPTIONS(Unfold, Dims)
TORCH_OPTIONS(Fold, Dims, Dims)
TORCH_OPTIONS(L1Loss)
TORCH_OPTIONS(MSELoss)
TORCH_OPTIONS(SmoothL1Loss)
TORCH_OPTIONS(HuberLoss)
TORCH_OPTIONS(CrossEntropyLoss)
TORCH_OPTIONS(NLLLoss)
TORCH_OPTIONS(BCELoss)
TORCH_OPTIONS(BCEWithLogitsLoss)
TORCH_OPTIONS(KLDivLoss)
TORCH_OPTIONS(PoissonNLLLoss)
TORCH_OPTIONS(CTCLoss)
TORCH_OPTIONS(HingeEmbeddingLoss)
TORCH_OPTIONS(CosineEmbeddingLoss)
TORCH_OPTIONS(MarginRankingLoss)
TORCH_OPTIONS(MultiMarginLoss)
TORCH_OPTIONS(MultiLabelMarginLoss)
TORCH_OPTIONS(MultiLabelSoftMarginLoss)
TORCH_OPTIONS(SoftMarginLoss)
TORCH_OPTIONS(TripletMarginLoss)
TORCH_OPTIONS(TripletMarginWithDistanceLoss)
#undef TORCH_OPTIONS

// Modules whose constructors take values rather than a structure: their options in the order of the constructor.
template <class Module, class Values>
class PlainOptions : public Settable<PlainOptions<Module, Values>, Values> {
 public:
  using InOrder = decltype(std::declval<Values>().in_order());
  using First = std::tuple_element_t<0, InOrder>;
  PlainOptions() = default;
  PlainOptions(First first) : Settable<PlainOptions, Values>(Values(std::move(first))) {}
  template <class... Rest>
  requires(sizeof...(Rest) > 0 && sizeof...(Rest) < std::tuple_size_v<InOrder>) PlainOptions(First first, Rest... rest)
      : Settable<PlainOptions, Values>(Values(std::move(first), rest...)) {}

  template <class Holder>
  requires std::same_as<typename Holder::Impl, Module> Holder construct()
  const {
    return std::apply([](const auto&... values) { return Holder(values...); }, this->options().in_order());
  }
};

namespace detail {
#define TORCH_PLAIN(Name, members, ...)                       \
  struct Name##Values {                                       \
    members;                                                  \
    auto in_order() const { return std::tuple(__VA_ARGS__); } \
  };
TORCH_PLAIN(Inplace, bool inplace = false, inplace)
TORCH_PLAIN(Dropout, double p = 0.5; bool inplace = false, p, inplace)
TORCH_PLAIN(Alpha, double alpha = 1; bool inplace = false, alpha, inplace)
TORCH_PLAIN(Slope, double negative_slope = 0.01; bool inplace = false, negative_slope, inplace)
TORCH_PLAIN(Shrink, double lambd = 0.5, lambd)
TORCH_PLAIN(Dim, int64_t dim = -1, dim)
TORCH_PLAIN(GELU, std::string approximate = "none", approximate)
TORCH_PLAIN(Hardtanh, double min_val = -1; double max_val = 1; bool inplace = false, min_val, max_val, inplace)
TORCH_PLAIN(Softplus, double beta = 1; double threshold = 20, beta, threshold)
TORCH_PLAIN(Threshold, double threshold = 0; double value = 0; bool inplace = false, threshold, value, inplace)
TORCH_PLAIN(PReLU, int64_t num_parameters = 1; double init = 0.25, num_parameters, init)
TORCH_PLAIN(RReLU, double lower = 1.0 / 8; double upper = 1.0 / 3; bool inplace = false, lower, upper, inplace)
TORCH_PLAIN(Flatten, int64_t start_dim = 1; int64_t end_dim = -1, start_dim, end_dim)
TORCH_PLAIN(CosineSimilarity, int64_t dim = 1; double eps = 1e-8, dim, eps)
TORCH_PLAIN(PairwiseDistance, double p = 2; double eps = 1e-6; bool keepdim = false, p, eps, keepdim)
TORCH_PLAIN(OutputSize, Dims output_size = 1, output_size)
TORCH_PLAIN(Padding, Dims padding = 0, padding)
TORCH_PLAIN(ConstantPad, Dims padding = 0; double value = 0, padding, value)
#undef TORCH_PLAIN
}  // namespace detail

#define TORCH_OPTIONS(Name, Of) using Name##Options = PlainOptions<mica::nn::Name##Impl, detail::Of##Values>;
TORCH_OPTIONS(ReLU, Inplace)
TORCH_OPTIONS(ReLU6, Inplace)
TORCH_OPTIONS(SELU, Inplace)
TORCH_OPTIONS(SiLU, Inplace)
TORCH_OPTIONS(Mish, Inplace)
TORCH_OPTIONS(ELU, Alpha)
TORCH_OPTIONS(CELU, Alpha)
TORCH_OPTIONS(LeakyReLU, Slope)
TORCH_OPTIONS(Hardshrink, Shrink)
TORCH_OPTIONS(Softshrink, Shrink)
TORCH_OPTIONS(Softmax, Dim)
TORCH_OPTIONS(LogSoftmax, Dim)
TORCH_OPTIONS(Softmin, Dim)
TORCH_OPTIONS(GLU, Dim)
TORCH_OPTIONS(GELU, GELU)
TORCH_OPTIONS(Hardtanh, Hardtanh)
TORCH_OPTIONS(Softplus, Softplus)
TORCH_OPTIONS(Threshold, Threshold)
TORCH_OPTIONS(PReLU, PReLU)
TORCH_OPTIONS(RReLU, RReLU)
TORCH_OPTIONS(Dropout, Dropout)
TORCH_OPTIONS(Dropout2d, Dropout)
TORCH_OPTIONS(Dropout3d, Dropout)
TORCH_OPTIONS(AlphaDropout, Dropout)
TORCH_OPTIONS(FeatureAlphaDropout, Dropout)
TORCH_OPTIONS(Flatten, Flatten)
TORCH_OPTIONS(CosineSimilarity, CosineSimilarity)
TORCH_OPTIONS(PairwiseDistance, PairwiseDistance)
TORCH_DIMENSIONS(TORCH_OPTIONS, AdaptiveAvgPool, OutputSize)
TORCH_DIMENSIONS(TORCH_OPTIONS, AdaptiveMaxPool, OutputSize)
TORCH_DIMENSIONS(TORCH_OPTIONS, ReflectionPad, Padding)
TORCH_DIMENSIONS(TORCH_OPTIONS, ReplicationPad, Padding)
TORCH_DIMENSIONS(TORCH_OPTIONS, ZeroPad, Padding)
TORCH_DIMENSIONS(TORCH_OPTIONS, ConstantPad, ConstantPad)
#undef TORCH_OPTIONS
#undef TORCH_DIMENSIONS

}  // namespace torch::nn
