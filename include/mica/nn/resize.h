// Layers that change the resolution of images, move elements between places and channels, or cut images into blocks.
#pragma once

#include <optional>

#include "mica/nn/module.h"

namespace mica::nn {

// One of size and scale_factor is to be given, as one number or as one for each dimension.
struct UpsampleOptions {
  std::optional<Dims> size = {};
  std::vector<double> scale_factor = {};
  std::string mode = "nearest";  // "linear", "bilinear", "bicubic", "trilinear",
                                 // "nearest-exact", "area"
  std::optional<bool> align_corners = {};
  std::optional<bool> recompute_scale_factor = {};
};
class UpsampleImpl : public Module {
 public:
  using Options = UpsampleOptions;
  explicit UpsampleImpl(Options options) : options(std::move(options)) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const Options options;
};
MICA_MODULE(Upsample);

// Of images, by their nearest elements or by bilinear interpolation between aligned corners.
#define MICA_UPSAMPLING(Name)              \
  class Name##Impl : public UpsampleImpl { \
   public:                                 \
    explicit Name##Impl(Options options);  \
  };                                       \
  MICA_MODULE(Name);
MICA_UPSAMPLING(UpsamplingNearest2d)
MICA_UPSAMPLING(UpsamplingBilinear2d)
#undef MICA_UPSAMPLING

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

// ---- sliding blocks, each as a column, and back

struct UnfoldOptions {
  Dims dilation = 1, padding = 0, stride = 1;
};
class UnfoldImpl : public Module {
 public:
  using Options = UnfoldOptions;
  explicit UnfoldImpl(const Dims& kernel_size, Options options = {}) : kernel_size(kernel_size), options(options) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const Dims kernel_size;
  const Options options;
};
MICA_MODULE(Unfold);

class FoldImpl : public Module {
 public:
  using Options = UnfoldOptions;
  FoldImpl(const Dims& output_size, const Dims& kernel_size, Options options = {})
      : output_size(output_size), kernel_size(kernel_size), options(options) {}
  Tensor forward(const Tensor& x);
  std::string extra_repr() const override;
  const Dims output_size, kernel_size;
  const Options options;
};
class Fold : public ModuleHolder<FoldImpl> {
 public:
  using ModuleHolder<FoldImpl>::ModuleHolder;
  Fold(const Dims& output_size, const Dims& kernel_size, const Options& options = {})
      : ModuleHolder<FoldImpl>(output_size, kernel_size, options) {}
};

}  // namespace mica::nn
