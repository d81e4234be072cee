// What torch computes by other operations than Mica does: a dispatch mode is to see torch's. Named in
// ops/modes/dispatch.toml.
#pragma once

#include <optional>

#include "mica/core/class_alias.h"
#include "mica/core/dispatch.h"

namespace mica::dispatch::lowered {

Tensor softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype);
Tensor log_softmax(const Tensor& self, int64_t dim, std::optional<DType> dtype);
Tensor relu6(const Tensor& self);
Tensor max_pool2d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode);
Tensor max_pool3d(const Tensor& self, IntArrayRef kernel_size, IntArrayRef stride, IntArrayRef padding,
                  IntArrayRef dilation, bool ceil_mode);
Tensor cross_entropy_loss(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                          int64_t ignore_index, double label_smoothing);
std::tuple<Tensor, Tensor, Tensor> _batch_norm_statistics(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                          const Tensor& running_mean, const Tensor& running_var,
                                                          bool training, double momentum, double eps);
std::tuple<Tensor, Tensor, Tensor> _group_norm_statistics(const Tensor& input, const Tensor& weight, const Tensor& bias,
                                                          int64_t N, int64_t C, int64_t HxW, int64_t group, double eps);

}  // namespace mica::dispatch::lowered
