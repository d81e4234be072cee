#include "autograd/formulas/pooling.h"

#include "autograd/formulas/formulas.h"
#include "autograd/formulas/seen.h"
#include "mica/generated/layers/pooling.h"
#include "mica/ops.h"
#include "shapes/volume.h"

namespace mica::formulas {

using shapes::prefers_channels_last;

// Refuses the gradient of an adaptive pool without outputs. A batch may be empty, other dimensions may not.
static void check_not_empty(const Tensor& grad, const char* kind, int64_t spatial_dims) {
  if (grad.numel() > 0) return;
  for (int64_t d = 1; d < grad.dim(); ++d)
    MICA_CHECK(grad.sizes()[d] > 0, "adaptive_", kind, "_pool", spatial_dims,
               "d_backward(): Expected grad_output to have non-zero size for non-batch dimensions, but grad_output has "
               "sizes ",
               grad.sizes(), " with dimension ", d, " being empty");
}

Tensor max_pool_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                         int64_t spatial_dims) {
  if (!grad.defined()) return {};
  check_not_empty(grad, "max", spatial_dims);
  return _max_pool_backward(grad, indices, sizes, spatial_dims, prefers_channels_last(sizes, strides, spatial_dims));
}

Tensor max_pool_windows_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                                 const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                                 IntArrayRef dilation, bool ceil_mode, int64_t spatial_dims) {
  if (!grad.defined() || !self.defined() || !is_seen())
    return max_pool_backward(grad, indices, sizes, strides, spatial_dims);
  const DimVector own(sizes), steps(strides);
  return seen_one(
      spatial_dims == 2 ? "max_pool2d_with_indices_backward" : "max_pool3d_with_indices_backward",
      {grad, self, kernel_size, stride, padding, dilation, ceil_mode, indices}, {grad},
      [=](const TensorVec& t) -> TensorVec { return {max_pool_backward(t[0], indices, own, steps, spatial_dims)}; });
}

Tensor adaptive_max_pool_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                                  const Tensor& self, int64_t spatial_dims) {
  if (!grad.defined() || !self.defined() || !is_seen())
    return max_pool_backward(grad, indices, sizes, strides, spatial_dims);
  const DimVector own(sizes), steps(strides);
  return seen_one(spatial_dims == 2 ? "adaptive_max_pool2d_backward" : "adaptive_max_pool3d_backward",
                  {grad, self, indices}, {grad}, [=](const TensorVec& t) -> TensorVec {
                    return {max_pool_backward(t[0], indices, own, steps, spatial_dims)};
                  });
}

Tensor max_pool_gather_backward(const Tensor& grad, const Tensor& indices, IntArrayRef sizes, IntArrayRef strides,
                                int64_t spatial_dims) {
  return max_pool_backward(grad, indices, sizes, strides, spatial_dims);
}

Tensor avg_pool_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, const Tensor& self,
                         IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                         bool count_include_pad, std::optional<int64_t> divisor_override, int64_t spatial_dims) {
  if (self.defined() && is_seen()) {
    const DimVector own(sizes), steps(strides), windows(kernel_size), moves(stride), borders(padding);
    return seen_one(spatial_dims == 2 ? "avg_pool2d_backward" : "avg_pool3d_backward",
                    {grad, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override}, {grad},
                    [=](const TensorVec& t) -> TensorVec {
                      return {avg_pool_backward(t[0], own, steps, self, windows, moves, borders, ceil_mode,
                                                count_include_pad, divisor_override, spatial_dims)};
                    });
  }
  return _avg_pool_backward(grad, sizes, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override,
                            spatial_dims, prefers_channels_last(sizes, strides, spatial_dims));
}

Tensor adaptive_avg_pool_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef strides, const Tensor& self,
                                  int64_t spatial_dims) {
  if (self.defined() && is_seen()) {
    const DimVector own(sizes), steps(strides);
    return seen_one(spatial_dims == 2 ? "_adaptive_avg_pool2d_backward" : "_adaptive_avg_pool3d_backward", {grad, self},
                    {grad}, [=](const TensorVec& t) -> TensorVec {
                      return {adaptive_avg_pool_backward(t[0], own, steps, self, spatial_dims)};
                    });
  }
  check_not_empty(grad, "avg", spatial_dims);
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
