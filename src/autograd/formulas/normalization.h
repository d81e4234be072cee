// Derivatives of normalisations over a batch, over groups of channels and over trailing dimensions.
#pragma once

#include <array>
#include <optional>
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
std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& input,
                                                       IntArrayRef normalized_shape, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& weight, const Tensor& bias,
                                                       double eps, const std::array<bool, 3>& wanted);
std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& grad, const Tensor& input, IntArrayRef normalized_shape,
                                             const Tensor& rstd, const Tensor& weight, std::optional<double> eps,
                                             const std::array<bool, 2>& wanted);

}  // namespace mica::formulas
