// Second names of functions, as functions of their own.
#pragma once

#include <Python.h>

namespace mica::python {

bool add_aliases(PyObject* module);  // after the entries, whose functions they call

}  // namespace mica::python
