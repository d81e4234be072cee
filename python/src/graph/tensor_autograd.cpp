// Tensor's methods that have to do with gradients, and the functions behind torch.autograd.
#include "graph/tensor_autograd.h"

#include "arguments/torch_function.h"
#include "autograd/metadata.h"
#include "graph/function_node.h"
#include "graph/hooks.h"
#include "graph/node_object.h"
#include "mica/core/grad_mode.h"
#include "mica/warning.h"
#include "modes/dispatch_modes.h"
#include "operations/by_hand.h"

namespace mica::python {

void warn_of_number(const Tensor& x) {
  if (x.requires_grad() && grad_enabled()) [[unlikely]]
    MICA_WARN_ONCE(
        "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
        "Consider using tensor.detach() first.");
}

// A backward pass runs without the interpreter lock; Python hooks take it for themselves.
MICA_METHOD(backward) {
  static constexpr SignatureText texts[] = {
      {kMethod,
       "Tensor self, Tensor? gradient=None, bool? retain_graph=None, bool create_graph=False, "
       "Tensor[]? inputs=None"},
      {kMethod | kHidden,
       "Tensor self, Tensor? gradient=None, bool? retain_graph=None, bool create_graph=False, "
       "Tensor? inputs=None"}};
  static constinit Parser parser("backward", texts);
  Arguments a;
  const int overload = parser.parse(a, self, args, nargs, kwnames);
  if (overload < 0) return a.result;
  const Tensor &x = a.tensor(0), &gradient = a.tensor(1);
  const auto retain_graph = a.optional_flag(2);
  const bool create_graph = a.flag(3);
  std::vector<Tensor> inputs;
  if (a.has(4)) inputs = overload == 0 ? a.tensors(4) : std::vector<Tensor>{a.tensor(4)};
  MICA_CHECK(!a.has(4) || !inputs.empty(), "'inputs' argument to backward cannot be empty.");
  const ClassPass classes({x});
  Unlocked unlocked(true);
  x.backward(gradient, retain_graph, create_graph, inputs);
  unlocked.lock();
  Py_RETURN_NONE;
}
MICA_ENTRY_END

MICA_METHOD(requires_grad_) {
  static constexpr SignatureText texts[] = {{kMethod, "Tensor self, bool requires_grad=True"}};
  static constinit Parser parser("requires_grad_", texts);
  // Checked before overrides are asked: an example under vmap is refused too.
  MICA_CHECK(
      !called_within_transform(),
      "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) "
      "inside of a function being transformed by a functorch transform. This is unsupported, please attempt to "
      "use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call requires_grad_() outside of "
      "a function being transformed instead.");
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  a.tensor(0).requires_grad_(a.flag(1));
  return Py_NewRef(self);
}
MICA_ENTRY_END

static PyObject* register_hook(PyObject* self, PyObject* hook) try {
  if (PyObject* answer = nullptr; is_answered(self, "register_hook", answer, &hook, 1)) return answer;
  MICA_CHECK(unwrap(self).requires_grad(), "cannot register a hook on a tensor that doesn't require gradient");
  PyObject* handle = add_gradient_hook(unwrap(self), hook);
  track(self);
  return handle;
} catch (...) {
  return raise_current_exception();
}

static PyObject* register_post_accumulate_grad_hook(PyObject* self, PyObject* hook) try {
  if (PyObject* answer = nullptr; is_answered(self, "register_post_accumulate_grad_hook", answer, &hook, 1))
    return answer;
  PyObject* handle = add_post_accumulate_hook(unwrap(self), hook);
  track(self);
  return handle;
} catch (...) {
  return raise_current_exception();
}

static PyObject* retain_grad(PyObject* self, PyObject*) try {
  if (PyObject* answer = nullptr; is_answered(self, "retain_grad", answer)) return answer;
  MICA_CHECK(!called_within_transform(),
             "You are attempting to call Tensor.retain_grad() inside of a function being transformed by a functorch "
             "transform. This is unsupported, please attempt to use the functorch transforms (e.g. grad, vjp, jacrev, "
             "jacfwd, hessian) or call retain_grad() outside of a function being transformed instead.");
  unwrap(self).retain_grad();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* detach_(PyObject* self, PyObject*) try {
  if (PyObject* answer = nullptr; is_answered(self, "detach_", answer)) return answer;
  autograd::detach_in_place(unwrap(self));
  return Py_NewRef(self);
} catch (...) {
  return raise_current_exception();
}

PyMethodDef tensor_autograd_methods[] = {
    {"backward", as_cfunction(backward), METH_FASTCALL | METH_KEYWORDS,
     "Computes the gradients of this tensor with respect to the leaves of its graph, and adds them to their grad."},
    {"requires_grad_", as_cfunction(requires_grad_), METH_FASTCALL | METH_KEYWORDS,
     "Says whether autograd records operations on this tensor."},
    {"register_hook", register_hook, METH_O,
     "Calls hook(grad) when the gradient of this tensor is known; it may return another one."},
    {"register_post_accumulate_grad_hook", register_post_accumulate_grad_hook, METH_O,
     "Calls hook(self) after a gradient was added to this leaf's grad."},
    {"retain_grad", retain_grad, METH_NOARGS, "Has a tensor that is no leaf keep its gradient."},
    {"detach_", detach_, METH_NOARGS, "Takes the tensor out of its graph, in place."},
    {}};

// ---- torch.autograd

// Tensors given as one or as a sequence; None within stands for an undefined one.
static std::vector<Tensor> tensor_list(PyObject* o, const char* what) {
  std::vector<Tensor> list;
  if (o == Py_None) return list;
  if (is_tensor(o)) return {unwrap(o)};
  Owned items(PySequence_Fast(o, cat(what, " must be a Tensor or a sequence of Tensors").c_str()));
  if (!items) throw PythonError();
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    MICA_CHECK_KIND(item == Py_None || is_tensor(item), Type, "element ", i, " of ", what, " must be Tensor, not ",
                    Py_TYPE(item)->tp_name);
    list.push_back(item == Py_None ? Tensor() : unwrap(item));
  }
  return list;
}

static std::optional<bool> optional_bool(PyObject* o) {
  if (o == Py_None) return std::nullopt;
  return PyObject_IsTrue(o) != 0;
}

// The tensors or gradient edges that a pass starts from or ends at. Python gives edges as (node, number) tuples.
struct Ends {
  std::vector<Tensor> tensors;
  std::vector<Edge> edges;  // used if any edge was given as such
  bool as_edges = false;
};

static bool is_edge(PyObject* o) {
  return PyTuple_Check(o) && PyTuple_GET_SIZE(o) >= 2 && is_node(PyTuple_GET_ITEM(o, 0)) &&
         PyLong_Check(PyTuple_GET_ITEM(o, 1));
}

static Ends ends_from_object(PyObject* o, const char* what) {
  Ends ends;
  Owned items(is_edge(o) ? PyTuple_Pack(1, o) : Py_NewRef(o));
  if (PySequence_Check(items.get()) && !is_tensor(items.get())) {
    items = Owned(checked(PySequence_Fast(items.get(), "")));
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
      ends.as_edges = ends.as_edges || is_edge(PySequence_Fast_GET_ITEM(items.get(), i));
  }
  if (!ends.as_edges) {
    ends.tensors = tensor_list(items.get(), what);
    return ends;
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(items.get(), i);
    if (is_edge(item)) {
      const auto number = static_cast<uint32_t>(PyLong_AsUnsignedLong(PyTuple_GET_ITEM(item, 1)));
      if (PyErr_Occurred()) throw PythonError();
      ends.edges.push_back({Ref<Node>(node_of_object(PyTuple_GET_ITEM(item, 0))), number});
    } else {
      MICA_CHECK_KIND(is_tensor(item), Type, "element ", i, " of ", what, " must be Tensor or GradientEdge, not ",
                      Py_TYPE(item)->tp_name);
      ends.edges.push_back(gradient_edge(unwrap(item)));
      MICA_CHECK(ends.edges.back().function, "element ", i, " of ", what, " does not require grad");
    }
  }
  return ends;
}

static std::vector<Edge> edges_of(const Ends& ends) {
  if (ends.as_edges) return ends.edges;
  std::vector<Edge> edges;
  for (size_t i = 0; i < ends.tensors.size(); ++i) {
    edges.push_back(gradient_edge(ends.tensors[i]));
    MICA_CHECK(edges.back().function, "element ", i, " of tensors does not require grad and does not have a grad_fn");
  }
  return edges;
}

// The gradients with which a pass from edges starts: those given, or one for a scalar.
static std::vector<Tensor> gradients_at(const std::vector<Edge>& roots, std::vector<Tensor> given) {
  MICA_CHECK(given.empty() || given.size() == roots.size(), "got ", roots.size(), " tensors and ", given.size(),
             " gradients");
  given.resize(roots.size());
  for (size_t i = 0; i < roots.size(); ++i) {
    const InputMetadata& about = roots[i].function->inputs[roots[i].input_nr];
    if (given[i].defined()) {
      MICA_CHECK(given[i].sizes() == about.sizes.ref(), "Mismatch in shape: grad_output[", i,
                 "] has a shape of torch.Size(", given[i].sizes(), ") and output[", i, "] has a shape of torch.Size(",
                 about.sizes.ref(), ").");
      MICA_CHECK(about.dtype == kAnyDType || is_complex(given[i].dtype()) == is_complex(about.dtype),
                 "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
                 "dtype: grad_output[",
                 i, "] has a dtype of ", given[i].dtype(), " and output[", i, "] has a dtype of ", about.dtype, ".");
      continue;
    }
    MICA_CHECK(count_of(about.sizes) == 1, "grad can be implicitly created only for scalar outputs");
    const TensorOptions options = about.dtype == kAnyDType ? TensorOptions() : TensorOptions(about.dtype);
    given[i] = mica::ones(about.sizes, options.device(about.device));
  }
  return given;
}

static PyObject* autograd_backward(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"tensors", "grad_tensors", "retain_graph", "create_graph", "inputs", nullptr};
  PyObject *tensors, *grads = Py_None, *retain = Py_None, *inputs = Py_None;
  int create_graph = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOpO:backward", const_cast<char**>(names), &tensors, &grads,
                                   &retain, &create_graph, &inputs))
    return nullptr;
  const Ends roots = ends_from_object(tensors, "tensors"), leaves = ends_from_object(inputs, "inputs");
  auto root_grads = tensor_list(grads, "grad_tensors");
  MICA_CHECK(inputs == Py_None || !leaves.tensors.empty() || !leaves.edges.empty(),
             "`inputs` argument to `backward()` cannot be empty.");
  const auto retain_graph = optional_bool(retain);
  const ClassPass classes(roots.tensors, roots.edges);
  Unlocked unlocked(true);
  if (roots.as_edges || leaves.as_edges) {
    const auto from = edges_of(roots);
    run_backward(from, gradients_at(from, std::move(root_grads)), retain_graph.value_or(create_graph), create_graph,
                 edges_of(leaves), true, true);
  } else {
    autograd::backward(roots.tensors, root_grads, retain_graph, create_graph, leaves.tensors);
  }
  unlocked.lock();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* autograd_grad(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"outputs",      "inputs",       "grad_outputs", "retain_graph",
                                "create_graph", "allow_unused", nullptr};
  PyObject *outputs, *inputs, *grads = Py_None, *retain = Py_None, *allow_unused = Py_None;
  int create_graph = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|OOpO:grad", const_cast<char**>(names), &outputs, &inputs, &grads,
                                   &retain, &create_graph, &allow_unused))
    return nullptr;
  const Ends roots = ends_from_object(outputs, "outputs"), leaves = ends_from_object(inputs, "inputs");
  auto root_grads = tensor_list(grads, "grad_outputs");
  const auto retain_graph = optional_bool(retain);
  const bool unused = optional_bool(allow_unused).value_or(false);
  const ClassPass classes(roots.tensors, roots.edges);
  Unlocked unlocked(true);
  std::vector<Tensor> result;
  if (roots.as_edges || leaves.as_edges) {
    const auto from = edges_of(roots);
    result = run_backward(from, gradients_at(from, std::move(root_grads)), retain_graph.value_or(create_graph),
                          create_graph, edges_of(leaves), unused, false);
  } else {
    result = autograd::grad(roots.tensors, leaves.tensors, root_grads, retain_graph, create_graph, unused);
  }
  unlocked.lock();
  return to_python(std::move(result));
} catch (...) {
  return raise_current_exception();
}

// A pass on another thread needs the lock that this one may hold while it waits.
static void* leave_interpreter() { return PyGILState_Check() ? PyEval_SaveThread() : nullptr; }
static void enter_interpreter(void* state) {
  if (state) PyEval_RestoreThread(static_cast<PyThreadState*>(state));
}

bool add_autograd(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_autograd_backward", as_cfunction(autograd_backward), METH_VARARGS | METH_KEYWORDS,
       "backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, inputs=None)"},
      {"_autograd_grad", as_cfunction(autograd_grad), METH_VARARGS | METH_KEYWORDS,
       "grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, allow_unused=None)"},
      {}};
  autograd::set_wait_hooks(leave_interpreter, enter_interpreter);
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
