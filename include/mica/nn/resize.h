// Layers that pad, resample or rearrange images, and distances between rows.
#pragma once

#include <optional>

#include "mica/nn/dims.h"
#include "mica/nn/module.h"

namespace mica::nn {

// One number for all sides, or two for each dimension, last dimension first.
#define MICA_PADDING(Name, ndim)                                                          \
  class Name##Impl : public Module {                                                      \
   public:                                                                                \
    explicit Name##Impl(Dims padding) : padding(padding.expand(2 * (ndim), "padding")) {} \
    Tensor forward(const Tensor& x);                                                      \
    std::string extra_repr() const override { return tuple_text(padding); }               \
    const DimVector padding;                                                              \
  };                                                                                      \
  MICA_MODULE(Name);
MICA_PADDING(ZeroPad1d, 1)
MICA_PADDING(ZeroPad2d, 2)
MICA_PADDING(ZeroPad3d, 3)
MICA_PADDING(ReflectionPad1d, 1)
MICA_PADDING(ReflectionPad2d, 2)
MICA_PADDING(ReflectionPad3d, 3)
MICA_PADDING(ReplicationPad1d, 1)
MICA_PADDING(ReplicationPad2d, 2)
MICA_PADDING(ReplicationPad3d, 3)
MICA_PADDING(CircularPad1d, 1)
MICA_PADDING(CircularPad2d, 2)
MICA_PADDING(CircularPad3d, 3)
#undef MICA_PADDING

#define MICA_CONSTANT_PADDING(Name, ndim)                                                                    \
  class Name##Impl : public Module {                                                                         \
   public:                                                                                                   \
    Name##Impl(Dims padding, double value) : padding(padding.expand(2 * (ndim), "padding")), value(value) {} \
    Tensor forward(const Tensor& x);                                                                         \
    std::string extra_repr() const override;                                                                 \
    const DimVector padding;                                                                                 \
    const double value;                                                                                      \
  };                                                                                                         \
  MICA_MODULE(Name);
MICA_CONSTANT_PADDING(ConstantPad1d, 1)
MICA_CONSTANT_PADDING(ConstantPad2d, 2)
MICA_CONSTANT_PADDING(ConstantPad3d, 3)
#undef MICA_CONSTANT_PADDING

struct UpsampleOptions {
  std::optional<DimVector> size = {};
  std::optional<std::vector<double>> scale_factor = {};
  std::string mode = "nearest";
  std::optional<bool> align_corners = {};
};
class UpsampleImpl : public Module {
 public:
  using Options = UpsampleOptions;
  explicit UpsampleImpl(Options options) : options(std::move(options)) {}
  Tensor forward(const Tensor& x);
  const Options options;
};
MICA_MODULE(Upsample);

class PixelShuffleImpl : public Module {
 public:
  explicit PixelShuffleImpl(int64_t upscale_factor) : upscale_factor(upscale_factor) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const int64_t upscale_factor;
};
MICA_MODULE(PixelShuffle);

class PixelUnshuffleImpl : public Module {
 public:
  explicit PixelUnshuffleImpl(int64_t downscale_factor) : downscale_factor(downscale_factor) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const int64_t downscale_factor;
};
MICA_MODULE(PixelUnshuffle);

class ChannelShuffleImpl : public Module {
 public:
  explicit ChannelShuffleImpl(int64_t groups) : groups(groups) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const int64_t groups;
};
MICA_MODULE(ChannelShuffle);

struct UnfoldOptions {
  Dims dilation = 1, padding = 0, stride = 1;
};
class UnfoldImpl : public Module {
 public:
  using Options = UnfoldOptions;
  explicit UnfoldImpl(Dims kernel_size, Options options = {})
      : kernel_size(kernel_size.expand(2, "kernel_size")), options(options) {}
  Tensor forward(const Tensor& x);
  const DimVector kernel_size;
  const Options options;
};
MICA_MODULE(Unfold);

class FoldImpl : public Module {
 public:
  using Options = UnfoldOptions;
  FoldImpl(Dims output_size, Dims kernel_size, Options options = {})
      : output_size(output_size.expand(2, "output_size")),
        kernel_size(kernel_size.expand(2, "kernel_size")),
        options(options) {}
  Tensor forward(const Tensor& x);
  const DimVector output_size, kernel_size;
  const Options options;
};
MICA_MODULE(Fold);

class CosineSimilarityImpl : public Module {
 public:
  explicit CosineSimilarityImpl(int64_t dim = 1, double eps = 1e-8) : dim(dim), eps(eps) {}
  Tensor forward(const Tensor& x1, const Tensor& x2);
  const int64_t dim;
  const double eps;
};
MICA_MODULE(CosineSimilarity);

class PairwiseDistanceImpl : public Module {
 public:
  explicit PairwiseDistanceImpl(double p = 2, double eps = 1e-6, bool keepdim = false)
      : p(p), eps(eps), keepdim(keepdim) {}
  Tensor forward(const Tensor& x1, const Tensor& x2);
  const double p, eps;
  const bool keepdim;
};
MICA_MODULE(PairwiseDistance);

}  // namespace mica::nn
