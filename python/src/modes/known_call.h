// Calls of compiled functions that are known by their arguments and made again by a list (known_call.cpp).
#pragma once

#include "object.h"

namespace mica::python {

bool is_known_call(PyObject* object);

// Whether a known call (torch._C._KnownCall) is this one: its arguments have the forms and values of the first one's,
// the thread has the same modes, and nothing that the function has read is another.
bool is_this_call(PyObject* known, PyObject* const* args, size_t count, PyObject* names);

// Makes it again for these arguments. Null with an error set if an operation has failed. Null without an error: a
// result has another form, or an operation failed that may as well be called again; the function itself has to be
// called.
PyObject* make_again(PyObject* known, PyObject* const* args);

}  // namespace mica::python
