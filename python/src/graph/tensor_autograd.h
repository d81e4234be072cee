// The functions behind torch.autograd.
#pragma once

#include "mica/tensor.h"
#include "object.h"

namespace mica::python {

// Warns once about a number that is taken from a tensor that requires grad: what is computed from it has no history.
void warn_of_number(const Tensor& x);

bool add_autograd(PyObject* module);

}  // namespace mica::python
