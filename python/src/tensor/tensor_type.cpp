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
  // Calls the method, so that a subclass gets its own kind.
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

static PyObject* method_object(PyTypeObject* type, PyMethodDef* method) {
  if (method->ml_flags & METH_CLASS) return PyDescr_NewClassMethod(type, method);
  if (!(method->ml_flags & METH_STATIC)) return PyDescr_NewMethod(type, method);
  Owned function(PyCFunction_NewEx(method, nullptr, nullptr));
  return function ? PyStaticMethod_New(function.get()) : nullptr;
}

static bool add_methods(PyTypeObject* type, PyMethodDef* methods) {
  for (; methods->ml_name; ++methods) {
    Owned descriptor(method_object(type, methods));
    if (!descriptor || PyDict_SetItemString(type->tp_dict, methods->ml_name, descriptor.get()) < 0) return false;
  }
  return true;
}

bool add_reflected_operators();  // tensor_numbers.cpp

static PyObject* base_new(PyTypeObject* type, PyObject*, PyObject*) {
  return PyErr_Format(PyExc_RuntimeError, "cannot create '%s' instances: torch.Tensor can", type->tp_name);
}

// torch._C.TensorBase, from which torch's Tensor is derived. It has everything that is written in C++; there are no
// objects of this type itself.
static PyTypeObject* add_base(PyObject* module) {
  static PyMemberDef members[] = {
      {"__dictoffset__", T_PYSSIZET, offsetof(TensorObject, dict), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(TensorObject, weakrefs), READONLY, nullptr},
      {}};
  std::vector<PyType_Slot> slots = {
      {Py_tp_new, reinterpret_cast<void*>(base_new)},
      {Py_tp_dealloc, reinterpret_cast<void*>(tensor_dealloc)},
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
  PyType_Spec spec = {"torch._C.TensorBase", sizeof(TensorObject), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots.data()};
  PyTypeObject* base = add_type(module, &spec);
  for (PyMethodDef* methods : {tensor_methods, tensor_conversions, tensor_autograd_methods, torch_function_methods})
    if (!base || !add_methods(base, methods)) return nullptr;
  return base;
}

bool add_tensor(PyObject* module) {
  PyTypeObject* base = add_base(module);
  if (!base) return false;
  // Slots that Python would fill in for a class are repeated here. Operators and the rest are inherited.
  static PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(tensor_new)},
      {Py_tp_dealloc, reinterpret_cast<void*>(tensor_dealloc)},
      {Py_tp_finalize, reinterpret_cast<void*>(tensor_finalize)},
      {Py_tp_traverse, reinterpret_cast<void*>(tensor_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(tensor_clear)},
      {0, nullptr},
  };
  static PyType_Spec spec = {"torch.Tensor", sizeof(TensorObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  Owned bases(PyTuple_Pack(1, reinterpret_cast<PyObject*>(base)));
  tensor_type = bases ? add_type(module, &spec, bases.get()) : nullptr;
  if (!tensor_type) return false;
  tensor_type->tp_name = "Tensor";  // the name in messages of the interpreter; __module__ stays torch
  install_release_hook();
  if (!add_reflected_operators()) return false;
  PyType_Modified(base);
  // The name under which torch knows the metaclass.
  return PyModule_AddObjectRef(module, "_TensorMeta", reinterpret_cast<PyObject*>(&PyType_Type)) == 0 &&
         add_printing(module);
}

}  // namespace mica::python
