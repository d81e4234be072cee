// Derivatives of attention.
#pragma once

#include <array>
#include <optional>
#include <tuple>

#include "mica/autograd.h"

namespace mica::formulas {

std::tuple<Tensor, Tensor, Tensor> attention_backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                      const Tensor& value, const Tensor& output,
                                                      const Tensor& logsumexp, bool is_causal, const Tensor& attn_mask,
                                                      std::optional<double> scale, const std::array<bool, 3>& wanted);

}  // namespace mica::formulas
