// The Python exception types of the package.
#pragma once

#include "object.h"

namespace mica::python {

extern PyObject* out_of_memory_error;  // torch.OutOfMemoryError, a RuntimeError

bool is_engine_error(PyObject* exception);  // whether it is the last one that the engine raised on this thread
bool add_exceptions(PyObject* module);
bool install_warning_handler();  // routes mica::warn to Python's warnings module
// Turns a caught exception into Python's error. Returns false where it is neither the engine's nor Python's.
bool raise_error(const std::exception& error);

}  // namespace mica::python
