#include "mica/generated/layers/convolution.h"

#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/convolution_implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"
#include "shapes/convolution.h"

namespace mica::composite {

namespace {

void check_input_dims(const char* op, const Tensor& input, int64_t dims) {
  MICA_CHECK(input.dim() == dims + 1 || input.dim() == dims + 2, "Expected ", dims + 1, "D (unbatched) or ", dims + 2,
             "D (batched) input to ", op, ", but got input of size: ", input.sizes());
}

Tensor convolve(const char* op, int64_t dims, const Tensor& input, const Tensor& weight, const Tensor& bias,
                IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
                IntArrayRef output_padding, int64_t groups) {
  check_input_dims(op, input, dims);
  if (input.dim() == dims + 2)
    return mica::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  const Tensor batch = input.unsqueeze(0);
  return mica::convolution(batch, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
      .squeeze(0);
}

// The zeros that padding="same" adds on both sides. Where their number is odd, the input is given one more at its end
// beforehand.
struct SamePadding {
  SamePadding(const Tensor& input, const Tensor& weight, IntArrayRef stride, IntArrayRef dilation) : padded(input) {
    const size_t dims = shapes::spatial_dimensions(weight);
    for (int64_t s : stride) MICA_CHECK(s == 1, "padding='same' is not supported for strided convolutions");
    MICA_CHECK(input.dim() == weight.dim() || input.dim() + 1 == weight.dim(), "Expected ", weight.dim(),
               "-dimensional input for ", weight.dim(), "-dimensional weight", weight.sizes(), ", but got ",
               input.dim(), "-dimensional input of size ", input.sizes(), " instead");
    const DimVector gaps = shapes::one_per_dimension("dilation", dilation, dims);
    DimVector more;
    bool uneven = false;
    for (size_t d = 0; d < dims; ++d) {
      const int64_t total = gaps[d] * (weight.sizes()[d + 2] - 1);
      padding.push_back(total / 2);
      uneven = uneven || total % 2 != 0;
    }
    if (!uneven) return;
    static const bool told = [] {
      warn(
          "Using padding='same' with even kernel lengths and odd dilation may require a zero-padded copy of the input "
          "be created");
      return true;
    }();
    (void)told;
    for (size_t d = dims; d-- > 0;) {
      const int64_t total = gaps[d] * (weight.sizes()[d + 2] - 1);
      more.push_back(0);
      more.push_back(total % 2);
    }
    padded = mica::constant_pad_nd(input, more, 0);
  }
  Tensor padded;
  DimVector padding;
};

DimVector zeros_for(const Tensor& weight) {
  return DimVector(static_cast<size_t>(std::max<int64_t>(weight.dim() - 2, 1)));
}

void check_padding_word(std::string_view padding) {
  MICA_CHECK(padding == "same" || padding == "valid", "Invalid padding string: '", padding, "'");
}

}  // namespace

#define MICA_CONVOLUTIONS(dims)                                                                                        \
  Tensor conv##dims##d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,              \
                       IntArrayRef padding, IntArrayRef dilation, int64_t groups) {                                    \
    return convolve("conv" #dims "d", dims, input, weight, bias, stride, padding, dilation, false, 0, groups);         \
  }                                                                                                                    \
  Tensor conv##dims##d_padding(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,      \
                               std::string_view padding, IntArrayRef dilation, int64_t groups) {                       \
    check_input_dims("conv" #dims "d", input, dims);                                                                   \
    check_padding_word(padding);                                                                                       \
    if (padding == "valid") return mica::conv##dims##d(input, weight, bias, stride, IntArrayRef(0), dilation, groups); \
    const SamePadding same(input, weight, stride, dilation);                                                           \
    return mica::conv##dims##d(same.padded, weight, bias, stride, same.padding, dilation, groups);                     \
  }                                                                                                                    \
  Tensor conv_transpose##dims##d(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,    \
                                 IntArrayRef padding, IntArrayRef output_padding, int64_t groups,                      \
                                 IntArrayRef dilation) {                                                               \
    return convolve("conv_transpose" #dims "d", dims, input, weight, bias, stride, padding, dilation, true,            \
                    output_padding, groups);                                                                           \
  }
MICA_CONVOLUTIONS(1)
MICA_CONVOLUTIONS(2)
MICA_CONVOLUTIONS(3)
#undef MICA_CONVOLUTIONS

Tensor _convolution(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                    IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                    int64_t groups, bool, bool, bool, bool) {
  return mica::convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
}

Tensor _convolution_mode(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                         std::string_view padding, IntArrayRef dilation, int64_t groups) {
  check_padding_word(padding);
  const DimVector none = zeros_for(weight);
  if (padding == "valid") return mica::convolution(input, weight, bias, stride, none, dilation, false, none, groups);
  const SamePadding same(input, weight, stride, dilation);
  return mica::convolution(same.padded, weight, bias, stride, same.padding, dilation, false, none, groups);
}

Tensor conv_tbc(const Tensor& self, const Tensor& weight, const Tensor& bias, int64_t pad) {
  MICA_CHECK(self.dim() == 3, "Input must have 3 dims: time, batch, in_channel");
  MICA_CHECK(weight.dim() == 3, "Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.");
  MICA_CHECK(bias.dim() == 1, "Bias must be 1-D");
  MICA_CHECK(self.size(2) == weight.size(1), "Input dim 2 (input channels) is not == dim 1 in the weight tensor");
  MICA_CHECK(weight.size(2) == bias.size(0), "Bias size must equal dim 2 in the weight tensor (output channels).");
  return mica::conv1d(self.permute({1, 2, 0}), weight.permute({2, 1, 0}), bias, 1, pad).permute({2, 0, 1});
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad_output, const Tensor& input,
                                                        const Tensor& weight, std::optional<IntArrayRef> bias_sizes,
                                                        IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                                        bool transposed, IntArrayRef output_padding, int64_t groups,
                                                        ArrayRef<bool> output_mask) {
  MICA_CHECK(output_mask.size() == 3, "convolution_backward: output_mask has ", output_mask.size(),
             " entries; three are needed, for input, weight and bias");
  const shapes::ConvolutionArguments args(input, weight, {}, stride, padding, dilation, transposed, output_padding,
                                          groups);
  const DimVector sizes = args.output_sizes(input, weight);
  MICA_CHECK(grad_output.sizes() == sizes, "convolution_backward: the output's gradient has shape ",
             grad_output.sizes(), ", the output has ", sizes.ref());
  const DType dtype = input.dtype();
  MICA_CHECK(grad_output.dtype() == dtype, "expected scalar type ", info(dtype).legacy, " but found ",
             info(grad_output.dtype()).legacy, " (the gradient of a convolution)");
  // As for a transposed convolution, gradients are sums over overlapping blocks or over all images.
  const DType wide = shapes::convolution_dtype(input, weight, true, groups);
  Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[2]) {
    DimVector dims{0};
    for (int64_t d = 2; d < grad_output.dim(); ++d) dims.push_back(d);
    // An input without channels has an empty output, in which a bias has no part.
    grad_bias = bias_sizes && grad_output.numel() == 0 ? mica::zeros(*bias_sizes, grad_output.options())
                                                       : mica::sum(grad_output, dims.ref());
  }
  if (!output_mask[0] && !output_mask[1]) return {grad_input, grad_weight, grad_bias};

  const MemoryFormat format = shapes::convolution_format(input, weight);
  const bool empty = grad_output.numel() == 0, computes = !empty && !input.is_meta();
  const auto prepared = [&](const Tensor& t) { return computes ? t.to(wide).contiguous(format) : t; };
  const auto fresh = [&](const Tensor& like) {
    const TensorOptions options = like.options().dtype(empty ? dtype : wide);
    return empty ? mica::zeros(like.sizes(), options) : mica::empty(like.sizes(), options, format);
  };
  const Tensor grad = prepared(grad_output);
  if (output_mask[0]) {
    grad_input = fresh(input);
    const Tensor w = shapes::dense_weight(weight.to(wide));
    if (computes) {
      (transposed ? MICA_LAYER_KERNEL(input.device(), convolution)
                  : MICA_LAYER_KERNEL(input.device(), convolution_input_gradient))(
          grad_input.view_of(), grad.view_of(), w.view_of(), TensorView(), args.stride, args.padding, args.dilation,
          groups);
    }
    grad_input = grad_input.to(dtype);
  }
  if (output_mask[1]) {
    grad_weight = fresh(weight);
    const Tensor x = prepared(input);
    if (computes) {
      MICA_LAYER_KERNEL(input.device(), convolution_weight_gradient)
      (grad_weight.view_of(), (transposed ? x : grad).view_of(), (transposed ? grad : x).view_of(), args.stride,
       args.padding, args.dilation, groups);
    }
    grad_weight = grad_weight.to(dtype);
  }
  return {grad_input, grad_weight, grad_bias};
}

}  // namespace mica::composite
