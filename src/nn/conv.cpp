#include "mica/nn/conv.h"

#include <cmath>

#include "mica/autograd.h"
#include "mica/init.h"
#include "mica/layers.h"

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
  if (!padding_word.empty()) {
    MICA_CHECK_KIND(padding_word == "same" || padding_word == "valid", Value, "Invalid padding string '", padding_word,
                    "', should be one of {'valid', 'same'}");
    for (const int64_t step : stride)
      MICA_CHECK_KIND(padding_word == "valid" || step == 1, Value,
                      "padding='same' is not supported for strided convolutions");
  }
  MICA_CHECK_KIND(
      padding_mode == "zeros" || padding_mode == "reflect" || padding_mode == "replicate" || padding_mode == "circular",
      Value, "padding_mode must be one of {'zeros', 'reflect', 'replicate', 'circular'}, but got padding_mode='",
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

// Channels that are not known yet, zero of them, are divisible by anything.
static void check_groups(int64_t groups, int64_t in_channels, int64_t out_channels) {
  MICA_CHECK_KIND(groups > 0, Value, "groups must be a positive integer");
  MICA_CHECK_KIND(in_channels % groups == 0, Value, "in_channels must be divisible by groups");
  MICA_CHECK_KIND(out_channels % groups == 0, Value, "out_channels must be divisible by groups");
}

DimVector ConvBase::weight_sizes() const {
  check_groups(groups, in_channels, out_channels);
  DimVector sizes =
      transposed ? DimVector{in_channels, out_channels / groups} : DimVector{out_channels, in_channels / groups};
  for (const int64_t k : kernel_size) sizes.push_back(k);
  return sizes;
}

void ConvBase::make_parameters(bool with_bias) {
  if (in_channels == kOpen) {
    check_groups(groups, 0, out_channels);
    in_channels = 0;
    weight = register_uninitialized_parameter("weight");
    bias = with_bias ? register_uninitialized_parameter("bias") : register_parameter("bias", {});
    return;
  }
  weight = register_parameter("weight", empty(weight_sizes()));
  bias = register_parameter("bias", with_bias ? empty({out_channels}) : Tensor());
  reset_parameters();
}

void ConvBase::take_input(const Tensor& x) {
  if (!has_uninitialized_params()) return;
  const auto without_batch = static_cast<int64_t>(kernel_size.size()) + 1;
  MICA_CHECK(x.dim() == without_batch || x.dim() == without_batch + 1, "Expected ", without_batch, "D (unbatched) or ",
             without_batch + 1, "D (batched) input to ", name(), ", but got input of size: ", x.sizes());
  in_channels = x.size(-without_batch);
  materialize(weight, weight_sizes());
  materialize(bias, {out_channels});
  reset_parameters();
}
void ConvBase::members_replaced() {
  if (in_channels == 0 && weight.dim() > 1) in_channels = transposed ? weight.size(0) : weight.size(1) * groups;
}

void ConvBase::reset_parameters() {
  if (weight.is_contiguous()) {
    init_kaiming_uniform_(weight, std::sqrt(5.0));
  } else {  // drawn in the order of the elements, whatever their order in memory
    NoGradGuard no_grad;
    const Tensor drawn = empty_like(weight, {}, MemoryFormat::Contiguous);
    init_kaiming_uniform_(drawn, std::sqrt(5.0));
    weight.copy_(drawn);
  }
  if (!bias.defined()) return;
  const int64_t fan_in = calculate_fans(weight).in;
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
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

// The input with its edges continued, for paddings other than zeros. Sizes go from the last dimension to the first,
// before and after each.
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

// The numbers to add to one side of the result so that it has the wanted size. That size may leave batch and channels
// out.
static DimVector padding_for(const ConvBase& c, const Tensor& x, const std::optional<Dims>& output_size) {
  if (!output_size) return c.output_padding;
  const size_t ndim = c.kernel_size.size();
  IntArrayRef wanted = output_size->sizes();
  const auto dims = static_cast<size_t>(x.dim());
  if (wanted.size() == dims) wanted = wanted.slice(dims - ndim, ndim);
  MICA_CHECK_KIND(wanted.size() == ndim, Value, "ConvTranspose", ndim, "D: for ", x.dim(),
                  "D input, output_size must have ", ndim, " or ", dims, " elements (got ", wanted.size(), ")");
  DimVector extra;
  for (size_t d = 0; d < ndim; ++d) {
    const int64_t least = (x.size(static_cast<int64_t>(dims - ndim + d)) - 1) * c.stride[d] - 2 * c.padding[d] +
                          c.dilation[d] * (c.kernel_size[d] - 1) + 1;
    MICA_CHECK_KIND(wanted[d] >= least && wanted[d] < least + c.stride[d], Value, "requested an output size of ",
                    wanted, ", but valid sizes in dimension ", d, " range from ", least, " to ",
                    least + c.stride[d] - 1, " (for an input of ", x.sizes(), ")");
    extra.push_back(wanted[d] - least);
  }
  return extra;
}

#define MICA_TRANSPOSED_FORWARD(Name, function)                                                              \
  Tensor Name##Impl::forward(const Tensor& x, const std::optional<Dims>& output_size) {                      \
    return function(x, weight, bias, stride, padding, padding_for(*this, x, output_size), groups, dilation); \
  }
MICA_TRANSPOSED_FORWARD(ConvTranspose1d, conv_transpose1d)
MICA_TRANSPOSED_FORWARD(ConvTranspose2d, conv_transpose2d)
MICA_TRANSPOSED_FORWARD(ConvTranspose3d, conv_transpose3d)
#undef MICA_TRANSPOSED_FORWARD

}  // namespace mica::nn
