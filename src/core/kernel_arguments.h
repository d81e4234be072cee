// What shape rules and gradient formulas ask before they call a kernel.
#pragma once

#include "mica/tensor.h"

namespace mica {

// An optional tensor, as a kernel takes it.
inline TensorView view_or_none(const Tensor& t) { return t.defined() ? t.view_of() : TensorView(); }

inline bool has_work(const Tensor& t) { return t.numel() > 0 && !t.is_meta(); }

// The floats that kernels sum in float32.
inline bool is_narrow(DType t) { return t == DType::Float16 || t == DType::BFloat16; }

// Such a tensor as float32; any other, or none, as it is.
inline Tensor widened(const Tensor& t) { return t.defined() && is_narrow(t.dtype()) ? t.to(DType::Float32) : t; }

// For kernels that order elements by their bytes: a bool may be stored as any byte, and here all that are true get the
// same one. Any other tensor as it is.
inline Tensor ordered_by_bytes(const Tensor& t) { return t.dtype() == DType::Bool ? t.ne(Scalar(0)) : t; }

}  // namespace mica
