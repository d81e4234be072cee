// The Python object of a tensor. An object and its TensorImpl know each other, so that a tensor has one identity in
// Python however often it crosses the border.
#pragma once

#include "mica/autograd.h"
#include "mica/tensor.h"
#include "object.h"

namespace mica::python {

struct TensorObject {
  PyObject_HEAD
      // A counted reference, with one exception: while impl->python_owned, the impl owns this object, and the pointer
      // here is borrowed.
      Tensor tensor;
  PyObject* dict;  // attributes that a program has set; null until then
  PyObject* weakrefs;
  bool tracked;  // whether the collector knows the object; never reset, so that assigning __class__ changes nothing
};

extern PyTypeObject* tensor_type;

inline bool is_exact_tensor(PyObject* o) { return Py_TYPE(o) == tensor_type; }
inline bool is_tensor(PyObject* o) { return is_exact_tensor(o) || PyType_IsSubtype(Py_TYPE(o), tensor_type); }

// The tensor of an object that is_tensor(). Valid as long as the object is.
inline const Tensor& unwrap(PyObject* o) { return reinterpret_cast<TensorObject*>(o)->tensor; }

// A new reference to the tensor's object; None for an undefined tensor. Null after a Python error.
PyObject* wrap(Tensor tensor);
inline PyObject* wrap(const Tensor* tensor) { return wrap(*tensor); }

// A new object of a subclass for a tensor that has no object yet.
PyObject* wrap_as(PyTypeObject* subclass, Tensor tensor);

// To be called before another object is made of a tensor's: a promise of a captured function gets its value first.
// False after a Python error.
bool fulfil_for_class(PyObject* source);
PyObject* set_before_class(PyObject*, PyObject* function);

// Tells the collector about a tensor that may be part of a cycle: one with attributes, hooks or a graph with Python
// objects.
void track(PyObject* tensor);

// Slots of the type that have to do with the object's life (tensor_object.cpp).
void tensor_dealloc(PyObject* self);
void tensor_finalize(PyObject* self);
// Clears the __slots__ that Python classes below `base` have added to an object.
void clear_slots(PyObject* o, PyTypeObject* base);
int tensor_traverse(PyObject* self, visitproc visit, void* arg);
int tensor_clear(PyObject* self);
int tensor_setattr(PyObject* self, PyObject* name, PyObject* value);
PyObject* tensor_get_dict(PyObject* self, void*);
void install_release_hook();

// The other parts of the type, each in its own file.
extern PyGetSetDef tensor_attributes[];   // tensor_attributes.cpp
extern PyMethodDef tensor_methods[];      // tensor_methods.cpp
extern PyMethodDef tensor_conversions[];  // tensor_conversions.cpp
extern PyMethodDef tensor_autograd_methods[];
extern PyType_Slot tensor_number_slots[];                   // tensor_numbers.cpp: ends with {0, null}
PyObject* tensor_getitem(PyObject* self, PyObject* index);  // indexing.cpp
int tensor_setitem(PyObject* self, PyObject* index, PyObject* value);
PyObject* tensor_repr(PyObject* self);  // print.cpp
PyObject* tensor_compare(PyObject* a, PyObject* b, int op);
PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs);  // tensor_new.cpp

// Refuses a sparse tensor where its memory is asked for, and a quantized one where numbers are.
void require_strided(const Tensor& x, const char* wanted);

// A Python number as a 0-dim tensor that ranks lowest in type promotion.
Tensor wrapped_number(const Scalar& number);

bool add_tensor(PyObject* module);
bool add_printing(PyObject* module);

}  // namespace mica::python
