// The plain-data types that kernels take.
#pragma once

#include "mica/array_ref.h"
#include "mica/generator.h"
#include "mica/pointwise_loop.h"
#include "mica/scalar.h"
#include "mica/tensor_view.h"

namespace mica {

// A list of tensors, as pointers to their views.
using TensorViewList = ArrayRef<const TensorView*>;

[[noreturn]] void unsupported_dtype(const char* op, DType dtype);  // torch's words: "op" not implemented for 'Half'

}  // namespace mica
