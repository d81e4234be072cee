// Windows that slide over images and keep their maximum, their mean, or a norm.
#pragma once

#include <optional>

#include "mica/nn/dims.h"
#include "mica/nn/module.h"

namespace mica::nn {

struct MaxPoolOptions {
  std::optional<Dims> stride = {};  // the window's size unless given
  Dims padding = 0;
  Dims dilation = 1;
  bool ceil_mode = false;
};
struct AvgPoolOptions {
  std::optional<Dims> stride = {};
  Dims padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<int64_t> divisor_override = {};
};

#define MICA_MAX_POOL(Name, ndim)                                     \
  class Name##Impl : public Module {                                  \
   public:                                                            \
    using Options = MaxPoolOptions;                                   \
    explicit Name##Impl(Dims kernel_size, Options options = {});      \
    Tensor forward(const Tensor& x);                                  \
    std::tuple<Tensor, Tensor> forward_with_indices(const Tensor& x); \
    std::string extra_repr() const override;                          \
    const DimVector kernel_size, stride, padding, dilation;           \
    const bool ceil_mode;                                             \
  };                                                                  \
  MICA_MODULE(Name);
#define MICA_AVG_POOL(Name, ndim)                                \
  class Name##Impl : public Module {                             \
   public:                                                       \
    using Options = AvgPoolOptions;                              \
    explicit Name##Impl(Dims kernel_size, Options options = {}); \
    Tensor forward(const Tensor& x);                             \
    std::string extra_repr() const override;                     \
    const DimVector kernel_size, stride, padding;                \
    const bool ceil_mode, count_include_pad;                     \
    const std::optional<int64_t> divisor_override;               \
  };                                                             \
  MICA_MODULE(Name);
#define MICA_ADAPTIVE_POOL(Name, ndim)                                                              \
  class Name##Impl : public Module {                                                                \
   public:                                                                                          \
    explicit Name##Impl(Dims output_size) : output_size(output_size.expand(ndim, "output_size")) {} \
    Tensor forward(const Tensor& x);                                                                \
    std::string extra_repr() const override { return "output_size=" + tuple_text(output_size); }    \
    const DimVector output_size;                                                                    \
  };                                                                                                \
  MICA_MODULE(Name);
MICA_MAX_POOL(MaxPool1d, 1)
MICA_MAX_POOL(MaxPool2d, 2)
MICA_MAX_POOL(MaxPool3d, 3)
MICA_AVG_POOL(AvgPool1d, 1)
MICA_AVG_POOL(AvgPool2d, 2)
MICA_AVG_POOL(AvgPool3d, 3)
MICA_ADAPTIVE_POOL(AdaptiveAvgPool1d, 1)
MICA_ADAPTIVE_POOL(AdaptiveAvgPool2d, 2)
MICA_ADAPTIVE_POOL(AdaptiveAvgPool3d, 3)
MICA_ADAPTIVE_POOL(AdaptiveMaxPool1d, 1)
MICA_ADAPTIVE_POOL(AdaptiveMaxPool2d, 2)
MICA_ADAPTIVE_POOL(AdaptiveMaxPool3d, 3)
#undef MICA_MAX_POOL
#undef MICA_AVG_POOL
#undef MICA_ADAPTIVE_POOL

}  // namespace mica::nn
