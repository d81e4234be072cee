// Windows that slide over images and keep their maximum, their mean, or a norm.
#pragma once

#include "mica/generated/nn/pooling.h"

namespace mica::nn {

// ---- maxima

#define MICA_MAX_POOL(Name)                                           \
  class Name##Impl : public MaxPoolBase {                             \
   public:                                                            \
    using MaxPoolBase::MaxPoolBase;                                   \
    Tensor forward(const Tensor& x);                                  \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x); \
  };                                                                  \
  MICA_MODULE(Name);
MICA_MAX_POOL(MaxPool1d)
MICA_MAX_POOL(MaxPool2d)
MICA_MAX_POOL(MaxPool3d)
#undef MICA_MAX_POOL

// Puts maxima back where they came from, among zeros.
#define MICA_MAX_UNPOOL(Name, ndim)                                                                      \
  class Name##Impl : public MaxUnpoolBase {                                                              \
   public:                                                                                               \
    explicit Name##Impl(const Dims& kernel_size, const Options& options = {})                            \
        : MaxUnpoolBase(ndim, kernel_size, options) {}                                                   \
    Tensor forward(const Tensor& x, const Tensor& indices, const std::optional<Dims>& output_size = {}); \
  };                                                                                                     \
  MICA_MODULE(Name);
MICA_MAX_UNPOOL(MaxUnpool1d, 1)
MICA_MAX_UNPOOL(MaxUnpool2d, 2)
MICA_MAX_UNPOOL(MaxUnpool3d, 3)
#undef MICA_MAX_UNPOOL

// Windows at random distances. One of size and ratio is to be given.
struct FractionalMaxPoolOptions {
  std::optional<Dims> output_size = {};
  std::vector<double> output_ratio = {};  // one number, or one for each dimension
  Tensor random_samples = {};             // replaces the random distances
};
class FractionalMaxPoolBase : public Module {
 public:
  const DimVector kernel_size;
  const std::optional<DimVector> output_size;
  const std::optional<std::vector<double>> output_ratio;

 protected:
  FractionalMaxPoolBase(size_t ndim, const Dims& kernel_size, const FractionalMaxPoolOptions& options);
  Tensor random_samples_;
};
#define MICA_FRACTIONAL_MAX_POOL(Name, ndim)                                                                           \
  class Name##Impl : public FractionalMaxPoolBase {                                                                    \
   public:                                                                                                             \
    using Options = FractionalMaxPoolOptions;                                                                          \
    Name##Impl(const Dims& kernel_size, const Options& options) : FractionalMaxPoolBase(ndim, kernel_size, options) {} \
    Tensor forward(const Tensor& x) { return std::get<0>(forward_with_indices(x)); }                                   \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);                                                  \
  };                                                                                                                   \
  MICA_MODULE(Name);
MICA_FRACTIONAL_MAX_POOL(FractionalMaxPool2d, 2)
MICA_FRACTIONAL_MAX_POOL(FractionalMaxPool3d, 3)
#undef MICA_FRACTIONAL_MAX_POOL

// ---- means and norms

#define MICA_AVG_POOL(Name)               \
  class Name##Impl : public AvgPoolBase { \
   public:                                \
    using AvgPoolBase::AvgPoolBase;       \
    Tensor forward(const Tensor& x);      \
  };                                      \
  MICA_MODULE(Name);
MICA_AVG_POOL(AvgPool2d)
MICA_AVG_POOL(AvgPool3d)
#undef MICA_AVG_POOL
class AvgPool1dImpl : public AvgPoolBase {
 public:
  explicit AvgPool1dImpl(const Dims& kernel_size, const Options& options = {});
  Tensor forward(const Tensor& x);
};
MICA_MODULE(AvgPool1d);

#define MICA_LP_POOL(Name)                                                       \
  class Name##Impl : public LPPoolBase {                                         \
   public:                                                                       \
    using LPPoolBase::LPPoolBase;                                                \
    Tensor forward(const Tensor& x);                                             \
  };                                                                             \
  class Name : public ModuleHolder<Name##Impl> {                                 \
   public:                                                                       \
    using ModuleHolder<Name##Impl>::ModuleHolder;                                \
    Name(double norm_type, const Dims& kernel_size, const Options& options = {}) \
        : ModuleHolder<Name##Impl>(norm_type, kernel_size, options) {}           \
  };
MICA_LP_POOL(LPPool1d)
MICA_LP_POOL(LPPool2d)
MICA_LP_POOL(LPPool3d)
#undef MICA_LP_POOL

// ---- as many windows as the result has elements

#define MICA_ADAPTIVE_POOL(Name)               \
  class Name##Impl : public AdaptivePoolBase { \
   public:                                     \
    using AdaptivePoolBase::AdaptivePoolBase;  \
    Tensor forward(const Tensor& x);           \
  };                                           \
  MICA_MODULE(Name);
MICA_ADAPTIVE_POOL(AdaptiveAvgPool1d)
MICA_ADAPTIVE_POOL(AdaptiveAvgPool2d)
MICA_ADAPTIVE_POOL(AdaptiveAvgPool3d)
#undef MICA_ADAPTIVE_POOL
#define MICA_ADAPTIVE_POOL(Name)                                                     \
  class Name##Impl : public AdaptivePoolBase {                                       \
   public:                                                                           \
    using AdaptivePoolBase::AdaptivePoolBase;                                        \
    Tensor forward(const Tensor& x) { return std::get<0>(forward_with_indices(x)); } \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);                \
  };                                                                                 \
  MICA_MODULE(Name);
MICA_ADAPTIVE_POOL(AdaptiveMaxPool1d)
MICA_ADAPTIVE_POOL(AdaptiveMaxPool2d)
MICA_ADAPTIVE_POOL(AdaptiveMaxPool3d)
#undef MICA_ADAPTIVE_POOL

}  // namespace mica::nn
