// torch.autograd.Function: functions whose forward and backward are written in Python.
//
// A call makes a context, an object of the class that Python derives from _FunctionBase for each function, and a node
// that owns it. The context is also what x.grad_fn shows.
#include <algorithm>
#include <cstddef>
#include <string_view>

#include "graph/function_node.h"
#include "graph/hooks.h"
#include "arguments/torch_function.h"
#include "mica/custom_function.h"
#include "mica/ops.h"
#include "operations/entry.h"

#include <structmember.h>

namespace mica::python {

PyTypeObject* function_base;
PyObject* name_function;
static PyObject *name_forward, *name_setup_context, *name_context_class, *name_bind, *name_bind_keywords;

// ---- the call

static void tensors_of(PyObject* tuple, const char* method, TensorVec& list) {
  if (!tuple) return;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    MICA_CHECK_KIND(item == Py_None || is_tensor(item), Type, method, " can only save variables, but argument ", i,
                    " is of type ", Py_TYPE(item)->tp_name);
    list.push_back(item == Py_None ? Tensor() : unwrap(item));
  }
}

static bool overrides(PyObject* function, PyObject* name) {
  Owned own(checked(PyObject_GetAttr(function, name)));
  Owned inherited(checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(function_base), name)));
  return own.get() != inherited.get();
}

// The number of custom functions whose forward the thread is in.
static thread_local int forwards = 0;

namespace {
struct OneForwardMore {
  OneForwardMore() { ++forwards; }
  OneForwardMore(const OneForwardMore&) = delete;
  OneForwardMore& operator=(const OneForwardMore&) = delete;
  ~OneForwardMore() { --forwards; }
};
}  // namespace

static PyObject* forward_is_running(PyObject*, PyObject*) { return PyBool_FromLong(forwards > 0); }

// Calls forward, which runs without recording.
static Owned call_forward(PyObject* function, PyObject* context, PyObject* args) {
  NoGradGuard no_grad;
  Owned forward(checked(PyObject_GetAttr(function, name_forward)));
  if (overrides(function, name_setup_context)) {
    Owned output(checked(PyObject_Call(forward.get(), args, nullptr)));
    Owned setup(checked(PyObject_GetAttr(function, name_setup_context)));
    PyObject* call[] = {context, args, output.get()};
    Owned ignored(checked(PyObject_Vectorcall(setup.get(), call, 3, nullptr)));
    return output;
  }
  std::vector<PyObject*> call = {context};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) call.push_back(PyTuple_GET_ITEM(args, i));
  return Owned(checked(PyObject_Vectorcall(forward.get(), call.data(), call.size(), nullptr)));
}

// Arguments that forward returns as they are come back as views. Where modes see calls, the views are calls like
// others.
static void show_views(PyObject* returned, const TensorVec& inputs, const CustomForward& forward, TensorVec& outputs) {
  NoGradGuard no_grad;
  const auto is_in = [](const TensorVec& tensors, const Tensor& t) {
    return std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& each) { return each.is_same(t); });
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    if (!output.defined() || !is_in(inputs, output)) continue;
    if (is_in(forward.dirty, output) || is_in(forward.non_differentiable, output)) continue;
    PyObject* item = PyTuple_GET_ITEM(returned, static_cast<Py_ssize_t>(i));
    const Owned view(checked(PyObject_CallMethod(item, "view_as", "O", item)));
    if (is_tensor(view.get())) outputs[i] = unwrap(view.get());
  }
}

// Gives outputs their history. An output that is not a tensor stays as it is.
static Owned finish(ContextObject* context, const Ref<PythonFunctionNode>& node, bool needs, const TensorVec& inputs,
                    PyObject* result) {
  Owned returned = as_tuple(result);
  const Py_ssize_t count = PyTuple_GET_SIZE(returned.get());
  TensorVec outputs;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PyTuple_GET_ITEM(returned.get(), i);
    outputs.push_back(is_tensor(item) ? unwrap(item) : Tensor());
  }
  CustomForward forward;
  tensors_of(context->dirty, "mark_dirty", forward.dirty);
  tensors_of(context->non_differentiable, "mark_non_differentiable", forward.non_differentiable);
  for (size_t i = 0; i < outputs.size(); ++i)
    for (const Tensor& t : forward.non_differentiable)
      if (outputs[i].defined() && outputs[i].is_same(t)) node->without_grad.push_back(i);
  if (thread_modes & mode_bit::kFunctionMode) [[unlikely]]
    show_views(returned.get(), inputs, forward, outputs);
  const TensorVec given = outputs;
  if (needs) {
    Owned function(checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(&context->base)), name_function)));
    Owned has_jvp(checked(PyObject_GetAttrString(function.get(), "_has_jvp")));
    if (has_jvp.get() == Py_True) node->relate(outputs, inputs, forward.dirty);
  }
  outputs = attach_custom_outputs(needs ? Ref<Node>(node.get()) : Ref<Node>(), inputs, std::move(outputs), forward);
  if (needs) {
    node->materialize_grads = context->materialize_grads;
    TensorVec saved;
    tensors_of(context->to_save, "save_for_backward", saved);
    node->save_tensors(saved, outputs);
  }
  Owned tuple(checked(PyTuple_New(count)));
  for (Py_ssize_t i = 0; i < count; ++i) {
    Tensor& output = outputs[static_cast<size_t>(i)];
    if (!needs && output.defined() && !output.is_same(given[static_cast<size_t>(i)])) {
      // An argument that forward returns as it is comes back as a view. Its class makes the view, if it answers for
      // that.
      PyObject* returned_item = PyTuple_GET_ITEM(returned.get(), i);
      if (overrides_torch_function(returned_item)) {
        NoGradGuard no_grad;
        PyTuple_SET_ITEM(tuple.get(), i, checked(PyObject_CallMethod(returned_item, "view_as", "O", returned_item)));
        continue;
      }
    }
    const bool tracked = needs && output.defined();  // the context may refer to its output, which makes a cycle
    PyObject* item =
        output.defined() ? checked(wrap(std::move(output))) : Py_NewRef(PyTuple_GET_ITEM(returned.get(), i));
    if (tracked) track(item);
    PyTuple_SET_ITEM(tuple.get(), i, item);
  }
  if (PyTuple_Check(result)) return tuple;
  return Owned::borrow(PyTuple_GET_ITEM(tuple.get(), 0));
}

// Clears what a call was told about its tensors when it ends, even by an error: an output may lead back to the context.
struct LetGo {
  ContextObject* context;
  ~LetGo() {
    Py_CLEAR(context->to_save);
    Py_CLEAR(context->dirty);
    Py_CLEAR(context->non_differentiable);
  }
};

// Function._apply(*args): a class method.
static PyObject* apply_plain(PyObject* function, PyObject* positional, PyObject* kwargs) try {
  Owned args = Owned::borrow(positional);
  // Keywords and defaults are filled in by Python, so that every argument has a position.
  Owned bind(checked(PyObject_GetAttr(function, name_bind)));
  if (bind.get() != Py_None) {
    Owned names(kwargs ? Py_NewRef(kwargs) : checked(PyDict_New()));
    PyObject* call[] = {positional, names.get()};
    args = Owned(checked(PyObject_Vectorcall(bind.get(), call, 2, nullptr)));
  } else if (kwargs && PyDict_GET_SIZE(kwargs) > 0) {
    Owned by_name(checked(PyObject_GetAttr(function, name_bind_keywords)));
    PyObject* call[] = {positional, kwargs};
    args = Owned(checked(PyObject_Vectorcall(by_name.get(), call, 2, nullptr)));
  }
  Owned context_class(checked(PyObject_GetAttr(function, name_context_class)));
  Owned context(checked(PyObject_CallNoArgs(context_class.get())));
  auto node = Ref<PythonFunctionNode>::adopt(new PythonFunctionNode(context.get()));

  TensorVec inputs;
  const Py_ssize_t count = PyTuple_GET_SIZE(args.get());
  Owned needs_input_grad(checked(PyTuple_New(count)));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* argument = PyTuple_GET_ITEM(args.get(), i);
    const bool tensor = is_tensor(argument);
    node->is_tensor.push_back(tensor);
    if (tensor) inputs.push_back(unwrap(argument));
    PyTuple_SET_ITEM(needs_input_grad.get(), i, PyBool_FromLong(tensor && unwrap(argument).requires_grad()));
  }
  const bool needs = compute_requires_grad(TensorList(inputs));
  node->next_edges.reserve(inputs.size());
  for (const Tensor& t : inputs) node->next_edges.push_back(needs ? gradient_edge(t) : Edge{});
  ContextObject* c = as_context(context.get());
  Py_XSETREF(c->needs_input_grad, needs_input_grad.release());

  const LetGo let_go{c};
  const OneForwardMore inside;
  Owned result = call_forward(function, context.get(), args.get());
  Owned output = finish(c, node, needs, inputs, result.get());
  return output.release();
} catch (...) {
  return raise_current_exception();
}

// ---- the context

static PyObject* context_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  new (&as_context(self)->base.owned) Ref<Node>();
  as_context(self)->materialize_grads = as_context(self)->materialize_non_diff_grads = true;
  return self;
}

static int context_clear(PyObject* self) {
  ContextObject* c = as_context(self);
  Py_CLEAR(c->to_save);
  Py_CLEAR(c->dirty);
  Py_CLEAR(c->non_differentiable);
  Py_CLEAR(c->needs_input_grad);
  return 0;
}

static void context_dealloc(PyObject* self) {
  context_clear(self);
  node_dealloc(self);
}

template <PyObject* ContextObject::*Field>
static PyObject* keep_arguments(PyObject* self, PyObject* args) {
  Py_XSETREF(as_context(self)->*Field, Py_NewRef(args));
  Py_RETURN_NONE;
}

static PyObject* set_materialize_grads(PyObject* self, PyObject* value) {
  const int on = PyObject_IsTrue(value);
  if (on < 0) return nullptr;
  as_context(self)->materialize_grads = on;
  Py_RETURN_NONE;
}

// Whether the function drops its saved tensors once its backward has read them.
static bool clears_on_access(PyObject* self) {
  Owned function(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(self)), name_function));
  Owned wish(function ? PyObject_GetAttrString(function.get(), "clear_saved_tensors_on_access") : nullptr);
  PyErr_Clear();
  return wish && PyObject_IsTrue(wish.get()) == 1;
}

static PyObject* get_saved_tensors(PyObject* self, void*) try {
  auto* node = static_cast<PythonFunctionNode*>(as_context(self)->base.node);
  if (!node) return PyTuple_New(0);
  if (as_context(self)->in_jvp) {
    Owned kept(PyObject_GetAttrString(self, "saved_for_forward"));
    if (kept) return kept.release();
    PyErr_Clear();
    return PyTuple_New(0);
  }
  const bool once = clears_on_access(self);
  MICA_CHECK(!(once && as_context(self)->saved_were_read),
             "saved_tensors can only be accessed once when clear_saved_tensors_on_access=True is set on the "
             "autograd.Function. Either access saved_tensors only once, or set clear_saved_tensors_on_access=False.");
  Owned saved(checked(to_python(node->saved_tensors())));
  if (once) {
    as_context(self)->saved_were_read = true;
    node->release_saved();
  }
  return saved.release();
} catch (...) {
  return raise_current_exception();
}

static PyObject* get_raw_saved_tensors(PyObject* self, void*) try {
  auto* node = static_cast<PythonFunctionNode*>(as_context(self)->base.node);
  if (!node) return PyTuple_New(0);
  std::vector<SavedTensor>& saved = node->raw_saved_tensors();
  Owned tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(saved.size()))));
  for (size_t i = 0; i < saved.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), checked(saved_tensor_object(*node, &saved[i])));
  return tuple.release();
} catch (...) {
  return raise_current_exception();
}

static PyObject* get_saved_variables(PyObject* self, void* closure) {
  if (PyErr_WarnEx(PyExc_DeprecationWarning, "'saved_variables' is deprecated; use 'saved_tensors'", 1) < 0)
    return nullptr;
  return get_saved_tensors(self, closure);
}

// ---- what a function leaves out

static PyObject* no_forward(PyObject*, PyObject*) {
  return PyErr_Format(PyExc_NotImplementedError,
                      "You must implement the forward function for custom autograd.Function.");
}
static PyObject* no_setup_context(PyObject*, PyObject*) {
  return PyErr_Format(PyExc_NotImplementedError, "setup_context is not implemented.");
}
static PyObject* no_backward(PyObject*, PyObject*) {
  return PyErr_Format(PyExc_NotImplementedError,
                      "You must implement either the backward or vjp method for your custom autograd.Function to use "
                      "it with backward mode AD.");
}
static PyObject* no_vjp(PyObject*, PyObject*) { return no_backward(nullptr, nullptr); }

// Called instead, with the class first, once a program uses vmap. Examples need the function's own rule, even through
// an `apply` that was taken from its class before.
static PyObject* apply_on_examples = nullptr;

static PyObject* hook_apply(PyObject*, PyObject* hook) {
  Py_XSETREF(apply_on_examples, Py_NewRef(hook));
  Py_RETURN_NONE;
}

// The number of transforms of torch.func that the thread is in. What a function computes belongs to the transform
// outside of it.
static thread_local int transforms = 0;

namespace {
class OneTransformLess {
 public:
  OneTransformLess() : before_(transforms) { transforms = std::max(0, transforms - 1); }
  OneTransformLess(const OneTransformLess&) = delete;
  OneTransformLess& operator=(const OneTransformLess&) = delete;
  ~OneTransformLess() { transforms = before_; }

 private:
  int before_;
};
}  // namespace

static PyObject* enter_transform(PyObject*, PyObject* step) {
  const long by = PyLong_AsLong(step);
  if (by == -1 && PyErr_Occurred()) return nullptr;
  transforms = std::max(0, transforms + static_cast<int>(by));
  Py_RETURN_NONE;
}

bool called_within_transform() {
  if (transforms == 0) [[likely]]
    return false;
  PyObject* globals = PyEval_GetGlobals();
  PyObject* name = globals ? PyDict_GetItemString(globals, "__name__") : nullptr;
  const char* text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  const std::string_view module = text ? text : "", package = module.substr(0, module.find('.'));
  return package != "mica" && package != "torch";  // the name that Mica's modules have where torch is Mica
}

static PyObject* transforms_active(PyObject*, PyObject*) { return PyBool_FromLong(transforms > 0); }

static bool is_transformable(PyObject* function) {
  Owned answer(PyObject_GetAttrString(function, "_is_transformable"));
  if (answer && answer.get() != Py_False) return true;
  if (!PyErr_Occurred())
    PyErr_SetString(PyExc_RuntimeError,
                    "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it "
                    "must override the setup_context staticmethod. For more details, please see "
                    "https://pytorch.org/docs/main/notes/extending.func.html");
  return false;
}

// Function.apply(*args): a class method.
static PyObject* apply(PyObject* function, PyObject* positional, PyObject* kwargs) {
  if (transforms > 0 && !is_transformable(function)) [[unlikely]]
    return nullptr;
  const OneTransformLess outside;
  if (!apply_on_examples) return apply_plain(function, positional, kwargs);
  Owned first(PyTuple_Pack(1, function));
  Owned all(first ? PySequence_Concat(first.get(), positional) : nullptr);
  return all ? PyObject_Call(apply_on_examples, all.get(), kwargs) : nullptr;
}

static PyMethodDef transform_functions[] = {
    {"_enter_transform", enter_transform, METH_O, nullptr},
    {"_exchange_pushing_tangents", exchange_pushing, METH_O, nullptr},
    {"_forward_of_function_is_running", forward_is_running, METH_NOARGS, nullptr},
    {"_are_functorch_transforms_active", transforms_active, METH_NOARGS, nullptr},
    {}};

bool add_function(PyObject* module) {
  name_forward = PyUnicode_InternFromString("forward");
  name_setup_context = PyUnicode_InternFromString("setup_context");
  name_context_class = PyUnicode_InternFromString("_backward_cls");
  name_function = PyUnicode_InternFromString("_forward_cls");
  name_bind = PyUnicode_InternFromString("_bind_arguments");
  name_bind_keywords = PyUnicode_InternFromString("_bind_keywords");
  static PyMethodDef methods[] = {
      {"apply", as_cfunction(apply), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
       "Calls forward, and records the call if an argument requires grad."},
      {"_apply", as_cfunction(apply_plain), METH_VARARGS | METH_KEYWORDS | METH_CLASS, nullptr},
      {"_hook_apply", hook_apply, METH_O | METH_STATIC, nullptr},
      {"save_for_backward", keep_arguments<&ContextObject::to_save>, METH_VARARGS,
       "Keeps tensors for backward, where ctx.saved_tensors gives them back."},
      {"mark_dirty", keep_arguments<&ContextObject::dirty>, METH_VARARGS, "Names the inputs that forward changed."},
      {"mark_non_differentiable", keep_arguments<&ContextObject::non_differentiable>, METH_VARARGS,
       "Names the outputs that have no gradient."},
      {"set_materialize_grads", set_materialize_grads, METH_O,
       "Whether missing gradients reach backward as zeros (True) or as None."},
      {"forward", no_forward, METH_VARARGS | METH_STATIC, "forward(ctx, *args), or forward(*args) with setup_context."},
      {"setup_context", no_setup_context, METH_VARARGS | METH_STATIC, "setup_context(ctx, inputs, output)"},
      {"backward", no_backward, METH_VARARGS | METH_STATIC,
       "backward(ctx, *grad_outputs): a gradient, or None, for each argument of forward."},
      {"vjp", no_vjp, METH_VARARGS | METH_STATIC, "Another name for backward."},
      {}};
  static PyGetSetDef attributes[] = {
      {"saved_tensors", get_saved_tensors, nullptr, "What save_for_backward was given.", nullptr},
      {"saved_variables", get_saved_variables, nullptr, nullptr, nullptr},
      {"_raw_saved_tensors", get_raw_saved_tensors, nullptr, nullptr, nullptr},
      {}};
  static PyMemberDef members[] = {
      {"needs_input_grad", T_OBJECT, offsetof(ContextObject, needs_input_grad), 0,
       "For each argument of forward, whether its gradient is wanted."},
      {"to_save", T_OBJECT, offsetof(ContextObject, to_save), READONLY, nullptr},
      {"dirty_tensors", T_OBJECT, offsetof(ContextObject, dirty), READONLY, nullptr},
      {"non_differentiable", T_OBJECT, offsetof(ContextObject, non_differentiable), READONLY, nullptr},
      {"materialize_grads", T_BOOL, offsetof(ContextObject, materialize_grads), READONLY, nullptr},
      {"_in_jvp", T_BOOL, offsetof(ContextObject, in_jvp), 0, nullptr},
      {"_materialize_non_diff_grads", T_BOOL, offsetof(ContextObject, materialize_non_diff_grads), 0, nullptr},
      {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(context_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(context_dealloc)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, attributes},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch._C._FunctionBase", sizeof(ContextObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  function_base =
      reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(node_type)));
  return function_base && PyModule_AddFunctions(module, transform_functions) == 0 &&
         PyModule_AddObjectRef(module, "_FunctionBase", reinterpret_cast<PyObject*>(function_base)) == 0;
}

}  // namespace mica::python
