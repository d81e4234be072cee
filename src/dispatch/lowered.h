// Operations that torch computes by other operations than Mica does. A dispatch mode sees torch's.
// ops/modes/dispatch.toml names them.
#pragma once

#include <optional>
#include <string>

#include "mica/core/class_alias.h"
#include "mica/core/dispatch.h"

namespace mica::dispatch::lowered {

Tensor relu6(const Tensor& self);
Tensor isfinite(const Tensor& self);
Tensor l1_loss(const Tensor& self, const Tensor& target, int64_t reduction);
Tensor log_sigmoid_backward(const Tensor& grad_output, const Tensor& self);
Tensor _masked(const Tensor& self, const Tensor& mask);
std::tuple<Tensor, Tensor> _fused_rms_norm(const Tensor& input, IntArrayRef normalized_shape, const Tensor& weight,
                                           std::optional<double> eps);
// A pool over one dimension is one over two dimensions, the first of which has size one.
std::tuple<Tensor, Tensor> max_pool1d_with_indices(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride,
                                                   IntArrayRef padding, IntArrayRef dilation, bool ceil_mode);
Tensor avg_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding, bool ceil_mode,
                  bool count_include_pad);
Tensor _adaptive_avg_pool1d(const Tensor& self, IntArrayRef output_size);
std::tuple<Tensor, Tensor> adaptive_max_pool1d(const Tensor& self, IntArrayRef output_size);
Tensor _max_pool_gather(const Tensor& self, const Tensor& indices, int64_t spatial_dims);
Tensor max_pool1d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode);
Tensor max_pool2d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode);
Tensor max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode);
Tensor cross_entropy_loss(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                          int64_t ignore_index, double label_smoothing);

// ---- operations that are one of several operators of torch, recorded as they are (`handed` in the table)

Tensor softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype, bool recorded);
Tensor log_softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype, bool recorded);
Tensor pad_edges(const Tensor& self, IntArrayRef pad, std::string_view mode, bool recorded);
std::string pad_operator(IntArrayRef pad, std::string_view mode);  // its name
Tensor log_sigmoid(const Tensor& self, bool recorded);
std::vector<Tensor> nll_loss_forward(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                                     int64_t ignore_index, bool recorded);
Tensor upsample(const Tensor& self, IntArrayRef output_size, std::string_view mode, bool align_corners,
                ArrayRef<double> scales, bool antialias, bool recorded);
Tensor upsample_backward(const Tensor& grad, IntArrayRef output_size, IntArrayRef input_size, std::string_view mode,
                         bool align_corners, ArrayRef<double> scales, bool antialias, bool recorded);
std::vector<Tensor> grid_sampler_backward(const Tensor& grad_output, const Tensor& input, const Tensor& grid,
                                          int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
                                          bool input_wanted, bool grid_wanted, bool recorded);

}  // namespace mica::dispatch::lowered
