// Derivatives of pooling. Beside its gradient, a formula needs the input's size and order in memory.
#pragma once

#include <optional>

#include "mica/tensor.h"

namespace mica::formulas {

Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                         int64_t spatial_dims);
// The same for windows that are given by their places. `self` is defined only while a mode is to see it.
Tensor max_pool_windows_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                                 const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                                 IntArrayRef dilation, bool ceil_mode, int64_t spatial_dims);
// The same for windows that share the input out.
Tensor adaptive_max_pool_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                                  const Tensor& self, int64_t spatial_dims);
Tensor max_pool_gather_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                                int64_t spatial_dims);
Tensor avg_pool_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, const Tensor& self,
                         IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                         bool count_include_pad, std::optional<int64_t> divisor_override, int64_t spatial_dims);
Tensor adaptive_avg_pool_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, const Tensor& self,
                                  int64_t spatial_dims);

// The forward operation for the given number of dimensions, for derivatives of derivatives.
Tensor avg_pool_any(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                    bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override,
                    int64_t spatial_dims);
Tensor adaptive_avg_pool_any(const Tensor& self, IntArrayRef pooled_sizes, int64_t spatial_dims);

Tensor cross_map_lrn2d_backward(const Tensor& grad, const Tensor& self, const Tensor& result, const Tensor& scale,
                                int64_t size, double alpha, double beta);

}  // namespace mica::formulas
