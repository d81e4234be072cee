// Hooks: how C++ calls them during a backward pass, and how the garbage collector sees them. A function that refers to
// the tensor on which it is registered makes a cycle through C++, which the collector can find as long as nobody else
// holds the tensor.
#include "graph/hooks.h"

#include <algorithm>
#include <vector>

#include "autograd/metadata.h"
#include "graph/node_object.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"

namespace mica::python {

HookCell::~HookCell() {
  if (!callable || !Py_IsInitialized()) return;
  Locked locked;
  Py_CLEAR(callable);
}

namespace {

struct HandleObject {
  PyObject_HEAD HookHandle handle;
  std::weak_ptr<HookCell> cell;
};
PyTypeObject* handle_type;

std::string name_of(PyObject* callable) {
  Owned name(PyObject_GetAttrString(callable, "__name__"));
  PyErr_Clear();
  const char* text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  return text ? text : Py_TYPE(callable)->tp_name;
}

// Puts what a hook of a node returned in the place of its gradients. None leaves them.
void replace(TensorVec& grads, PyObject* result, const std::string& name) {
  if (result == Py_None) return;
  Owned list;
  if (is_tensor(result)) {
    list = Owned(PyTuple_Pack(1, result));
  } else {
    list = Owned(PySequence_Fast(result, "hook must return None, a tensor or a tuple of tensors"));
  }
  if (!list) throw PythonError();
  const auto n = static_cast<size_t>(PySequence_Fast_GET_SIZE(list.get()));
  MICA_CHECK(n == grads.size(), "hook '", name, "' has returned an incorrect number of values (got ", n,
             ", but expected ", grads.size(), ")");
  for (size_t i = 0; i < n; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(list.get(), static_cast<Py_ssize_t>(i));
    MICA_CHECK_KIND(item == Py_None || is_tensor(item), Type, "expected Tensor, but hook returned '",
                    Py_TYPE(item)->tp_name, "'");
    grads[i] = item == Py_None ? Tensor() : unwrap(item);
  }
}

struct GradientHook {
  HookFunction cell;
  Tensor operator()(const Tensor& grad) const {
    Locked locked;
    Owned function = Owned::borrow(cell->callable);
    if (!function) return Tensor();
    Owned argument(checked(wrap(grad)));
    Owned result(checked(PyObject_CallOneArg(function.get(), argument.get())));
    if (result.get() == Py_None) return Tensor();
    if (!is_tensor(result.get()))
      fail(ErrorKind::Type, cat("expected Variable, but hook returned '", Py_TYPE(result.get())->tp_name, "'"));
    return unwrap(result.get());
  }
};

struct LeafHook {
  HookFunction cell;
  void operator()(const Tensor& leaf) const {
    Locked locked;
    Owned function = Owned::borrow(cell->callable);
    if (!function) return;
    Owned argument(checked(wrap(leaf)));
    Owned result(checked(PyObject_CallOneArg(function.get(), argument.get())));
    if (result.get() == Py_None || result.get() == argument.get()) return;  // p.add_(...) returns the tensor itself
    if (!is_tensor(result.get()))
      fail(ErrorKind::Type, cat("expected Variable, but hook returned '", Py_TYPE(result.get())->tp_name, "'"));
    fail("Tensor post accumulate grad hooks should return None.");
  }
};

struct PreHook {
  HookFunction cell;
  void operator()(TensorVec& grads) const {
    Locked locked;
    Owned function = Owned::borrow(cell->callable);
    if (!function) return;
    Owned outs(checked(to_python(grads)));
    Owned result(checked(PyObject_CallOneArg(function.get(), outs.get())));
    replace(grads, result.get(), name_of(function.get()));
  }
};

struct PostHook {
  HookFunction cell;
  bool number;     // has_number() of its node
  size_t outputs;  // outputs of its node that a gradient can reach: torch counts no others
  void operator()(TensorVec& grad_inputs, const TensorVec& grad_outputs) const {
    Locked locked;
    Owned function = Owned::borrow(cell->callable);
    if (!function) return;
    TensorVec shown = grad_inputs;
    if (number) shown.emplace_back();
    TensorVec came = grad_outputs;
    came.resize(std::min(outputs, came.size()));
    Owned ins(checked(to_python(shown))), outs(checked(to_python(came)));
    PyObject* call[] = {ins.get(), outs.get()};
    Owned result(checked(PyObject_Vectorcall(function.get(), call, 2, nullptr)));
    replace(shown, result.get(), name_of(function.get()));
    std::copy_n(shown.begin(), grad_inputs.size(), grad_inputs.begin());
  }
};

PyObject* new_handle(HookHandle handle, const HookFunction& cell) {
  PyObject* o = handle_type->tp_alloc(handle_type, 0);
  if (!o) return nullptr;
  new (&reinterpret_cast<HandleObject*>(o)->handle) HookHandle(std::move(handle));
  new (&reinterpret_cast<HandleObject*>(o)->cell) std::weak_ptr<HookCell>(cell);
  return o;
}

// Calls body with the cell of every hook of type Hook in the list.
template <class Hook, class Callable, class Body>
int for_cells(const HookList<Callable>& list, const Body& body) {
  for (const auto& record : list)
    if (const Hook* hook = record->call.template target<Hook>())
      if (const int status = body(*hook->cell)) return status;
  return 0;
}

template <class Body>
int for_cells_of_node(const Node& node, const Body& body) {
  if (!node.hooks) return 0;
  if (const int status = for_cells<GradientHook>(node.hooks->tensor_hooks, body)) return status;
  if (const int status = for_cells<PreHook>(node.hooks->pre_hooks, body)) return status;
  return for_cells<PostHook>(node.hooks->post_hooks, body);
}

template <class Body>
int for_all_cells(const TensorImpl* tensor, const Body& body) {
  const AutogradMeta* meta = tensor->autograd;
  if (!meta) return 0;
  if (meta->extras) {
    if (const int status = for_cells<GradientHook>(meta->extras->leaf_hooks, body)) return status;
    if (const int status = for_cells<LeafHook>(meta->extras->post_accumulate_hooks, body)) return status;
  }
  const Node* node = meta->grad_fn.get();
  if (!node || node->use_count() != 1) return 0;
  return for_cells_of_node(*node, body);
}
void handle_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<HandleObject*>(self)->handle.~HookHandle();
  reinterpret_cast<HandleObject*>(self)->cell.~weak_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}
PyObject* handle_remove(PyObject* self, PyObject*) {
  auto* handle = reinterpret_cast<HandleObject*>(self);
  handle->handle.remove();
  if (const HookFunction cell = handle->cell.lock(); cell && !hooks_are_walked()) Py_CLEAR(cell->callable);
  Py_RETURN_NONE;
}
PyObject* handle_enter(PyObject* self, PyObject*) { return Py_NewRef(self); }
PyObject* handle_exit(PyObject* self, PyObject*) { return handle_remove(self, nullptr); }
PyObject* handle_id(PyObject* self, void*) { return PyLong_FromVoidPtr(self); }

}  // namespace

PyObject* add_gradient_hook(const Tensor& t, PyObject* function) {
  const auto cell = std::make_shared<HookCell>(function);
  return new_handle(autograd::register_hook(t, GradientHook{cell}, name_of(function)), cell);
}
PyObject* add_post_accumulate_hook(const Tensor& leaf, PyObject* function) {
  const auto cell = std::make_shared<HookCell>(function);
  return new_handle(autograd::register_post_accumulate_grad_hook(leaf, LeafHook{cell}), cell);
}
PyObject* add_node_prehook(Node& node, PyObject* function) {
  const auto cell = std::make_shared<HookCell>(function);
  return new_handle(autograd::register_prehook(node, PreHook{cell}), cell);
}
PyObject* add_node_posthook(Node& node, PyObject* function) {
  const auto cell = std::make_shared<HookCell>(function);
  size_t outputs = node.inputs.size();
  const auto takes_gradients = [&](size_t i) {
    const DType dtype = node.inputs[i].dtype;
    return dtype != DType::Undefined && (is_floating(dtype) || is_complex(dtype));
  };
  while (outputs > 1 && !takes_gradients(outputs - 1)) --outputs;
  return new_handle(autograd::register_posthook(node, PostHook{cell, has_number(node), outputs}), cell);
}

int visit_hooks(const TensorImpl* tensor, visitproc visit, void* arg) {
  const int status = for_all_cells(tensor, [&](const HookCell& cell) {
    Py_VISIT(cell.callable);
    return 0;
  });
  if (status || !tensor->autograd) return status;
  Node* node = tensor->autograd->grad_fn.get();
  if (node && node->use_count() == 1) Py_VISIT(context_of(node));
  return 0;
}

int visit_node_hooks(const Node& node, visitproc visit, void* arg) {
  return for_cells_of_node(node, [&](const HookCell& cell) {
    Py_VISIT(cell.callable);
    return 0;
  });
}

void clear_node_hooks(const Node& node) {
  std::vector<Owned> functions;
  for_cells_of_node(node, [&](HookCell& cell) {
    functions.emplace_back(std::exchange(cell.callable, nullptr));
    return 0;
  });
}

void clear_hooks(const TensorImpl* tensor) {
  std::vector<Owned> functions;  // dropping them may change the lists that are walked
  for_all_cells(tensor, [&](HookCell& cell) {
    functions.emplace_back(std::exchange(cell.callable, nullptr));
    return 0;
  });
}

bool add_hooks(PyObject* module) {
  static PyMethodDef methods[] = {{"remove", handle_remove, METH_NOARGS, "Takes the hook off."},
                                  {"__enter__", handle_enter, METH_NOARGS, nullptr},
                                  {"__exit__", handle_exit, METH_VARARGS, nullptr},
                                  {}};
  static PyGetSetDef attributes[] = {{"id", handle_id, nullptr, nullptr, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(handle_dealloc)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, attributes},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch.utils.hooks.RemovableHandle", sizeof(HandleObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  handle_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return handle_type &&
         PyModule_AddObjectRef(module, "_RemovableHandle", reinterpret_cast<PyObject*>(handle_type)) == 0;
}

}  // namespace mica::python
