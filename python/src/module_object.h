// The base type of nn.Module.
#pragma once

#include "object.h"

namespace mica::python {

bool add_module_base(PyObject* module);

}  // namespace mica::python
