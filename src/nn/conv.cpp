#include "mica/nn/conv.h"

#include <cmath>

#include "mica/init.h"
#include "mica/layers.h"
#include "nn/text.h"

namespace mica::nn {

ConvBase::ConvBase(size_t ndim, int64_t in_channels, int64_t out_channels, const Dims& kernel_size,
                   const ConvOptions& o)
    : in_channels(in_channels),
      out_channels(out_channels),
      kernel_size(kernel_size.expand(ndim, "kernel_size")),
      stride(o.stride.expand(ndim, "stride")),
      padding(o.padding.expand(ndim, "padding")),
      dilation(o.dilation.expand(ndim, "dilation")),
      output_padding(ndim),
      groups(o.groups),
      padding_word(o.padding_word),
      padding_mode(o.padding_mode),
      transposed(false) {
  MICA_CHECK_KIND(
      padding_mode == "zeros" || padding_mode == "reflect" || padding_mode == "replicate" || padding_mode == "circular",
      Value, "padding_mode must be one of {'zeros', 'reflect', 'replicate', 'circular'}, but got ", "padding_mode='",
      padding_mode, "'");
  make_parameters(o.bias);
}

ConvBase::ConvBase(size_t ndim, int64_t in_channels, int64_t out_channels, const Dims& kernel_size,
                   const ConvTransposeOptions& o)
    : in_channels(in_channels),
      out_channels(out_channels),
      kernel_size(kernel_size.expand(ndim, "kernel_size")),
      stride(o.stride.expand(ndim, "stride")),
      padding(o.padding.expand(ndim, "padding")),
      dilation(o.dilation.expand(ndim, "dilation")),
      output_padding(o.output_padding.expand(ndim, "output_padding")),
      groups(o.groups),
      padding_mode("zeros"),
      transposed(true) {
  make_parameters(o.bias);
}

void ConvBase::make_parameters(bool with_bias) {
  MICA_CHECK_KIND(groups > 0, Value, "groups must be a positive integer");
  MICA_CHECK_KIND(in_channels % groups == 0, Value, "in_channels must be divisible by groups");
  MICA_CHECK_KIND(out_channels % groups == 0, Value, "out_channels must be divisible by groups");
  DimVector sizes =
      transposed ? DimVector{in_channels, out_channels / groups} : DimVector{out_channels, in_channels / groups};
  for (const int64_t k : kernel_size) sizes.push_back(k);
  weight = register_parameter("weight", empty(sizes));
  bias = register_parameter("bias", with_bias ? empty({out_channels}) : Tensor());
  reset_parameters();
}

void ConvBase::reset_parameters() {
  init_kaiming_uniform_(weight, std::sqrt(5.0));
  const int64_t fan_in = calculate_fans(weight).in;
  if (!bias.defined() || fan_in == 0) return;
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  init_uniform_(bias, -bound, bound);
}

std::string ConvBase::extra_repr() const {
  const auto differs = [](const DimVector& v, int64_t usual) {
    for (const int64_t d : v)
      if (d != usual) return true;
    return false;
  };
  std::string text =
      cat(in_channels, ", ", out_channels, ", kernel_size=", tuple_text(kernel_size), ", stride=", tuple_text(stride));
  if (!padding_word.empty())
    text += cat(", padding=", padding_word);
  else if (differs(padding, 0))
    text += cat(", padding=", tuple_text(padding));
  if (differs(dilation, 1)) text += cat(", dilation=", tuple_text(dilation));
  if (differs(output_padding, 0)) text += cat(", output_padding=", tuple_text(output_padding));
  if (groups != 1) text += cat(", groups=", groups);
  if (!bias.defined()) text += ", bias=False";
  if (padding_mode != "zeros") text += cat(", padding_mode=", padding_mode);
  return text;
}

namespace {

// The input with its edges continued, for paddings other than zeros: last dimension first, before and after.
Tensor padded(const ConvBase& c, const Tensor& x) {
  DimVector amounts;
  for (size_t d = c.kernel_size.size(); d-- > 0;) {
    int64_t before = c.padding[d], after = c.padding[d];
    if (c.padding_word == "same") {
      const int64_t total = c.dilation[d] * (c.kernel_size[d] - 1);
      before = total / 2;
      after = total - before;
    }
    amounts.push_back(before);
    amounts.push_back(after);
  }
  return pad(x, amounts, c.padding_mode);
}

}  // namespace

#define MICA_CONVOLUTION_FORWARD(Name, function)                                                                   \
  Tensor Name##Impl::forward(const Tensor& x) {                                                                    \
    if (padding_mode != "zeros")                                                                                   \
      return function(padded(*this, x), weight, bias, stride, IntArrayRef{0}, dilation, groups);                   \
    if (!padding_word.empty()) return function##_padding(x, weight, bias, stride, padding_word, dilation, groups); \
    return function(x, weight, bias, stride, padding, dilation, groups);                                           \
  }
MICA_CONVOLUTION_FORWARD(Conv1d, conv1d)
MICA_CONVOLUTION_FORWARD(Conv2d, conv2d)
MICA_CONVOLUTION_FORWARD(Conv3d, conv3d)
#undef MICA_CONVOLUTION_FORWARD

Tensor ConvTranspose1dImpl::forward(const Tensor& x) {
  return conv_transpose1d(x, weight, bias, stride, padding, output_padding, groups, dilation);
}
Tensor ConvTranspose2dImpl::forward(const Tensor& x) {
  return conv_transpose2d(x, weight, bias, stride, padding, output_padding, groups, dilation);
}
Tensor ConvTranspose3dImpl::forward(const Tensor& x) {
  return conv_transpose3d(x, weight, bias, stride, padding, output_padding, groups, dilation);
}

}  // namespace mica::nn
