// What the shape rules of convolutions and of their gradients share.
#pragma once

#include "mica/tensor.h"

namespace mica::shapes {

// The checked arguments of a convolution, one number per spatial dimension in every list.
struct ConvolutionArguments {
  // Throws torch's errors; `bias_sizes` is null without a bias.
  ConvolutionArguments(const Tensor& input, const Tensor& weight, const Tensor& bias, IntArrayRef stride,
                       IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                       int64_t groups);

  DimVector stride, padding, dilation, output_padding;
  bool transposed;
  int64_t groups;

  DimVector output_sizes(const Tensor& input, const Tensor& weight) const;
};

// The layout of a convolution's results: channels last where the input or the weight is.
MemoryFormat convolution_format(const Tensor& input, const Tensor& weight);

// A filter bank as kernels take it: contiguous in either layout.
Tensor dense_weight(const Tensor& weight);

}  // namespace mica::shapes
