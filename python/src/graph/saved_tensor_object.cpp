// A tensor kept for backward, as programs see it: x.grad_fn._raw_saved_self, on which hooks can be put; and the hooks
// themselves.
#include "graph/node_object.h"
#include "operations/entry.h"

namespace mica::python {

namespace {

// Set while a program looks at what a hook has packed: the object, and the function that would unpack it.
struct Look {
  PyObject* packed = nullptr;
  PyObject* unpack = nullptr;
};
thread_local Look* looking = nullptr;

std::shared_ptr<void> call_pack(const Kept& pack, const Tensor& t) {
  Locked locked;
  Owned argument(checked(wrap(t)));
  Owned packed(checked(PyObject_CallOneArg(pack.get(), argument.get())));
  return keep(packed.get());
}

Tensor call_unpack(const Kept& unpack, const std::shared_ptr<void>& packed) {
  Locked locked;
  if (looking) {
    *looking = {static_cast<PyObject*>(packed.get()), unpack.get()};
    return empty({0}, TensorOptions());
  }
  Owned result(checked(PyObject_CallOneArg(unpack.get(), static_cast<PyObject*>(packed.get()))));
  MICA_CHECK_KIND(is_tensor(result.get()), Type,
                  "Output of saved tensor unpack_hook expected to be a Tensor but got result of type ",
                  Py_TYPE(result.get())->tp_name);
  return unwrap(result.get());
}

struct SavedTensorObject {
  PyObject_HEAD Ref<Node> owner;       // the node of `saved`; null where the program has made the tensor
  std::unique_ptr<SavedTensor> owned;  // the saved tensor that a program has made
  SavedTensor* saved;
};
PyTypeObject* saved_tensor_type;

SavedTensorObject* as_saved(PyObject* o) { return reinterpret_cast<SavedTensorObject*>(o); }

PyObject* new_object() {
  PyObject* o = saved_tensor_type->tp_alloc(saved_tensor_type, 0);
  if (!o) return nullptr;
  new (&as_saved(o)->owner) Ref<Node>();
  new (&as_saved(o)->owned) std::unique_ptr<SavedTensor>();
  return o;
}

void saved_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  as_saved(self)->owned.~unique_ptr();
  as_saved(self)->owner.~Ref<Node>();
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* saved_new(PyTypeObject*, PyObject*, PyObject*) {
  return PyErr_Format(PyExc_RuntimeError, "Trying to create a SavedTensor object from Python is forbidden.");
}

PyObject* saved_register_hooks(PyObject* self, PyObject* args) try {
  PyObject *pack = nullptr, *unpack = nullptr;
  if (PyTuple_GET_SIZE(args) == 2) pack = PyTuple_GET_ITEM(args, 0), unpack = PyTuple_GET_ITEM(args, 1);
  if (!pack || !PyCallable_Check(pack) || !PyCallable_Check(unpack))
    return PyErr_Format(PyExc_TypeError,
                        "register_hooks(): incompatible function arguments: it takes two functions, pack_hook and "
                        "unpack_hook, not %R",
                        args);
  as_saved(self)->saved->register_hooks(saved_tensor_hooks(pack, unpack));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

PyObject* saved_unpack(PyObject* self, PyObject*) try {
  return to_python(as_saved(self)->saved->unpack(as_saved(self)->owner.get(), true));
} catch (...) {
  return raise_current_exception();
}

// What is kept: the tensor, without its history where it is the node's own output; or the object that a hook has
// packed.
Tensor look_at(PyObject* self, Look& look) {
  Look* const before = std::exchange(looking, &look);
  try {
    Tensor kept = as_saved(self)->saved->unpack();
    looking = before;
    return kept;
  } catch (...) {
    looking = before;
    throw;
  }
}

PyObject* saved_data(PyObject* self, void*) try {
  Look look;
  const Tensor kept = look_at(self, look);
  return look.packed ? Py_NewRef(look.packed) : to_python(kept);
} catch (...) {
  return raise_current_exception();
}

PyObject* saved_unpack_hook(PyObject* self, void*) try {
  Look look;
  look_at(self, look);
  return Py_NewRef(look.unpack ? look.unpack : Py_None);
} catch (...) {
  return raise_current_exception();
}

PyObject* make_saved_tensor(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"tensor", "is_output", nullptr};
  PyObject* tensor;
  int is_output = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|p", const_cast<char**>(names), &tensor, &is_output)) return nullptr;
  if (!is_tensor(tensor))
    return PyErr_Format(PyExc_TypeError, "_make_saved_tensor expects a Tensor, but got %s", Py_TYPE(tensor)->tp_name);
  auto made = std::make_unique<SavedTensor>(unwrap(tensor), is_output != 0);
  PyObject* o = checked(new_object());
  as_saved(o)->owned = std::move(made);
  as_saved(o)->saved = as_saved(o)->owned.get();
  return o;
} catch (...) {
  return raise_current_exception();
}

PyObject* push_saved_tensor_hooks(PyObject*, PyObject* args) try {
  PyObject *pack, *unpack;
  if (!PyArg_UnpackTuple(args, "_push_saved_tensor_hooks", 2, 2, &pack, &unpack)) return nullptr;
  autograd::push_saved_tensor_hooks(saved_tensor_hooks(pack, unpack));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

PyObject* pop_saved_tensor_hooks(PyObject*, PyObject*) try {
  autograd::pop_saved_tensor_hooks();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// Forbids hooks with a message, or allows them with None. Returns the earlier setting.
PyObject* disable_saved_tensor_hooks(PyObject*, PyObject* message) try {
  std::optional<std::string> text;
  if (message != Py_None) {
    const char* given = PyUnicode_AsUTF8(message);
    if (!given) return nullptr;
    text = given;
  }
  auto before = autograd::disable_saved_tensor_hooks(std::move(text));
  return before ? to_python(*before) : Py_NewRef(Py_None);
} catch (...) {
  return raise_current_exception();
}

}  // namespace

std::shared_ptr<SavedTensorHooks> saved_tensor_hooks(PyObject* pack, PyObject* unpack) {
  auto hooks = std::make_shared<SavedTensorHooks>();
  hooks->pack = [kept = keep(pack)](const Tensor& t) { return call_pack(kept, t); };
  hooks->unpack = [kept = keep(unpack)](const std::shared_ptr<void>& packed) { return call_unpack(kept, packed); };
  return hooks;
}

PyObject* saved_tensor_object(Node& node, SavedTensor* saved) {
  PyObject* o = new_object();
  if (!o) return nullptr;
  as_saved(o)->owner = Ref<Node>(&node);
  as_saved(o)->saved = saved;
  return o;
}

bool add_saved_tensor(PyObject* module) {
  static PyMethodDef methods[] = {
      {"register_hooks", saved_register_hooks, METH_VARARGS,
       "Keeps pack_hook(x) in place of the tensor x, and uses unpack_hook of it in backward."},
      {"unpack", saved_unpack, METH_NOARGS, "The tensor, with its history."},
      {}};
  static PyGetSetDef attributes[] = {
      {"data", saved_data, nullptr, "What is kept: a tensor, or what a hook has packed.", nullptr},
      {"unpack_hook", saved_unpack_hook, nullptr, "The function that unpacks it, or None.", nullptr},
      {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(saved_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(saved_dealloc)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, attributes},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch._C._autograd.SavedTensor", sizeof(SavedTensorObject), 0, Py_TPFLAGS_DEFAULT, slots};
  static PyMethodDef functions[] = {
      {"_make_saved_tensor", as_cfunction(make_saved_tensor), METH_VARARGS | METH_KEYWORDS, nullptr},
      {"_push_saved_tensor_hooks", push_saved_tensor_hooks, METH_VARARGS, "_push_saved_tensor_hooks(pack, unpack)"},
      {"_pop_saved_tensor_hooks", pop_saved_tensor_hooks, METH_NOARGS, nullptr},
      {"_disable_saved_tensor_hooks", disable_saved_tensor_hooks, METH_O, nullptr},
      {}};
  saved_tensor_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return saved_tensor_type && PyModule_AddFunctions(module, functions) == 0 &&
         PyModule_AddObjectRef(module, "_SavedTensor", reinterpret_cast<PyObject*>(saved_tensor_type)) == 0;
}

}  // namespace mica::python
