// Derivatives of convolutions and of sliding blocks.
#pragma once

#include <array>

#include "mica/tensor.h"

namespace mica::formulas {

std::tuple<Tensor, Tensor, Tensor> convolution_gradients(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                         IntArrayRef bias_sizes, IntArrayRef stride,
                                                         IntArrayRef padding, IntArrayRef dilation, bool transposed,
                                                         IntArrayRef output_padding, int64_t groups,
                                                         const std::array<bool, 3>& wanted);

// The gradients of convolution_backward. `ggi`, `ggw` and `ggb` belong to the gradients of the input, the weight and
// the bias.
std::tuple<Tensor, Tensor, Tensor> convolution_backward_gradients(
    const Tensor& ggi, const Tensor& ggw, const Tensor& ggb, const Tensor& grad_output, const Tensor& input,
    const Tensor& weight, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
    IntArrayRef output_padding, int64_t groups, const std::array<bool, 3>& wanted);

Tensor im2col_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef kernel_size, IntArrayRef dilation,
                       IntArrayRef padding, IntArrayRef stride);

}  // namespace mica::formulas
