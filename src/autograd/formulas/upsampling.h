// Derivatives of resampling.
#pragma once

#include <array>
#include <string_view>
#include <tuple>

#include "mica/autograd.h"
#include "mica/tensor.h"

namespace mica::formulas {

Tensor upsample_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, std::string_view mode,
                         bool align_corners, bool antialias, ArrayRef<double> scales);
// A gradient of the input's size, resampled as the forward did: the derivative of the derivative.
Tensor upsample_again(const Tensor& grad, IntArrayRef output_sizes, std::string_view mode, bool align_corners,
                      bool antialias, ArrayRef<double> scales);
// `self` is defined only while a mode is to see it.
Tensor pad_edges_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, const Tensor& self,
                          IntArrayRef pad, std::string_view mode);
std::tuple<Tensor, Tensor> grid_sampler_backward(const Tensor& grad, const Tensor& input, const Tensor& grid,
                                                 int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
                                                 const std::array<bool, 2>& wanted);
std::tuple<Tensor, Tensor, Tensor> grid_sampler_double_backward(const TensorVec& grads, const Tensor& grad_output,
                                                                const Tensor& input, const Tensor& grid,
                                                                int64_t interpolation_mode, int64_t padding_mode,
                                                                bool align_corners, bool input_wanted, bool grid_wanted,
                                                                const std::array<bool, 3>& wanted);

}  // namespace mica::formulas
