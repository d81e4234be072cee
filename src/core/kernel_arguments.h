// Preparations of arguments that shape rules and gradient formulas share.
#pragma once

#include "mica/tensor.h"

namespace mica {

// The view of an optional tensor; an undefined tensor has an undefined view.
inline TensorView view_or_none(const Tensor& t) { return t.defined() ? t.view_of() : TensorView(); }

inline bool has_work(const Tensor& t) { return t.numel() > 0 && !t.is_meta(); }

// The floats that kernels sum in float32.
inline bool is_narrow(DType t) { return t == DType::Float16 || t == DType::BFloat16; }

// A float16 or bfloat16 tensor as float32; any other tensor, or an undefined one, as it is.
inline Tensor widened(const Tensor& t) { return t.defined() && is_narrow(t.dtype()) ? t.to(DType::Float32) : t; }

// For kernels that order elements by their bytes. Any byte but zero is a true bool, so bools are rewritten to have one
// byte for true. Other tensors stay as they are.
inline Tensor ordered_by_bytes(const Tensor& t) { return t.dtype() == DType::Bool ? t.ne(Scalar(0)) : t; }

}  // namespace mica
