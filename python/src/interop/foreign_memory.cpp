#include "interop/foreign_memory.h"

#include "tensor/tensor_object.h"

namespace mica::python {

void drop_object(void* object, void*, size_t) {
  if (!Py_IsInitialized()) return;
  Locked locked;
  Py_DECREF(static_cast<PyObject*>(object));
}

bool add_tensor_methods(PyMethodDef* methods) {
  for (; methods->ml_name; ++methods) {
    PyTypeObject* base = tensor_type->tp_base;  // TensorBase
    Owned method(PyDescr_NewMethod(base, methods));
    if (!method || PyDict_SetItemString(base->tp_dict, methods->ml_name, method.get()) < 0) return false;
  }
  PyType_Modified(tensor_type->tp_base);
  return true;
}

bool add_tensor_attributes(PyGetSetDef* attributes) {
  for (; attributes->name; ++attributes) {
    Owned attribute(PyDescr_NewGetSet(tensor_type, attributes));
    if (!attribute || PyDict_SetItemString(tensor_type->tp_dict, attributes->name, attribute.get()) < 0) return false;
  }
  PyType_Modified(tensor_type);
  return true;
}

}  // namespace mica::python
