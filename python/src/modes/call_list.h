// Calls on tensors that a compiled function made, kept in a list and made again without Python (call_list.cpp).
#pragma once

#include "modes/call_values.h"

namespace mica::python {

bool is_call_list(PyObject* object);
size_t inputs_of(PyObject* list);  // how many tensors it takes: they are in its first slots
size_t slots_of(PyObject* list);

// Runs a list for the tensors of its first slots. Null with an error set if an operation has failed. Null without an
// error: a result has another form, or an operation failed that may as well be called again; the function itself has to
// be called.
PyObject* run_list(PyObject* list, Slots slots);

}  // namespace mica::python
