// Tensors over memory that somebody else owns: NumPy arrays, buffers, DLPack capsules, mapped files.
#pragma once

#include "core/allocate.h"
#include "mica/tensor.h"
#include "object.h"

namespace mica::python {

// A deleter whose context is a Python object. It drops a reference to the object, on any thread.
void drop_object(void* object, void* data, size_t nbytes);

// ---- NumPy, which is imported when first needed

bool is_numpy_array(PyObject* o);
// Shares memory; throws torch's errors; warns of a read-only array that is to stay shared.
Tensor tensor_from_numpy(PyObject* array, bool stays_shared = true);
bool has_dlpack(PyObject* o);  // an object that exports itself and is not a tensor
Tensor tensor_from_dlpack(PyObject* exporter_or_capsule, std::optional<Device> device, std::optional<bool> copy);

// The element type that a buffer's format names; Undefined if there is none.
DType dtype_of_format(const char* format, Py_ssize_t itemsize);

bool add_numpy(PyObject* module);
bool add_dlpack(PyObject* module);
bool add_array_constructors(PyObject* module);  // as_tensor, asarray, frombuffer, from_file
bool add_storage(PyObject* module);
bool add_settings(PyObject* module);
bool add_functional(PyObject* module);  // functions on which mica/functional.py is built

inline bool add_interop(PyObject* module) {
  return add_numpy(module) && add_dlpack(module) && add_array_constructors(module) && add_storage(module) &&
         add_settings(module) && add_functional(module);
}

bool add_tensor_methods(PyMethodDef* methods);
bool add_tensor_attributes(PyGetSetDef* attributes);

}  // namespace mica::python
