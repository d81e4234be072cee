// Functions for the gradients and parameters of whole networks.
#pragma once

#include "mica/nn/packed_sequence.h"
#include "mica/tensor.h"

namespace mica::nn::utils {

// Scales the gradients of all parameters so that their norm together is at most max_norm; returns the norm before that.
Tensor clip_grad_norm_(TensorList parameters, double max_norm, double norm_type = 2, bool error_if_nonfinite = false);
// Clamps all elements of the gradients to [-clip_value, clip_value].
void clip_grad_value_(TensorList parameters, double clip_value);
// The norm of all elements of the tensors together.
Tensor get_total_norm(TensorList tensors, double norm_type = 2, bool error_if_nonfinite = false);

// Joins the elements of all parameters into one vector, and the way back, after which parameters share the vector's
// memory.
Tensor parameters_to_vector(TensorList parameters);
void vector_to_parameters(const Tensor& vector, TensorList parameters);

}  // namespace mica::nn::utils
