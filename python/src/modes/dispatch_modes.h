// TorchDispatchMode: the stack of modes of a thread, and the way of an operation to the innermost of them.
#pragma once

#include "object.h"

namespace mica::python {

bool add_dispatch_modes(PyObject* module);

}  // namespace mica::python
