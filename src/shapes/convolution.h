// Functions that the shape rules of convolutions and of their gradients share.
#pragma once

#include "mica/tensor.h"

namespace mica::shapes {

size_t spatial_dimensions(const Tensor& weight);  // throws where the weight has none
// A number for each dimension: from a list of that many, or from a single number for all.
DimVector one_per_dimension(const char* name, IntArrayRef list, size_t dims);

// The checked arguments of a convolution, one number per spatial dimension in every list.
struct ConvolutionArguments {
  // Throws torch's errors; `bias` may be undefined.
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

// The dtype in which a convolution computes before it rounds to its input's dtype. On the CPU, 16-bit floats are
// computed in float32 where blocks overlap in the result, and where float32 has the faster kernels: everywhere but in
// products of bfloat16.
DType convolution_dtype(const Tensor& input, const Tensor& weight, bool transposed, int64_t groups);

// A filter bank as kernels take it: contiguous in either layout.
Tensor dense_weight(const Tensor& weight);

}  // namespace mica::shapes
