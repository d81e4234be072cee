// The C++ part of the package nn, beside operations.
#pragma once

#include "object.h"

namespace mica::python {

bool add_module_base(PyObject* module);     // the base type of nn.Module
bool add_init_functions(PyObject* module);  // of nn.init

}  // namespace mica::python
