#include "mica/nn/pooling.h"

#include "mica/layers.h"
#include "nn/text.h"

namespace mica::nn {

#define MICA_MAX_POOL(Name, ndim, function)                                               \
  Name##Impl::Name##Impl(Dims kernel, Options o)                                          \
      : kernel_size(kernel.expand(ndim, "kernel_size")),                                  \
        stride(o.stride.value_or(kernel).expand(ndim, "stride")),                         \
        padding(o.padding.expand(ndim, "padding")),                                       \
        dilation(o.dilation.expand(ndim, "dilation")),                                    \
        ceil_mode(o.ceil_mode) {}                                                         \
  Tensor Name##Impl::forward(const Tensor& x) {                                           \
    return function(x, kernel_size, stride, padding, dilation, ceil_mode);                \
  }                                                                                       \
  std::tuple<Tensor, Tensor> Name##Impl::forward_with_indices(const Tensor& x) {          \
    return function##_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode); \
  }                                                                                       \
  std::string Name##Impl::extra_repr() const {                                            \
    return cat("kernel_size=", tuple_text(kernel_size), ", stride=", tuple_text(stride),  \
               ", padding=", tuple_text(padding), ", dilation=", tuple_text(dilation),    \
               ", ceil_mode=", truth(ceil_mode));                                         \
  }
MICA_MAX_POOL(MaxPool1d, 1, max_pool1d)
MICA_MAX_POOL(MaxPool2d, 2, max_pool2d)
MICA_MAX_POOL(MaxPool3d, 3, max_pool3d)
#undef MICA_MAX_POOL

#define MICA_AVG_POOL(Name, ndim)                                                        \
  Name##Impl::Name##Impl(Dims kernel, Options o)                                         \
      : kernel_size(kernel.expand(ndim, "kernel_size")),                                 \
        stride(o.stride.value_or(kernel).expand(ndim, "stride")),                        \
        padding(o.padding.expand(ndim, "padding")),                                      \
        ceil_mode(o.ceil_mode),                                                          \
        count_include_pad(o.count_include_pad),                                          \
        divisor_override(o.divisor_override) {}                                          \
  std::string Name##Impl::extra_repr() const {                                           \
    return cat("kernel_size=", tuple_text(kernel_size), ", stride=", tuple_text(stride), \
               ", padding=", tuple_text(padding));                                       \
  }
MICA_AVG_POOL(AvgPool1d, 1)
MICA_AVG_POOL(AvgPool2d, 2)
MICA_AVG_POOL(AvgPool3d, 3)
#undef MICA_AVG_POOL

Tensor AvgPool1dImpl::forward(const Tensor& x) {
  return avg_pool1d(x, kernel_size, stride, padding, ceil_mode, count_include_pad);
}
Tensor AvgPool2dImpl::forward(const Tensor& x) {
  return avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}
Tensor AvgPool3dImpl::forward(const Tensor& x) {
  return avg_pool3d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}

Tensor AdaptiveAvgPool1dImpl::forward(const Tensor& x) { return adaptive_avg_pool1d(x, output_size); }
Tensor AdaptiveAvgPool2dImpl::forward(const Tensor& x) { return adaptive_avg_pool2d(x, output_size); }
Tensor AdaptiveAvgPool3dImpl::forward(const Tensor& x) { return adaptive_avg_pool3d(x, output_size); }
Tensor AdaptiveMaxPool1dImpl::forward(const Tensor& x) { return std::get<0>(adaptive_max_pool1d(x, output_size)); }
Tensor AdaptiveMaxPool2dImpl::forward(const Tensor& x) { return std::get<0>(adaptive_max_pool2d(x, output_size)); }
Tensor AdaptiveMaxPool3dImpl::forward(const Tensor& x) { return std::get<0>(adaptive_max_pool3d(x, output_size)); }

}  // namespace mica::nn
