// A short way from a tensor to its memory.
#pragma once

#include "distributed/python/bindings.h"

namespace mica::distributed::python {

// The memory of a contiguous tensor of the CPU whose numbers are real; false for any other object.
bool plain_tensor(PyObject* object, Bytes& memory, DType& dtype, std::vector<int64_t>& shape);

// The class whose objects are taken.
PyObject* set_plain_type(PyObject* module, PyObject* type);

}  // namespace mica::distributed::python
