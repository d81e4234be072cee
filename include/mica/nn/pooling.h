// Windows that slide over images and keep their maximum, their mean, or a norm.
#pragma once

#include <optional>

#include "mica/nn/module.h"

namespace mica::nn {

// ---- maxima

struct MaxPoolOptions {
  std::optional<Dims> stride = {};  // the window's size unless given
  Dims padding = 0;
  Dims dilation = 1;
  bool ceil_mode = false;
};
class MaxPoolBase : public Module {
 public:
  std::string extra_repr() const override;
  const Dims kernel_size, stride, padding, dilation;
  const bool ceil_mode;

 protected:
  MaxPoolBase(const Dims& kernel_size, const MaxPoolOptions& options);
};
#define MICA_MAX_POOL(Name)                                                                                          \
  class Name##Impl : public MaxPoolBase {                                                                            \
   public:                                                                                                           \
    using Options = MaxPoolOptions;                                                                                  \
    explicit Name##Impl(const Dims& kernel_size, const Options& options = {}) : MaxPoolBase(kernel_size, options) {} \
    Tensor forward(const Tensor& x);                                                                                 \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);                                                \
  };                                                                                                                 \
  MICA_MODULE(Name);
MICA_MAX_POOL(MaxPool1d)
MICA_MAX_POOL(MaxPool2d)
MICA_MAX_POOL(MaxPool3d)
#undef MICA_MAX_POOL

// Puts maxima back where they came from, among zeros.
struct MaxUnpoolOptions {
  std::optional<Dims> stride = {};
  Dims padding = 0;
};
class MaxUnpoolBase : public Module {
 public:
  std::string extra_repr() const override;
  const DimVector kernel_size, stride, padding;

 protected:
  MaxUnpoolBase(size_t ndim, const Dims& kernel_size, const MaxUnpoolOptions& options);
};
#define MICA_MAX_UNPOOL(Name, ndim)                                                                      \
  class Name##Impl : public MaxUnpoolBase {                                                              \
   public:                                                                                               \
    using Options = MaxUnpoolOptions;                                                                    \
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
  std::vector<double> output_ratio = {};  // of one number, or of one for each dimension
  Tensor random_samples = {};             // in the place of random distances
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

struct AvgPoolOptions {
  std::optional<Dims> stride = {};
  Dims padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override = {};  // in two and three dimensions
};
class AvgPoolBase : public Module {
 public:
  std::string extra_repr() const override;
  const Dims kernel_size, stride, padding;
  const bool ceil_mode, count_include_pad;
  const std::optional<int64_t> divisor_override;

 protected:
  AvgPoolBase(const Dims& kernel_size, const AvgPoolOptions& options);
};
#define MICA_AVG_POOL(Name)                                                                                          \
  class Name##Impl : public AvgPoolBase {                                                                            \
   public:                                                                                                           \
    using Options = AvgPoolOptions;                                                                                  \
    explicit Name##Impl(const Dims& kernel_size, const Options& options = {}) : AvgPoolBase(kernel_size, options) {} \
    Tensor forward(const Tensor& x);                                                                                 \
  };                                                                                                                 \
  MICA_MODULE(Name);
MICA_AVG_POOL(AvgPool2d)
MICA_AVG_POOL(AvgPool3d)
#undef MICA_AVG_POOL
class AvgPool1dImpl : public AvgPoolBase {
 public:
  using Options = AvgPoolOptions;
  explicit AvgPool1dImpl(const Dims& kernel_size, const Options& options = {});
  Tensor forward(const Tensor& x);
};
MICA_MODULE(AvgPool1d);

struct LPPoolOptions {
  std::optional<Dims> stride = {};
  bool ceil_mode = false;
};
class LPPoolBase : public Module {
 public:
  std::string extra_repr() const override;
  const double norm_type;
  const Dims kernel_size;
  const std::optional<Dims> stride;
  const bool ceil_mode;

 protected:
  LPPoolBase(double norm_type, const Dims& kernel_size, const LPPoolOptions& options)
      : norm_type(norm_type), kernel_size(kernel_size), stride(options.stride), ceil_mode(options.ceil_mode) {}
};
#define MICA_LP_POOL(Name)                                                             \
  class Name##Impl : public LPPoolBase {                                               \
   public:                                                                             \
    using Options = LPPoolOptions;                                                     \
    Name##Impl(double norm_type, const Dims& kernel_size, const Options& options = {}) \
        : LPPoolBase(norm_type, kernel_size, options) {}                               \
    Tensor forward(const Tensor& x);                                                   \
  };                                                                                   \
  class Name : public ModuleHolder<Name##Impl> {                                       \
   public:                                                                             \
    using ModuleHolder<Name##Impl>::ModuleHolder;                                      \
    Name(double norm_type, const Dims& kernel_size, const Options& options = {})       \
        : ModuleHolder<Name##Impl>(norm_type, kernel_size, options) {}                 \
  };
MICA_LP_POOL(LPPool1d)
MICA_LP_POOL(LPPool2d)
MICA_LP_POOL(LPPool3d)
#undef MICA_LP_POOL

// ---- as many windows as the result has elements

class AdaptivePoolBase : public Module {
 public:
  std::string extra_repr() const override;
  const Dims output_size;

 protected:
  explicit AdaptivePoolBase(const Dims& output_size) : output_size(output_size) {}
};
#define MICA_ADAPTIVE_POOL(Name)                                                    \
  class Name##Impl : public AdaptivePoolBase {                                      \
   public:                                                                          \
    explicit Name##Impl(const Dims& output_size) : AdaptivePoolBase(output_size) {} \
    Tensor forward(const Tensor& x);                                                \
  };                                                                                \
  MICA_MODULE(Name);
MICA_ADAPTIVE_POOL(AdaptiveAvgPool1d)
MICA_ADAPTIVE_POOL(AdaptiveAvgPool2d)
MICA_ADAPTIVE_POOL(AdaptiveAvgPool3d)
#undef MICA_ADAPTIVE_POOL
#define MICA_ADAPTIVE_POOL(Name)                                                     \
  class Name##Impl : public AdaptivePoolBase {                                       \
   public:                                                                           \
    explicit Name##Impl(const Dims& output_size) : AdaptivePoolBase(output_size) {}  \
    Tensor forward(const Tensor& x) { return std::get<0>(forward_with_indices(x)); } \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x);                \
  };                                                                                 \
  MICA_MODULE(Name);
MICA_ADAPTIVE_POOL(AdaptiveMaxPool1d)
MICA_ADAPTIVE_POOL(AdaptiveMaxPool2d)
MICA_ADAPTIVE_POOL(AdaptiveMaxPool3d)
#undef MICA_ADAPTIVE_POOL

}  // namespace mica::nn
