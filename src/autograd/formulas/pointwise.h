// Derivatives of pointwise operations. Where an argument may be a tensor or a number, there is one function for each.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

#include "mica/ops.h"

namespace mica::formulas {

// arithmetic and powers
Tensor remainder_other_backward(const Tensor& grad, const Tensor& self, const Tensor& other);
Tensor remainder_other_backward(const Tensor& grad, const Scalar& self, const Tensor& other);
Tensor pow_self_backward(const Tensor& grad, const Tensor& self, const Scalar& exponent);
Tensor pow_self_backward(const Tensor& grad, const Tensor& self, const Tensor& exponent);
Tensor pow_exponent_backward(const Tensor& grad, const Tensor& self, const Tensor& exponent, const Tensor& result);
Tensor pow_exponent_backward(const Tensor& grad, const Scalar& self, const Tensor& exponent, const Tensor& result);
Tensor lerp_self_backward(const Tensor& grad, const Scalar& weight);
Tensor lerp_self_backward(const Tensor& grad, const Tensor& weight);
Tensor copysign_self_backward(const Tensor& grad, const Tensor& self, const Tensor& result);
Tensor xlogy_self_backward(const Tensor& grad, const Tensor& self, const Tensor& other);
Tensor xlogy_self_backward(const Tensor& grad, const Tensor& self, const Scalar& other);
Tensor xlog1py_self_backward(const Tensor& grad, const Tensor& self, const Tensor& other);
Tensor xlog1py_self_backward(const Tensor& grad, const Tensor& self, const Scalar& other);
Tensor zeta_other_backward(const Tensor& grad, const Tensor& self, const Tensor& other);
Tensor zeta_other_backward(const Tensor& grad, const Scalar& self, const Tensor& other);
Tensor i1_backward(const Tensor& grad, const Tensor& self, const Tensor& result);
Tensor i1e_backward(const Tensor& grad, const Tensor& self, const Tensor& result);

// The gradient that `larger` gets from max(larger, smaller): all of it where it is greater, half where they are equal.
Tensor larger_backward(const Tensor& grad, const Tensor& larger, const Tensor& smaller);
Tensor clamp_self_backward(const Tensor& grad, const Tensor& self, const Tensor& min, const Tensor& max);
Tensor clamp_self_backward(const Tensor& grad, const Tensor& self, const std::optional<Scalar>& min,
                           const std::optional<Scalar>& max);
Tensor clamp_min_backward(const Tensor& grad, const Tensor& self, const Tensor& min, const Tensor& max);
Tensor clamp_max_backward(const Tensor& grad, const Tensor& self, const Tensor& min, const Tensor& max);

// functions of one operand
Tensor angle_backward(const Tensor& grad, const Tensor& self);
Tensor polar_abs_backward(const Tensor& grad, const Tensor& angle);
Tensor polar_angle_backward(const Tensor& grad, const Tensor& result);
Tensor sgn_backward(const Tensor& grad, const Tensor& self, const Tensor& result);
Tensor sinc_backward(const Tensor& grad, const Tensor& self);
Tensor logit_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self,
                             std::optional<double> eps);

// activations
Tensor glu_backward(const Tensor& grad, const Tensor& self, int64_t dim);
std::tuple<Tensor, Tensor> prelu_backward(const Tensor& grad, const Tensor& self, const Tensor& weight,
                                          const std::array<bool, 2>& wanted);
Tensor elu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self, const Scalar& alpha,
                           const Scalar& scale, const Scalar& input_scale);
Tensor gelu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self,
                            std::string_view approximate);
Tensor silu_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self);
Tensor mish_double_backward(const Tensor& grad, const Tensor& grad_output, const Tensor& self);
Tensor softplus_double_backward(const Tensor& grads, const Tensor& self, const Scalar& beta, const Scalar& threshold);

}  // namespace mica::formulas
