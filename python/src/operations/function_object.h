// Functions of the engine that can be handled like functions of Python: they have a dict, a signature and a module.
#pragma once

#include "operations/entry.h"

namespace mica::python {

bool add_function_type(PyObject* module);
// A callable for an entry. A call costs what that of a built-in function costs.
PyObject* new_function(Entry& entry, PyObject* module_name);

}  // namespace mica::python
