// The Python exception types of the package.
#pragma once

#include "object.h"

namespace mica::python {

extern PyObject* out_of_memory_error;  // torch.OutOfMemoryError, a RuntimeError

bool is_engine_error(PyObject* exception);  // whether the engine raised it, on this thread and last
bool add_exceptions(PyObject* module);
bool install_warning_handler();  // routes mica::warn to Python's warnings module
// An exception that somebody has caught becomes Python's error; false where it is neither the engine's nor Python's.
bool raise_error(const std::exception& error);

}  // namespace mica::python
