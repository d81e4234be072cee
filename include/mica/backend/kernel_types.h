// The plain-data types that kernels take.
#pragma once

#include "mica/backend/pointwise_loop.h"
#include "mica/backend/tensor_view.h"
#include "mica/core/array_ref.h"
#include "mica/core/scalar.h"
#include "mica/generator.h"

namespace mica {

// A list of tensors, as pointers to their views.
using TensorViewList = ArrayRef<const TensorView*>;

// out = alpha * a @ b + beta * out (+ bias), each operand (batch, rows, columns) with any strides; `out` overlaps
// nothing, and is not read when beta is zero.
struct MatmulCall {
  TensorView out, a, b;
  Scalar alpha = 1, beta = 0;
  const void* bias = nullptr;  // one element per column, contiguous
};

[[noreturn]] void unsupported_dtype(const char* op, DType dtype);  // torch's words: "op" not implemented for 'Half'

}  // namespace mica
