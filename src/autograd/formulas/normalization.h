// Derivatives of normalisations over a batch and over groups of channels.
#pragma once

#include <array>
#include <tuple>

#include "mica/tensor.h"

namespace mica::formulas {

std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                       const Tensor& running_mean, const Tensor& running_var,
                                                       const Tensor& mean, const Tensor& rstd, bool training,
                                                       double eps, const std::array<bool, 3>& wanted);
std::tuple<Tensor, Tensor, Tensor> group_norm_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                       const Tensor& mean, const Tensor& rstd, int64_t batch,
                                                       int64_t channels, int64_t inner, int64_t groups, double eps,
                                                       const std::array<bool, 3>& wanted);

}  // namespace mica::formulas
