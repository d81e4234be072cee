// Convolutions in one to three dimensions, plain and transposed.
#pragma once

#include "mica/generated/nn/conv.h"

namespace mica::nn {

// What all of them share: filters, and how they slide.
class ConvBase : public Module {
 public:
  void reset_parameters();
  std::string extra_repr() const override;

  int64_t in_channels;  // 0 until the first input decides it
  const int64_t out_channels;
  const DimVector kernel_size, stride, padding, dilation, output_padding;
  const int64_t groups;
  const std::string padding_word, padding_mode;
  const bool transposed;
  Tensor weight, bias;

 protected:
  ConvBase(size_t ndim, int64_t in_channels, int64_t out_channels, const Dims& kernel_size, const ConvOptions& options);
  ConvBase(size_t ndim, int64_t in_channels, int64_t out_channels, const Dims& kernel_size,
           const ConvTransposeOptions& options);
  template <class Options>
  ConvBase(Lazy, size_t ndim, int64_t out_channels, const Dims& kernel_size, const Options& options)
      : ConvBase(ndim, kOpen, out_channels, kernel_size, options) {}
  void take_input(const Tensor& x);
  void members_replaced() override;

 private:
  static constexpr int64_t kOpen = -1;
  void make_parameters(bool bias);
  DimVector weight_sizes() const;
};

#define MICA_CONVOLUTION(Name, ndim)                                                              \
  class Name##Impl : public ConvBase {                                                            \
   public:                                                                                        \
    using Options = ConvOptions;                                                                  \
    Name##Impl(int64_t in_channels, int64_t out_channels, Dims kernel_size, Options options = {}) \
        : ConvBase(ndim, in_channels, out_channels, kernel_size, options) {}                      \
    Tensor forward(const Tensor& x);                                                              \
                                                                                                  \
   protected:                                                                                     \
    Name##Impl(Lazy lazy, int64_t out_channels, const Dims& kernel_size, const Options& options)  \
        : ConvBase(lazy, ndim, out_channels, kernel_size, options) {}                             \
  };                                                                                              \
  MICA_MODULE(Name);
#define MICA_TRANSPOSED_CONVOLUTION(Name, ndim)                                                   \
  class Name##Impl : public ConvBase {                                                            \
   public:                                                                                        \
    using Options = ConvTransposeOptions;                                                         \
    Name##Impl(int64_t in_channels, int64_t out_channels, Dims kernel_size, Options options = {}) \
        : ConvBase(ndim, in_channels, out_channels, kernel_size, options) {}                      \
    Tensor forward(const Tensor& x, const std::optional<Dims>& output_size = {});                 \
                                                                                                  \
   protected:                                                                                     \
    Name##Impl(Lazy lazy, int64_t out_channels, const Dims& kernel_size, const Options& options)  \
        : ConvBase(lazy, ndim, out_channels, kernel_size, options) {}                             \
  };                                                                                              \
  MICA_MODULE(Name);
MICA_CONVOLUTION(Conv1d, 1)
MICA_CONVOLUTION(Conv2d, 2)
MICA_CONVOLUTION(Conv3d, 3)
MICA_TRANSPOSED_CONVOLUTION(ConvTranspose1d, 1)
MICA_TRANSPOSED_CONVOLUTION(ConvTranspose2d, 2)
MICA_TRANSPOSED_CONVOLUTION(ConvTranspose3d, 3)
#undef MICA_CONVOLUTION
#undef MICA_TRANSPOSED_CONVOLUTION

}  // namespace mica::nn
