// torch.Tensor: the type, put together from its parts.
#include <cstddef>
#include <vector>

#include "arguments/torch_function.h"
#include "operations/entry.h"

#include <structmember.h>

namespace mica::python {

PyTypeObject* tensor_type = nullptr;

// A tensor hashes to its id(), as torch documents it. No address is -1, the value that means an error.
static Py_hash_t tensor_hash(PyObject* self) { return reinterpret_cast<Py_hash_t>(self); }

static Py_ssize_t tensor_length(PyObject* self) {
  if (may_be_asked(self)) [[unlikely]] {
    Owned answer(ask_about(self, "__len__"));
    if (answer || PyErr_Occurred()) return answer ? PyNumber_AsSsize_t(answer.get(), PyExc_OverflowError) : -1;
  }
  const Tensor& x = unwrap(self);
  if (x.dim() > 0) return static_cast<Py_ssize_t>(x.sizes()[0]);
  PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
  return -1;
}

static PyObject* tensor_iter(PyObject* self) try {
  const Tensor& x = unwrap(self);
  if (x.dim() == 0) return PyErr_Format(PyExc_TypeError, "iteration over a 0-d tensor");
  // Through the method, so that a subclass gets its own kind.
  Owned name(PyUnicode_InternFromString("unbind"));
  PyObject* call[] = {self};
  const bool plain = is_exact_tensor(self) && !(thread_modes & mode_bit::kFunctionMode);
  Owned rows(plain ? to_python(mica::unbind(x, 0)) : PyObject_VectorcallMethod(name.get(), call, 1, nullptr));
  return rows ? PyObject_GetIter(rows.get()) : nullptr;
} catch (...) {
  return raise_current_exception();
}

static int tensor_contains(PyObject* self, PyObject* element) try {
  if (may_be_asked(self)) [[unlikely]] {
    Owned answer(ask_about(self, "__contains__", &element, 1));
    if (answer || PyErr_Occurred()) return answer ? PyObject_IsTrue(answer.get()) : -1;
  }
  if (!is_tensor(element) && !is_number_like(element)) {
    Owned type(PyObject_Repr(reinterpret_cast<PyObject*>(Py_TYPE(element))));
    const char* text = type ? PyUnicode_AsUTF8(type.get()) : "?";
    fail(cat("Tensor.__contains__ only supports Tensor or scalar, but you passed in a ", text, "."));
  }
  Owned equal(PyObject_RichCompare(self, element, Py_EQ));
  if (!equal || !is_tensor(equal.get())) return equal ? PyObject_IsTrue(equal.get()) : -1;
  Owned found(PyObject_CallMethod(equal.get(), "any", nullptr));
  return found ? PyObject_IsTrue(found.get()) : -1;
} catch (...) {
  return raise_current_exception_int();
}

static PyObject* method_object(PyMethodDef* method) {
  if (method->ml_flags & METH_CLASS) return PyDescr_NewClassMethod(tensor_type, method);
  if (!(method->ml_flags & METH_STATIC)) return PyDescr_NewMethod(tensor_type, method);
  Owned function(PyCFunction_NewEx(method, nullptr, nullptr));
  return function ? PyStaticMethod_New(function.get()) : nullptr;
}

static bool add_methods(PyMethodDef* methods) {
  for (; methods->ml_name; ++methods) {
    Owned descriptor(method_object(methods));
    if (!descriptor || PyDict_SetItemString(tensor_type->tp_dict, methods->ml_name, descriptor.get()) < 0) return false;
  }
  return true;
}

bool add_reflected_operators();  // tensor_numbers.cpp

bool add_tensor(PyObject* module) {
  static PyMemberDef members[] = {
      {"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weakrefs), READONLY, nullptr},
      {}};
  std::vector<PyType_Slot> slots = {
      {Py_tp_new, reinterpret_cast<void*>(tensor_new)},
      {Py_tp_dealloc, reinterpret_cast<void*>(tensor_dealloc)},
      {Py_tp_finalize, reinterpret_cast<void*>(tensor_finalize)},
      {Py_tp_traverse, reinterpret_cast<void*>(tensor_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(tensor_clear)},
      {Py_tp_setattro, reinterpret_cast<void*>(tensor_setattr)},
      {Py_tp_repr, reinterpret_cast<void*>(tensor_repr)},
      {Py_tp_hash, reinterpret_cast<void*>(tensor_hash)},
      {Py_tp_richcompare, reinterpret_cast<void*>(tensor_compare)},
      {Py_tp_iter, reinterpret_cast<void*>(tensor_iter)},
      {Py_mp_length, reinterpret_cast<void*>(tensor_length)},
      {Py_mp_subscript, reinterpret_cast<void*>(tensor_getitem)},
      {Py_mp_ass_subscript, reinterpret_cast<void*>(tensor_setitem)},
      {Py_sq_length, reinterpret_cast<void*>(tensor_length)},
      {Py_sq_contains, reinterpret_cast<void*>(tensor_contains)},
      {Py_tp_getset, tensor_attributes},
      {Py_tp_members, members},
  };
  for (PyType_Slot* s = tensor_number_slots; s->slot; ++s) slots.push_back(*s);
  slots.push_back({0, nullptr});
  PyType_Spec spec = {"torch.Tensor", sizeof(TensorObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  tensor_type = add_type(module, &spec);
  if (!tensor_type) return false;
  tensor_type->tp_name = "Tensor";  // as messages of the interpreter name it; __module__ stays torch
  install_release_hook();
  for (PyMethodDef* methods : {tensor_methods, tensor_conversions, tensor_autograd_methods, torch_function_methods})
    if (!add_methods(methods)) return false;
  if (!add_reflected_operators()) return false;
  PyType_Modified(tensor_type);
  // The names under which torch knows the base of Tensor and its metaclass.
  return PyModule_AddObjectRef(module, "TensorBase", reinterpret_cast<PyObject*>(tensor_type)) == 0 &&
         PyModule_AddObjectRef(module, "_TensorMeta", reinterpret_cast<PyObject*>(&PyType_Type)) == 0 &&
         add_printing(module);
}

}  // namespace mica::python
