// Layers that change the resolution of images, move elements between places and channels, or cut images into blocks.
#pragma once

#include "mica/generated/nn/resize.h"

namespace mica::nn {

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

#define MICA_SHUFFLE(Name)               \
  class Name##Impl : public Name##Base { \
   public:                               \
    using Name##Base::Name##Base;        \
    Tensor forward(const Tensor& x);     \
  };                                     \
  MICA_MODULE(Name);
MICA_SHUFFLE(PixelShuffle)
MICA_SHUFFLE(PixelUnshuffle)
MICA_SHUFFLE(ChannelShuffle)
#undef MICA_SHUFFLE

// ---- sliding blocks, each as a column, and back

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
