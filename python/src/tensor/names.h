// Names of dimensions between Python and the engine: None is "", and so is the ellipsis "...".
#pragma once

#include <string>
#include <vector>

#include "object.h"

namespace mica::python {

PyObject* names_object(const std::vector<std::string>& names);  // a tuple
std::vector<std::string> names_from_object(PyObject* sequence);
bool add_names(PyObject* module);  // Tensor.rename, refine_names, align_to...

// For a call that fits no signature: if it gives dimensions by name, or names to a factory, makes the call that is
// meant and returns true; `result` is its result, null after a Python error. Otherwise returns false.
bool call_by_names(const char* name, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                   PyObject*& result);

}  // namespace mica::python
