// Inference mode, anomaly traces and callbacks of a backward pass: the C++ side of torch.autograd.
#include "autograd/graph_task.h"
#include "dispatch/passes.h"
#include "graph/hooks.h"
#include "graph/node_object.h"
#include "mica/func.h"
#include "modes/modes.h"
#include "operations/entry.h"

#include <structmember.h>

namespace mica::python {

// ---- modes

static constexpr uint32_t kGradientModes = mode_bit::kNoGrad | mode_bit::kInference;

// The bases of no_grad and enable_grad. Programs enter and leave them around every step of many loops, so that is not
// done in Python.
struct GradModeObject {
  PyObject_HEAD bool prev;  // the mode before the block was entered
};

// no_grad() is a context manager, no_grad(function) the function in one.
static PyObject* new_grad_mode(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  if (!kwargs && PyTuple_GET_SIZE(args) == 0) return type->tp_alloc(type, 0);
  PyObject* function = Py_None;
  static const char* names[] = {"orig_func", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &function)) return nullptr;
  if (function == Py_None) return type->tp_alloc(type, 0);
  Owned context(PyObject_CallNoArgs(reinterpret_cast<PyObject*>(type)));
  return context ? PyObject_CallOneArg(context.get(), function) : nullptr;
}

template <bool records>
static PyObject* enter_grad_mode(PyObject* self, PyObject*) {
  reinterpret_cast<GradModeObject*>(self)->prev = !(thread_modes & mode_bit::kNoGrad);
  set_modes(mode_bit::kNoGrad, !records);
  Py_RETURN_NONE;
}

static PyObject* exit_grad_mode(PyObject* self, PyObject* const*, Py_ssize_t) {
  set_modes(mode_bit::kNoGrad, !reinterpret_cast<GradModeObject*>(self)->prev);
  Py_RETURN_NONE;
}

// For copies and pickles: another context of the type, with the attributes that a program has set on this one.
static PyObject* reduce_grad_mode(PyObject* self, PyObject*) {
  Owned copyreg(PyImport_ImportModule("copyreg"));
  Owned make(copyreg ? PyObject_GetAttrString(copyreg.get(), "__newobj__") : nullptr);
  Owned attributes(make ? PyObject_GetAttrString(self, "__dict__") : nullptr);
  return attributes ? Py_BuildValue("O(O)O", make.get(), Py_TYPE(self), attributes.get()) : nullptr;
}

static void dealloc_grad_mode(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

static TensorVec tensors_of(PyObject* sequence) {
  Owned list(checked(PySequence_Fast(sequence, "expected a sequence of tensors")));
  TensorVec tensors;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(list.get(), i);
    MICA_CHECK_KIND(is_tensor(item), Type, "expected a sequence of tensors, got ", Py_TYPE(item)->tp_name);
    tensors.push_back(unwrap(item));
  }
  return tensors;
}

static PyObject* reaches_other_leaves(PyObject*, PyObject* args) try {
  PyObject *outputs, *leaves;
  if (!PyArg_UnpackTuple(args, "_reaches_other_leaves", 2, 2, &outputs, &leaves)) return nullptr;
  return PyBool_FromLong(func::reaches_other_leaves(tensors_of(outputs), tensors_of(leaves)));
} catch (...) {
  return raise_current_exception();
}

template <bool records>
static bool add_grad_mode(PyObject* module, const char* name) {
  static PyMethodDef methods[] = {{"__enter__", enter_grad_mode<records>, METH_NOARGS, nullptr},
                                  {"__exit__", as_cfunction(exit_grad_mode), METH_FASTCALL, nullptr},
                                  {"__reduce__", reduce_grad_mode, METH_NOARGS, nullptr},
                                  {}};
  static PyMemberDef members[] = {{"prev", T_BOOL, offsetof(GradModeObject, prev), 0, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_grad_mode)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(dealloc_grad_mode)},
                                {Py_tp_methods, methods},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {name, sizeof(GradModeObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  return add_type(module, &spec) != nullptr;
}

// Sets whether autograd records, whatever inference mode says. Returns the earlier setting.
static PyObject* exchange_grad_enabled(PyObject*, PyObject* on) {
  const int enabled = PyObject_IsTrue(on);
  if (enabled < 0) return nullptr;
  const bool before = !(thread_modes & mode_bit::kNoGrad);
  set_modes(mode_bit::kNoGrad, !enabled);
  return PyBool_FromLong(before);
}

// Returns the gradient modes that were set, for _leave_inference_mode.
static PyObject* enter_inference_mode(PyObject*, PyObject* on) {
  const uint32_t before = thread_modes & kGradientModes;
  const int enabled = PyObject_IsTrue(on);
  if (enabled < 0) return nullptr;
  set_modes(kGradientModes, enabled);
  return PyLong_FromUnsignedLong(before);
}

static PyObject* leave_inference_mode(PyObject*, PyObject* before) {
  const unsigned long modes = PyLong_AsUnsignedLong(before);
  if (PyErr_Occurred()) return nullptr;
  thread_modes = (thread_modes & ~kGradientModes) | (static_cast<uint32_t>(modes) & kGradientModes);
  Py_RETURN_NONE;
}

// ---- anomaly detection

std::string describe_python_stack() {
  Locked locked;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  std::string text;
  Owned module(PyImport_ImportModule("traceback"));
  Owned lines(module ? PyObject_CallMethod(module.get(), "format_stack", nullptr) : nullptr);
  Owned empty(PyUnicode_FromString(""));
  Owned joined(lines && empty ? PyUnicode_Join(empty.get(), lines.get()) : nullptr);
  if (const char* bytes = joined ? PyUnicode_AsUTF8(joined.get()) : nullptr) text = bytes;
  PyErr_Restore(type, value, traceback);
  return text;
}

// ---- the running pass

static PyObject* queue_callback(PyObject*, PyObject* callback) try {
  autograd::queue_callback([kept = keep(callback)] {
    Locked locked;
    Owned ignored(checked(PyObject_CallNoArgs(kept.get())));
  });
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* current_graph_task_id(PyObject*, PyObject*) {
  return PyLong_FromLongLong(autograd::current_graph_task());
}
static PyObject* asked_by_formula(PyObject*, PyObject*) { return PyBool_FromLong(dispatch::asked_by_formula); }
static PyObject* graph_tasks_begun(PyObject*, PyObject*) { return PyLong_FromLongLong(GraphTask::begun()); }
static PyObject* current_graph_task_is_selective(PyObject*, PyObject*) {
  const GraphTask* task = GraphTask::current();
  return PyBool_FromLong(task && task->selective());
}
static PyObject* current_graph_task_keeps_graph(PyObject*, PyObject*) {
  return PyBool_FromLong(autograd::current_graph_task_keeps_graph());
}
static PyObject* will_engine_execute_node(PyObject*, PyObject* node) try {
  if (!is_node(node))
    return PyErr_Format(PyExc_RuntimeError, "_will_engine_execute_node expects an grad_fn, but got %s",
                        Py_TYPE(node)->tp_name);
  GraphTask* task = GraphTask::current();
  MICA_CHECK(task, "_get_should_execute_nodes should only be called during the backward pass");
  return PyBool_FromLong(task->will_run(*node_of_object(node)));
} catch (...) {
  return raise_current_exception();
}
static PyObject* current_graph_task_execution_order(PyObject*, PyObject*) try {
  const GraphTask* task = GraphTask::current();
  MICA_CHECK(task, "_current_graph_task_execution_order should only be called during the backward pass");
  Owned list(checked(PyList_New(0)));
  for (Node* node : task->execution_order()) {
    Owned object(checked(node_object(node)));
    if (PyList_Append(list.get(), object.get()) < 0) return nullptr;
  }
  return list.release();
} catch (...) {
  return raise_current_exception();
}
static PyObject* current_autograd_node(PyObject*, PyObject*) { return node_object(autograd::current_node()); }

static PyObject* increment_version(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor))
    return PyErr_Format(PyExc_TypeError, "increment_version expects a Tensor, but got %s", Py_TYPE(tensor)->tp_name);
  MICA_CHECK(!unwrap(tensor).is_inference(),
             "increment_version is not supported on inference tensors: they do not track versions");
  mark_changed(unwrap(tensor));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* set_version(PyObject*, PyObject* args) try {
  PyObject* tensor;
  long long version;
  if (!PyArg_ParseTuple(args, "OL", &tensor, &version)) return nullptr;
  if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "expected a Tensor, not %s", Py_TYPE(tensor)->tp_name);
  MICA_CHECK(version >= 0, "Cannot set a version_counter to a value below 0: ", version);
  TensorImpl* impl = unwrap(tensor).impl();
  MICA_CHECK(impl->storage && !impl->own_version(),
             "the version of a tensor that counts its versions apart from its memory (x.data) cannot be set");
  impl->storage->set_version(static_cast<uint32_t>(version));
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// Holds a node. The object of a custom function's node does not hold it.
static PyObject* ownership_token(Node* node) {
  return PyCapsule_New(new Ref<Node>(node), "mica.node", [](PyObject* capsule) {
    delete static_cast<Ref<Node>*>(PyCapsule_GetPointer(capsule, "mica.node"));
  });
}

// The node and number to which a gradient of the tensor flows, and an object that keeps the node alive. (None, 0, None)
// if there is none.
static PyObject* gradient_edge_of(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "expected a Tensor, not %s", Py_TYPE(tensor)->tp_name);
  const Edge edge = gradient_edge(unwrap(tensor));
  Owned node(checked(node_object(edge.function.get())));
  const bool custom = edge.function && context_of(edge.function.get());
  Owned token(custom ? checked(ownership_token(edge.function.get())) : Py_NewRef(Py_None));
  return Py_BuildValue("(OIO)", node.get(), edge.input_nr, token.get());
} catch (...) {
  return raise_current_exception();
}

bool add_autograd_modes(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_exchange_grad_enabled", exchange_grad_enabled, METH_O, nullptr},
      {"_enter_inference_mode", enter_inference_mode, METH_O, nullptr},
      {"_leave_inference_mode", leave_inference_mode, METH_O, nullptr},
      {"_queue_callback", queue_callback, METH_O, "Calls back when the running backward pass has ended."},
      {"_current_graph_task_id", current_graph_task_id, METH_NOARGS, "The running backward pass, or -1."},
      {"_current_graph_task_is_selective", current_graph_task_is_selective, METH_NOARGS,
       "Whether the running pass computes the gradients of some tensors only."},
      {"_current_graph_task_keeps_graph", current_graph_task_keeps_graph, METH_NOARGS, nullptr},
      {"_will_engine_execute_node", will_engine_execute_node, METH_O,
       "Whether the running pass comes, or came, to a node."},
      {"_asked_by_formula", asked_by_formula, METH_NOARGS, "Whether a derivative called what a mode was asked last."},
      {"_graph_tasks_begun", graph_tasks_begun, METH_NOARGS, "How many backward passes this thread has begun."},
      {"_graph_task_order", current_graph_task_execution_order, METH_NOARGS,
       "The roots of the running pass and the nodes that have yet to run, in the order in which they run."},
      {"_set_version", set_version, METH_VARARGS, "_set_version(tensor, version)"},
      {"_current_autograd_node", current_autograd_node, METH_NOARGS, "The node being evaluated, or None."},
      {"_increment_version", increment_version, METH_O, nullptr},
      {"_gradient_edge", gradient_edge_of, METH_O, nullptr},
      {"_reaches_other_leaves", reaches_other_leaves, METH_VARARGS,
       "Whether outputs depend on tensors that require grad beside the given leaves."},
      {}};
  describe_forward_call = describe_python_stack;
  return PyModule_AddFunctions(module, functions) == 0 && add_grad_mode<false>(module, "mica._C._NoGrad") &&
         add_grad_mode<true>(module, "mica._C._EnableGrad");
}

}  // namespace mica::python
