// torch.autograd.Function: functions whose forward and backward are written in Python.
//
// A call makes a context, an object of the class that Python derives from _FunctionBase for each function, and a node
// that owns it. The context is also what x.grad_fn shows.
#include <cstddef>

#include "graph/hooks.h"
#include "graph/node_object.h"
#include "mica/custom_function.h"
#include "operations/entry.h"

#include <structmember.h>

namespace mica::python {

struct ContextObject {
  NodeObject base;
  PyObject* to_save;             // given to save_for_backward; gone when the call has ended
  PyObject* dirty;               // given to mark_dirty
  PyObject* non_differentiable;  // given to mark_non_differentiable
  PyObject* needs_input_grad;    // a tuple of bools, one for each argument
  bool materialize_grads;
};
static PyTypeObject* function_base;
static PyObject *name_forward, *name_backward, *name_vjp, *name_setup_context, *name_context_class, *name_function,
    *name_bind, *name_bind_keywords;

static ContextObject* as_context(PyObject* o) { return reinterpret_cast<ContextObject*>(o); }

// ---- the node

class PythonFunctionNode final : public CustomNode {
 public:
  explicit PythonFunctionNode(PyObject* context) : context_(Py_NewRef(context)) {
    name();  // its UTF-8 form is computed now, so that it can be read without the interpreter lock
    python_object = context;
    as_context(context)->base.node = this;
  }
  ~PythonFunctionNode() override {
    if (!Py_IsInitialized()) return;
    Locked locked;
    as_context(context_)->base.node = nullptr;
    Py_DECREF(context_);
  }
  const char* name() const override {
    return PyUnicode_AsUTF8(reinterpret_cast<PyHeapTypeObject*>(Py_TYPE(context_))->ht_name);
  }
  void apply(TensorVec& grads, TensorVec& out) override;

  std::vector<bool> is_tensor;  // of each argument of forward

 private:
  PyObject* context_;
};

PyObject* context_of(Node* node) {
  auto* function = dynamic_cast<PythonFunctionNode*>(node);
  return function ? static_cast<PyObject*>(function->python_object) : nullptr;
}

// `backward`, or `vjp`, its other name; looked up at every call, for programs may replace it.
static Owned backward_of(PyObject* function) {
  Owned backward(checked(PyObject_GetAttr(function, name_backward)));
  Owned vjp(checked(PyObject_GetAttr(function, name_vjp)));
  PyObject* base = reinterpret_cast<PyObject*>(function_base);
  Owned base_backward(checked(PyObject_GetAttr(base, name_backward)));
  Owned base_vjp(checked(PyObject_GetAttr(base, name_vjp)));
  if (vjp.get() == base_vjp.get()) return backward;
  MICA_CHECK(backward.get() == base_backward.get(),
             "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement "
             "one of them.");
  return vjp;
}

static Owned as_tuple(PyObject* o) {
  if (PyTuple_Check(o)) return Owned::borrow(o);
  return Owned(checked(PyTuple_Pack(1, o)));
}

void PythonFunctionNode::apply(TensorVec& grads, TensorVec& out) {
  materialize(grads);
  Locked locked;
  Owned function(checked(PyObject_GetAttr(reinterpret_cast<PyObject*>(Py_TYPE(context_)), name_function)));
  Owned backward = backward_of(function.get());
  std::vector<Owned> arguments;
  std::vector<PyObject*> call = {context_};
  for (Tensor& grad : grads) call.push_back(arguments.emplace_back(checked(wrap(grad))).get());
  Owned result(checked(PyObject_Vectorcall(backward.get(), call.data(), call.size(), nullptr)));
  Owned returned = as_tuple(result.get());

  const size_t expected = is_tensor.size();
  auto count = static_cast<size_t>(PyTuple_GET_SIZE(returned.get()));
  const auto item = [&](size_t i) { return PyTuple_GET_ITEM(returned.get(), static_cast<Py_ssize_t>(i)); };
  while (count > expected && item(count - 1) == Py_None) --count;  // more than needed may be returned, if it is nothing
  MICA_CHECK(count == expected, "function ", name(), " returned an incorrect number of gradients (expected ", expected,
             ", got ", PyTuple_GET_SIZE(returned.get()), ")");
  for (size_t i = 0, at = 0; i < expected; ++i) {
    PyObject* grad = item(i);
    if (!is_tensor[i]) {
      MICA_CHECK(grad == Py_None, "function ", name(), " returned a gradient different than None at position ", i + 1,
                 ", but the corresponding forward input was not a Variable");
      continue;
    }
    MICA_CHECK(grad == Py_None || python::is_tensor(grad), "expected Variable or None (got ", Py_TYPE(grad)->tp_name,
               ") at position ", i + 1, " of what ", name(), " returned");
    if (grad != Py_None && needs(at)) out[at] = unwrap(grad);
    ++at;
  }
}

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

// The result of forward, which runs without recording.
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

// Outputs with their history; what is no tensor goes through as it is.
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
    const bool tracked = needs && output.defined();  // the context may refer to its output: a cycle
    PyObject* item =
        output.defined() ? checked(wrap(std::move(output))) : Py_NewRef(PyTuple_GET_ITEM(returned.get(), i));
    if (tracked) track(item);
    PyTuple_SET_ITEM(tuple.get(), i, item);
  }
  if (PyTuple_Check(result)) return tuple;
  return Owned::borrow(PyTuple_GET_ITEM(tuple.get(), 0));
}

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

  Owned result = call_forward(function, context.get(), args.get());
  Owned output = finish(c, node, needs, inputs, result.get());
  Py_CLEAR(c->to_save);
  Py_CLEAR(c->dirty);
  Py_CLEAR(c->non_differentiable);
  return output.release();
} catch (...) {
  return raise_current_exception();
}

// ---- the context

static PyObject* context_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  new (&as_context(self)->base.owned) Ref<Node>();
  as_context(self)->materialize_grads = true;
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

static PyObject* get_saved_tensors(PyObject* self, void*) try {
  auto* node = static_cast<PythonFunctionNode*>(as_context(self)->base.node);
  if (!node) return PyTuple_New(0);
  return to_python(node->saved_tensors());
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

// What is called instead, with the class first, once a program uses vmap: examples need the function's own rule, also
// through an `apply` that was taken from its class before.
static PyObject* apply_on_examples = nullptr;

static PyObject* hook_apply(PyObject*, PyObject* hook) {
  Py_XSETREF(apply_on_examples, Py_NewRef(hook));
  Py_RETURN_NONE;
}

// How many transforms of torch.func the thread is within. What a function computes belongs to the one outside of it.
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
    {"_are_functorch_transforms_active", transforms_active, METH_NOARGS, nullptr},
    {}};

bool add_function(PyObject* module) {
  name_forward = PyUnicode_InternFromString("forward");
  name_backward = PyUnicode_InternFromString("backward");
  name_vjp = PyUnicode_InternFromString("vjp");
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
      {}};
  static PyMemberDef members[] = {
      {"needs_input_grad", T_OBJECT, offsetof(ContextObject, needs_input_grad), 0,
       "For each argument of forward, whether its gradient is wanted."},
      {"to_save", T_OBJECT, offsetof(ContextObject, to_save), READONLY, nullptr},
      {"dirty_tensors", T_OBJECT, offsetof(ContextObject, dirty), READONLY, nullptr},
      {"non_differentiable", T_OBJECT, offsetof(ContextObject, non_differentiable), READONLY, nullptr},
      {"materialize_grads", T_BOOL, offsetof(ContextObject, materialize_grads), READONLY, nullptr},
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
