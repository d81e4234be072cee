#include "arguments/default_torch_function.h"

#include <algorithm>
#include <string_view>

#include "tensor/tensor_object.h"

namespace mica::python {

// The result as an object of `cls`: tensors are made anew, and so are tuples and lists of them.
static PyObject* as_subclass(PyObject* result, PyTypeObject* cls) {
  if (is_tensor(result)) {
    if (PyType_IsSubtype(Py_TYPE(result), cls)) return Py_NewRef(result);
    PyObject* call[] = {result, reinterpret_cast<PyObject*>(cls)};
    Owned name(PyUnicode_InternFromString("as_subclass"));
    return PyObject_VectorcallMethod(name.get(), call, 2, nullptr);
  }
  if (!PyTuple_CheckExact(result) && !PyList_CheckExact(result)) {
    if (!PyTuple_Check(result)) return Py_NewRef(result);
    Py_ssize_t n = PyTuple_GET_SIZE(result);  // a named tuple, or a Size
    if (n == 0 || !is_tensor(PyTuple_GET_ITEM(result, 0))) return Py_NewRef(result);
    Owned items(PyList_New(n));
    for (Py_ssize_t i = 0; i < n; ++i) {
      PyObject* item = as_subclass(PyTuple_GET_ITEM(result, i), cls);
      if (!item) return nullptr;
      PyList_SET_ITEM(items.get(), i, item);
    }
    return PyObject_CallOneArg(reinterpret_cast<PyObject*>(Py_TYPE(result)), items.get());
  }
  bool is_list = PyList_CheckExact(result);
  Py_ssize_t n = PySequence_Fast_GET_SIZE(result);
  Owned made(is_list ? PyList_New(n) : PyTuple_New(n));
  if (!made) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i) {
    PyObject* item = as_subclass(PySequence_Fast_GET_ITEM(result, i), cls);
    if (!item) return nullptr;
    if (is_list) {
      PyList_SET_ITEM(made.get(), i, item);
    } else {
      PyTuple_SET_ITEM(made.get(), i, item);
    }
  }
  return made.release();
}

static bool is_tensor_class(PyObject* type) {
  return PyType_Check(type) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type), tensor_type);
}

PyObject* default_torch_function(PyObject* cls, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"func", "types", "args", "kwargs", nullptr};
  PyObject *function, *types, *call_args = nullptr, *call_kwargs = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OO:__torch_function__", const_cast<char**>(names), &function,
                                   &types, &call_args, &call_kwargs))
    return nullptr;
  Owned type_list(PySequence_Fast(types, "types must be a sequence"));
  if (!type_list) return nullptr;
  // A class that is neither a base nor a subclass of ours is not handled here.
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(type_list.get()); ++i) {
    PyObject* type = PySequence_Fast_GET_ITEM(type_list.get(), i);
    int related = PyObject_IsSubclass(cls, type);
    if (related < 0) return nullptr;
    if (!related) Py_RETURN_NOTIMPLEMENTED;
  }
  SubclassesDisabled guard;
  Owned empty;
  if (!call_args) call_args = (empty = Owned(PyTuple_New(0))).get();
  if (call_kwargs == Py_None) call_kwargs = nullptr;
  Owned result(PyObject_Call(function, call_args, call_kwargs));
  if (!result) return nullptr;
  // Attributes whose values are not wrapped in the subclass: x.grad, x.data_ptr(), x.shape.
  static constexpr std::string_view kUnwrapped[] = {"_base", "grad", "_grad"};
  Owned owner(PyObject_GetAttrString(function, "__self__"));
  PyErr_Clear();
  if (owner) {
    Owned name(PyObject_GetAttrString(owner.get(), "__name__"));
    PyErr_Clear();
    if (const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr)
      if (std::find(std::begin(kUnwrapped), std::end(kUnwrapped), text) != std::end(kUnwrapped))
        return result.release();
  }
  if (!is_tensor_class(cls)) return result.release();
  return as_subclass(result.get(), reinterpret_cast<PyTypeObject*>(cls));
}

}  // namespace mica::python
