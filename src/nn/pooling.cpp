#include "mica/nn/pooling.h"

#include "mica/layers.h"

namespace mica::nn {

// ---- maxima

#define MICA_MAX_POOL(Name, function)                                                     \
  Tensor Name##Impl::forward(const Tensor& x) {                                           \
    return function(x, kernel_size, stride, padding, dilation, ceil_mode);                \
  }                                                                                       \
  std::tuple<Tensor, Tensor> Name##Impl::forward_with_indices(const Tensor& x) {          \
    return function##_with_indices(x, kernel_size, stride, padding, dilation, ceil_mode); \
  }
MICA_MAX_POOL(MaxPool1d, max_pool1d)
MICA_MAX_POOL(MaxPool2d, max_pool2d)
MICA_MAX_POOL(MaxPool3d, max_pool3d)
#undef MICA_MAX_POOL

static std::optional<IntArrayRef> ref(const std::optional<Dims>& dims) {
  return dims ? std::optional<IntArrayRef>(dims->sizes()) : std::nullopt;
}

#define MICA_MAX_UNPOOL(Name, function)                                                                        \
  Tensor Name##Impl::forward(const Tensor& x, const Tensor& indices, const std::optional<Dims>& output_size) { \
    return function(x, indices, kernel_size, stride.ref(), padding, ref(output_size));                         \
  }
MICA_MAX_UNPOOL(MaxUnpool1d, functional_max_unpool1d)
MICA_MAX_UNPOOL(MaxUnpool2d, functional_max_unpool2d)
MICA_MAX_UNPOOL(MaxUnpool3d, functional_max_unpool3d)
#undef MICA_MAX_UNPOOL

static std::optional<std::vector<double>> expanded_ratio(const std::vector<double>& ratio, size_t ndim) {
  if (ratio.empty()) return {};
  MICA_CHECK_KIND(ratio.size() == 1 || ratio.size() == ndim, Value, "output_ratio must be one number or ", ndim,
                  " of them, but got ", ratio.size());
  for (const double r : ratio)
    MICA_CHECK_KIND(r > 0 && r < 1, Value, "output_ratio must be between 0 and 1 (got ", r, ")");
  return ratio.size() == ndim ? ratio : std::vector<double>(ndim, ratio[0]);
}
FractionalMaxPoolBase::FractionalMaxPoolBase(size_t ndim, const Dims& kernel_size, const FractionalMaxPoolOptions& o)
    : kernel_size(kernel_size.expand(ndim, "kernel_size")),
      output_size(o.output_size ? std::optional(o.output_size->expand(ndim, "output_size")) : std::nullopt),
      output_ratio(expanded_ratio(o.output_ratio, ndim)),
      random_samples_(
          register_buffer("_random_samples", o.random_samples.defined() ? o.random_samples.detach() : Tensor())) {
  MICA_CHECK_KIND(output_size || output_ratio, Value, "FractionalMaxPool", ndim,
                  "d requires specifying either an output size, or a pooling ratio");
  MICA_CHECK_KIND(!output_size || !output_ratio, Value, "only one of output_size and output_ratio may be specified");
}
#define MICA_FRACTIONAL_MAX_POOL(Name, function)                                 \
  std::tuple<Tensor, Tensor> Name##Impl::forward_with_indices(const Tensor& x) { \
    std::optional<IntArrayRef> size;                                             \
    std::optional<ArrayRef<double>> ratio;                                       \
    if (output_size) size = output_size->ref();                                  \
    if (output_ratio) ratio = ArrayRef<double>(*output_ratio);                   \
    return function(x, kernel_size, size, ratio, true, random_samples_);         \
  }
MICA_FRACTIONAL_MAX_POOL(FractionalMaxPool2d, functional_fractional_max_pool2d)
MICA_FRACTIONAL_MAX_POOL(FractionalMaxPool3d, functional_fractional_max_pool3d)
#undef MICA_FRACTIONAL_MAX_POOL

// ---- means and norms

// Python keeps and prints tuples of one number here.
AvgPool1dImpl::AvgPool1dImpl(const Dims& kernel_size, const Options& o)
    : AvgPoolBase(kernel_size.expand(1, "kernel_size"), {.stride = o.stride.value_or(kernel_size).expand(1, "stride"),
                                                         .padding = o.padding.expand(1, "padding"),
                                                         .ceil_mode = o.ceil_mode,
                                                         .count_include_pad = o.count_include_pad}) {}
Tensor AvgPool1dImpl::forward(const Tensor& x) {
  return avg_pool1d(x, kernel_size, stride, padding, ceil_mode, count_include_pad);
}
Tensor AvgPool2dImpl::forward(const Tensor& x) {
  return avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}
Tensor AvgPool3dImpl::forward(const Tensor& x) {
  return avg_pool3d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}

Tensor LPPool1dImpl::forward(const Tensor& x) { return lp_pool1d(x, norm_type, kernel_size, ref(stride), ceil_mode); }
Tensor LPPool2dImpl::forward(const Tensor& x) { return lp_pool2d(x, norm_type, kernel_size, ref(stride), ceil_mode); }
Tensor LPPool3dImpl::forward(const Tensor& x) { return lp_pool3d(x, norm_type, kernel_size, ref(stride), ceil_mode); }

// ---- as many windows as the result has elements

Tensor AdaptiveAvgPool1dImpl::forward(const Tensor& x) { return adaptive_avg_pool1d(x, output_size); }
Tensor AdaptiveAvgPool2dImpl::forward(const Tensor& x) {
  return adaptive_avg_pool2d(x, output_size.expand(2, "output_size"));
}
Tensor AdaptiveAvgPool3dImpl::forward(const Tensor& x) {
  return adaptive_avg_pool3d(x, output_size.expand(3, "output_size"));
}
std::tuple<Tensor, Tensor> AdaptiveMaxPool1dImpl::forward_with_indices(const Tensor& x) {
  return adaptive_max_pool1d(x, output_size);
}
std::tuple<Tensor, Tensor> AdaptiveMaxPool2dImpl::forward_with_indices(const Tensor& x) {
  return adaptive_max_pool2d(x, output_size.expand(2, "output_size"));
}
std::tuple<Tensor, Tensor> AdaptiveMaxPool3dImpl::forward_with_indices(const Tensor& x) {
  return adaptive_max_pool3d(x, output_size.expand(3, "output_size"));
}

}  // namespace mica::nn
