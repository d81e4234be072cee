// __torch_function__: arguments that are not plain tensors may take a call over.
#pragma once

#include "mica/core/grad_mode.h"
#include "tensor/tensor_object.h"

namespace mica::python {

class Parser;

// Whether the object's type has a __torch_function__ that is to be asked: not the disabled one, and not while overrides
// are disabled. A plain tensor has none; a subclass of Tensor inherits the default, which returns results as the
// subclass.
bool overrides_torch_function(PyObject* o);

// Whether the object's class has a __torch_dispatch__. Its tensors hold no elements, and operators on them go there.
bool overrides_torch_dispatch(PyObject* o);
bool has_torch_dispatch(PyTypeObject* type);  // defined by the type itself, not the disabled one
extern PyObject* disabled_dispatch;           // the __torch_dispatch__ that Tensor has
bool exchange_dispatch_aside(bool value);     // while true, classes with a __torch_dispatch__ are not asked

// Whether attributes of the object are asked for too: they are, if its class has a __torch_function__ and that is
// enabled.
bool attributes_overridden(PyObject* o);

// Whether overloaded arguments or an active mode are enabled now.
bool torch_function_wanted(int num_overloaded);

// Asks modes, then the overloaded arguments, subclasses before their bases; returns the first answer.
PyObject* call_torch_function(const Parser& parser, PyObject** overloaded, int count, PyObject* self,
                              PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// The same for a function object of which the positional arguments are known: slots and hand-written methods.
PyObject* call_torch_function(PyObject* function, PyObject** overloaded, int count, PyObject* const* args,
                              Py_ssize_t nargs);

// For methods that return a Python value: whether a mode or the tensor's class may answer instead. One test settles it
// for a plain tensor without modes.
inline bool may_be_asked(PyObject* self) {
  return (thread_modes & mode_bit::kFunctionMode) || Py_TYPE(self) != tensor_type;
}

// Whether the object's class has the attribute `_values_are_plain`, as Mica's own classes have.
bool has_plain_values(PyObject* o);

// The answer of the active modes or of the tensor's class to a method, or null without an error where there is none. On
// an error, null with the error set. A class of which __torch_function__ is Tensor's own, or that has the attribute
// `_values_are_plain`, is not asked: its answer would be the tensor's.
PyObject* ask_about(PyObject* self, const char* method, PyObject* const* more = nullptr, Py_ssize_t count = 0);

// Whether a mode or the tensor's class has answered, perhaps with an error: then `answer` is what the method returns.
inline bool is_answered(PyObject* self, const char* method, PyObject*& answer, PyObject* const* more = nullptr,
                        Py_ssize_t count = 0) {
  if (!may_be_asked(self)) [[likely]]
    return false;
  answer = ask_about(self, method, more, count);
  return answer || PyErr_Occurred();
}

// From now on, those methods of Tensor that only return what it knows ask modes and classes too (tensor_methods.cpp).
void let_methods_ask();

bool add_torch_function(PyObject* module);
extern PyMethodDef torch_function_methods[];  // Tensor.__torch_function__

}  // namespace mica::python
