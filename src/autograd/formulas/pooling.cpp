#include "autograd/formulas/pooling.h"

#include "autograd/formulas/formulas.h"
#include "mica/generated/layers/pooling.h"
#include "mica/ops.h"
#include "shapes/volume.h"

namespace mica::formulas {

using shapes::prefers_channels_last;

Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                         int64_t spatial_dims) {
  if (!grad.defined()) return {};
  return _max_pool_backward(grad, indices, sizes, spatial_dims, prefers_channels_last(sizes, strides, spatial_dims));
}

Tensor max_pool_gather_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                                int64_t spatial_dims) {
  return max_pool_backward(grad, indices, sizes, strides, spatial_dims);
}

Tensor avg_pool_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, IntArrayRef kernel_size,
                         IntArrayRef stride, IntArrayRef padding, bool ceil_mode, bool count_include_pad,
                         std::optional<int64_t> divisor_override, int64_t spatial_dims) {
  return _avg_pool_backward(grad, sizes, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override,
                            spatial_dims, prefers_channels_last(sizes, strides, spatial_dims));
}

Tensor adaptive_avg_pool_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, int64_t spatial_dims) {
  return _adaptive_avg_pool_backward(grad, sizes, spatial_dims, prefers_channels_last(sizes, strides, spatial_dims));
}

Tensor avg_pool_any(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                    bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override,
                    int64_t spatial_dims) {
  if (spatial_dims == 1) return avg_pool1d(self, kernel_size, stride, padding, ceil_mode, count_include_pad);
  if (spatial_dims == 2)
    return avg_pool2d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
  return avg_pool3d(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
}

Tensor adaptive_avg_pool_any(const Tensor& self, IntArrayRef pooled_sizes, int64_t spatial_dims) {
  const size_t n = static_cast<size_t>(spatial_dims);
  const IntArrayRef spatial = pooled_sizes.slice(pooled_sizes.size() - n, n);
  return n == 1   ? _adaptive_avg_pool1d(self, spatial)
         : n == 2 ? _adaptive_avg_pool2d(self, spatial)
                  : _adaptive_avg_pool3d(self, spatial);
}

}  // namespace mica::formulas
