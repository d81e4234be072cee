// Derivatives of losses.
#pragma once

#include <array>
#include <tuple>

#include "mica/backend/pair_loss.h"
#include "mica/tensor.h"

namespace mica::formulas {

// For a loss of input - target: the gradients of the two are negatives of each other.
std::tuple<Tensor, Tensor> distance_loss_backward(PairLoss kind, const Tensor& grad, const Tensor& self,
                                                  const Tensor& target, double parameter, int64_t reduction,
                                                  const std::array<bool, 2>& wanted);
std::tuple<Tensor, Tensor> binary_cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target,
                                                         int64_t reduction, const std::array<bool, 2>& wanted);
std::tuple<Tensor, Tensor> binary_cross_entropy_with_logits_backward(const Tensor& grad, const Tensor& self,
                                                                     const Tensor& target, int64_t reduction,
                                                                     const std::array<bool, 2>& wanted);

// `self` is defined only while a mode is to see it.
Tensor nll_loss_backward(const Tensor& grad, IntArrayRef sizes, const TensorOptions& options, const Tensor& self,
                         const Tensor& target, const Tensor& weight, const Tensor& total_weight, int64_t reduction,
                         int64_t ignore_index);
Tensor cross_entropy_backward(const Tensor& grad, const Tensor& self, const Tensor& target, const Tensor& weight,
                              const Tensor& statistics, int64_t reduction, int64_t ignore_index,
                              double label_smoothing);
[[noreturn]] Tensor ctc_loss_double_backward();

}  // namespace mica::formulas
