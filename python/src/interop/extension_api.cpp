// The table of functions for extension modules written in C++ (mica/python_api.h).
#include "mica/python_api.h"

#include "arguments/parser.h"
#include "exceptions.h"
#include "interop/extension_api.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"
#include "types/generator_object.h"
#include "types/objects.h"

namespace mica::python {

namespace {

const Tensor* tensor(PyObject* o) { return is_tensor(o) ? &unwrap(o) : nullptr; }

bool dtype(PyObject* o, DType* result) {
  if (!is_dtype(o)) return false;
  *result = dtype_of_object(o);
  return *result != DType::Undefined;
}

bool device(PyObject* o, Device* result) {
  if (!is_device(o)) return false;
  *result = reinterpret_cast<DeviceObject*>(o)->device;
  return true;
}

bool layout(PyObject* o, Layout* result) {
  if (!is_layout(o)) return false;
  *result = layout_of_object(o);
  return true;
}

bool memory_format(PyObject* o, MemoryFormat* result) {
  if (!is_memory_format(o)) return false;
  *result = memory_format_of_object(o);
  return true;
}

bool number(PyObject* o, Scalar* result) try {
  if (!PyBool_Check(o) && !PyLong_Check(o) && !PyFloat_Check(o) && !PyComplex_Check(o)) return false;
  *result = scalar_from_object(o);
  return true;
} catch (...) {  // an integer that fits no dtype
  PyErr_Clear();
  return false;
}

const Generator* generator(PyObject* o) { return is_generator(o) ? &generator_of_object(o) : nullptr; }

PyObject* tensor_object(const Tensor& t) { return wrap(t); }
PyObject* number_object(const Scalar& s) { return to_python(s); }

const ExtensionApi api{ExtensionApi::kVersion, tensor,        dtype,         device,        layout,
                       memory_format,          number,        generator,     tensor_object, dtype_object,
                       device_object,          layout_object, number_object, size_object,   raise_error};

}  // namespace

bool add_extension_api(PyObject* module) {
  const Owned capsule(PyCapsule_New(const_cast<ExtensionApi*>(&api), ExtensionApi::kCapsule, nullptr));
  return capsule && PyModule_AddObjectRef(module, "_extension_api", capsule.get()) == 0;
}

}  // namespace mica::python
