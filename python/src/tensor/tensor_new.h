// Tensors from Python data: torch.tensor and its relatives.
#pragma once

#include <optional>

#include "mica/tensor.h"
#include "object.h"

namespace mica::python {

// A new tensor of nested sequences, numbers, 0-dim tensors, or an object with a buffer. The dtype follows from the data
// unless one is given. Throws torch's errors.
Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype, Device device);
// What a mode makes of a tensor that a program has just made of its data; without one, the tensor.
Tensor lifted(Tensor made);

bool add_tensor_constructors(PyObject* module);

}  // namespace mica::python
