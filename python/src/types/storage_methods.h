// What the storage's object (storage_object.cpp) and its methods (storage_methods.cpp) have of each other.
#pragma once

#include "types/storage_object.h"

namespace mica::python {

PyTypeObject* storage_base_type();  // torch._C.StorageBase
// The object of a storage, as a new reference. `type` is the type of an object that has to be made.
PyObject* storage_object(const Storage& storage, PyTypeObject* type);
PyObject* fix_storage_weakref(PyObject* self, PyObject* none);

PyObject* new_storage(PyTypeObject* type, PyObject* args, PyObject* kwargs);
Py_ssize_t storage_length(PyObject* self);
extern PyMethodDef storage_methods[];
extern PyMethodDef storage_methods_of_tensors[];

}  // namespace mica::python
