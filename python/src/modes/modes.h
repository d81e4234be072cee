#pragma once

#include <string>

#include "object.h"

namespace mica::python {

bool add_modes(PyObject* module);
std::string describe_python_stack();  // of the calling thread, as traceback prints it

}  // namespace mica::python
