// Layers that take their input size from the first input: nn::LazyLinear(10) becomes an nn::Linear(x.size(-1), 10) by
// its first call. Before that its parameters are listed but empty; that call draws their initial values.
#pragma once

#include "mica/nn/conv.h"
#include "mica/nn/linear.h"
#include "mica/nn/normalization.h"

namespace mica::nn {

class LazyLinearImpl : public LinearImpl {
 public:
  explicit LazyLinearImpl(int64_t out_features, Options options = {}) : LinearImpl(Lazy(), out_features, options) {}
  Tensor forward(const Tensor& x) {
    take_input(x);
    return LinearImpl::forward(x);
  }
  std::string name() const override { return in_features == 0 ? "LazyLinear" : "Linear"; }
};
MICA_MODULE(LazyLinear);

#define MICA_LAZY_CONVOLUTION(Name)                                                        \
  class Lazy##Name##Impl : public Name##Impl {                                             \
   public:                                                                                 \
    Lazy##Name##Impl(int64_t out_channels, Dims kernel_size, Options options = {})         \
        : Name##Impl(Lazy(), out_channels, kernel_size, options) {}                        \
    template <class... Args>                                                               \
    Tensor forward(const Tensor& x, const Args&... args) {                                 \
      take_input(x);                                                                       \
      return Name##Impl::forward(x, args...);                                              \
    }                                                                                      \
    std::string name() const override { return in_channels == 0 ? "Lazy" #Name : #Name; }  \
  };                                                                                       \
  class Lazy##Name : public ModuleHolder<Lazy##Name##Impl> {                               \
   public:                                                                                 \
    using ModuleHolder<Lazy##Name##Impl>::ModuleHolder;                                    \
    Lazy##Name(int64_t out_channels, const Dims& kernel_size, const Options& options = {}) \
        : ModuleHolder<Lazy##Name##Impl>(out_channels, kernel_size, options) {}            \
  };
MICA_LAZY_CONVOLUTION(Conv1d)
MICA_LAZY_CONVOLUTION(Conv2d)
MICA_LAZY_CONVOLUTION(Conv3d)
MICA_LAZY_CONVOLUTION(ConvTranspose1d)
MICA_LAZY_CONVOLUTION(ConvTranspose2d)
MICA_LAZY_CONVOLUTION(ConvTranspose3d)
#undef MICA_LAZY_CONVOLUTION

#define MICA_LAZY_NORM(Name)                                                               \
  class Lazy##Name##Impl : public Name##Impl {                                             \
   public:                                                                                 \
    explicit Lazy##Name##Impl(Options options = {}) : Name##Impl(Lazy(), options) {}       \
    Tensor forward(const Tensor& x) {                                                      \
      take_input(x);                                                                       \
      return Name##Impl::forward(x);                                                       \
    }                                                                                      \
    std::string name() const override { return num_features == 0 ? "Lazy" #Name : #Name; } \
  };                                                                                       \
  MICA_MODULE(Lazy##Name);
MICA_LAZY_NORM(BatchNorm1d)
MICA_LAZY_NORM(BatchNorm2d)
MICA_LAZY_NORM(BatchNorm3d)
MICA_LAZY_NORM(InstanceNorm1d)
MICA_LAZY_NORM(InstanceNorm2d)
MICA_LAZY_NORM(InstanceNorm3d)
#undef MICA_LAZY_NORM

}  // namespace mica::nn
