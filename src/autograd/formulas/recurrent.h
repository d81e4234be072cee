// Derivatives of recurrent layers.
#pragma once

#include <array>
#include <tuple>

#include "mica/autograd.h"

namespace mica::formulas {

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> recurrent_layer_backward(
    const TensorVec& grads, const Tensor& data, IntArrayRef batch_sizes, const Tensor& h0, const Tensor& c0,
    const Tensor& w_ih, const Tensor& w_hh, const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, int64_t mode,
    bool reverse, const Tensor& output, const Tensor& gates, const Tensor& cells, const std::array<bool, 8>& wanted);

}  // namespace mica::formulas
