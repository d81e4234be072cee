// Derivatives of bags of rows.
#pragma once

#include <array>
#include <tuple>

#include "mica/tensor.h"

namespace mica::formulas {

std::tuple<Tensor, Tensor> embedding_bag_backward(const Tensor& grad, const Tensor& weight, const Tensor& indices,
                                                  const Tensor& offsets, const Tensor& max_indices,
                                                  bool scale_grad_by_freq, int64_t mode, bool sparse,
                                                  const Tensor& per_sample_weights, bool include_last_offset,
                                                  int64_t padding_idx, const std::array<bool, 2>& wanted);

}  // namespace mica::formulas
