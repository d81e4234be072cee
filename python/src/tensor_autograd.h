// The functions behind torch.autograd.
#pragma once

#include "object.h"

namespace mica::python {

bool add_autograd(PyObject* module);

}  // namespace mica::python
