#include "modes/dispatch_modes.h"

#include <unordered_set>

#include "arguments/mode_stack.h"
#include "arguments/torch_function.h"
#include "autograd/metadata.h"
#include "mica/core/class_alias.h"
#include "mica/core/dispatch.h"
#include "operations/entry.h"
#include "types/generator_object.h"
#include "types/storage_object.h"

namespace mica::python {

namespace {
struct DispatchMode {
  static constexpr const char* name = "TorchDispatchMode";
  static void set_active(bool on) { dispatch::set_active(on); }
};
}  // namespace
using DispatchModes = ModeStack<DispatchMode>;
static PyObject* answer_function = nullptr;  // answer(mode, name, values), of mica.utils._dispatch_calls
static PyObject* extension = nullptr;

// ---- arguments as Python objects

template <class List, class Make>
static PyObject* list_of(const List& values, Make make) {
  Owned list(PyList_New(static_cast<Py_ssize_t>(values.size())));
  if (!list) return nullptr;
  for (size_t i = 0; i < values.size(); ++i) {
    PyObject* item = make(values[i]);
    if (!item) return nullptr;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), item);
  }
  return list.release();
}

static PyObject* format_object(MemoryFormat format) {
  static const char* const names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
  return PyObject_GetAttrString(extension, names[static_cast<int>(format)]);
}

static PyObject* generator_object(const Generator& generator, Device device) {
  auto* o = reinterpret_cast<GeneratorObject*>(generator_type->tp_alloc(generator_type, 0));
  if (!o) return nullptr;
  new (&o->generator) Generator(generator);
  o->device = device;
  return reinterpret_cast<PyObject*>(o);
}

// A generator does not know its device, so it is that of the call's tensors.
static Device place_of(const dispatch::Argument* arguments, size_t size) {
  using Kind = dispatch::Argument::Kind;
  for (size_t i = 0; i < size; ++i) {
    const dispatch::Argument& a = arguments[i];
    if (a.is_none()) continue;
    if (a.kind() == Kind::Tensor && a.as<Tensor>().defined()) return a.as<Tensor>().device();
    if (a.kind() == Kind::Options) return a.as<TensorOptions>().device();
  }
  return kCPU;
}

static PyObject* object_of(const dispatch::Argument& a, Device place) {
  using Kind = dispatch::Argument::Kind;
  if (a.is_none()) Py_RETURN_NONE;
  switch (a.kind()) {
    case Kind::Tensor:
      return wrap(a.as<Tensor>());
    case Kind::Tensors:
      return list_of(a.as<TensorList>(), [](const Tensor& t) { return wrap(t); });
    case Kind::Int:
      return to_python(a.as<int64_t>());
    case Kind::Double:
      return to_python(a.as<double>());
    case Kind::Bool:
      return to_python(a.as<bool>());
    case Kind::Text: {
      const auto& text = a.as<std::string_view>();
      return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
    }
    case Kind::Scalar:
      return to_python(a.as<Scalar>());
    case Kind::DType:
      return dtype_object(a.as<DType>());
    case Kind::MemoryFormat:
      return format_object(a.as<MemoryFormat>());
    case Kind::Layout:
      return layout_object(a.as<Layout>());
    case Kind::Device:
      return device_object(a.as<Device>());
    case Kind::Generator:
      return generator_object(a.as<Generator>(), place);
    case Kind::Storage:
      return storage_object(a.as<Storage>());
    case Kind::Ints:
      return list_of(a.as<IntArrayRef>(), [](int64_t i) { return to_python(i); });
    case Kind::Doubles:
      return list_of(a.as<ArrayRef<double>>(), [](double d) { return to_python(d); });
    case Kind::Bools:
      return list_of(a.as<ArrayRef<bool>>(), [](bool b) { return to_python(b); });
    case Kind::Scalars:
      return list_of(a.as<ArrayRef<Scalar>>(), [](const Scalar& s) { return to_python(s); });
    case Kind::Options:
      break;  // four arguments: see values_of
  }
  Py_RETURN_NONE;
}

static bool append(PyObject* list, PyObject* new_reference) {
  Owned item(new_reference);
  return item && PyList_Append(list, item.get()) == 0;
}

static bool append_options(PyObject* list, const TensorOptions& options) {
  const auto& [dtype, device, layout] = std::tie(options.dtype_opt(), options.device_opt(), options.layout_opt());
  return append(list, dtype ? dtype_object(*dtype) : Py_NewRef(Py_None)) &&
         append(list, layout ? layout_object(*layout) : Py_NewRef(Py_None)) &&
         append(list, device ? device_object(*device) : Py_NewRef(Py_None)) &&
         append(list, options.pinned_memory() ? Py_NewRef(Py_True) : Py_NewRef(Py_None));
}

static Owned values_of(const dispatch::Argument* arguments, size_t size) {
  Owned list(checked(PyList_New(0)));
  const Device place = place_of(arguments, size);
  for (size_t i = 0; i < size; ++i) {
    const dispatch::Argument& a = arguments[i];
    const bool is_options = !a.is_none() && a.kind() == dispatch::Argument::Kind::Options;
    const bool done =
        is_options ? append_options(list.get(), a.as<TensorOptions>()) : append(list.get(), object_of(a, place));
    if (!done) throw PythonError();
  }
  return list;
}

// ---- answers

static Tensor tensor_of_answer(PyObject* o, const char* name) {
  if (o == Py_None) return Tensor();
  if (is_tensor(o)) return unwrap(o);
  PyErr_Format(PyExc_TypeError, "Unable to cast %s to Tensor: a mode's __torch_dispatch__ answered for aten::%s",
               Py_TYPE(o)->tp_name, name);
  throw PythonError();
}

static std::vector<Tensor> tensors_of_answer(PyObject* answer, const char* name, int count) {
  if (count == 0) return {};
  if (count == 1) return {tensor_of_answer(answer, name)};
  Owned items(checked(PySequence_Fast(answer, "a mode's __torch_dispatch__ must answer with a sequence of tensors")));
  const Py_ssize_t size = PySequence_Fast_GET_SIZE(items.get());
  if (count != dispatch::kAnyNumber && size != count) {
    PyErr_Format(PyExc_RuntimeError, "aten::%s has %d results, but a mode's __torch_dispatch__ answered with %zd", name,
                 count, size);
    throw PythonError();
  }
  std::vector<Tensor> tensors;
  tensors.reserve(static_cast<size_t>(size));
  for (Py_ssize_t i = 0; i < size; ++i)
    tensors.push_back(tensor_of_answer(PySequence_Fast_GET_ITEM(items.get(), i), name));
  return tensors;
}

static std::vector<Tensor> handle(const char* name, const dispatch::Argument* arguments, size_t size, int count) {
  Locked lock;
  const DispatchModes::Aside taken;
  const Owned values = values_of(arguments, size);
  if (!answer_function) {
    Owned module(checked(PyImport_ImportModule("mica.utils._dispatch_calls")));
    answer_function = checked(PyObject_GetAttrString(module.get(), "answer"));
  }
  Owned answer(checked(PyObject_CallFunction(answer_function, "OsO", taken.mode(), name, values.get())));
  return tensors_of_answer(answer.get(), name, count);
}

// ---- backward passes through tensors of classes that answer for their operations

static PyObject* pass_mode = nullptr;       // the mode that asks such classes; null until one has been recorded
static PyObject* alias_function = nullptr;  // alias(tensor), of mica._subclasses.recorded

static bool is_of_class(const Tensor& t) {
  auto* o = t.defined() ? static_cast<PyObject*>(t.impl()->python_object) : nullptr;
  return o && Py_TYPE(o) != tensor_type && has_torch_dispatch(Py_TYPE(o));
}

static Tensor alias_of_class(const Tensor& t) {
  Locked lock;
  if (!is_of_class(t)) return {};
  Owned object(wrap(t));
  Owned answer(checked(PyObject_CallOneArg(alias_function, object.get())));
  return is_tensor(answer.get()) ? unwrap(answer.get()) : Tensor();
}

static PyObject* set_class_pass(PyObject*, PyObject* args) {
  PyObject *mode, *alias;
  if (!PyArg_ParseTuple(args, "OO:_set_class_pass", &mode, &alias)) return nullptr;
  Py_XSETREF(pass_mode, Py_NewRef(mode));
  Py_XSETREF(alias_function, Py_NewRef(alias));
  dispatch::alias_of_class = alias_of_class;
  Py_RETURN_NONE;
}

// Gives a tensor of such a class the place that a view of another has in memory, so that autograd knows them as parts
// of each other. The elements there have no meaning.
static PyObject* lie_in(PyObject*, PyObject* args) try {
  PyObject *tensor, *place;
  if (!PyArg_ParseTuple(args, "OO:_lie_in", &tensor, &place)) return nullptr;
  MICA_CHECK_KIND(is_tensor(tensor) && is_tensor(place), Type, "_lie_in(): two tensors are expected");
  TensorImpl *impl = unwrap(tensor).impl(), *view = unwrap(place).impl();
  const bool fits = unwrap(tensor).sizes() == unwrap(place).sizes() && impl->view.dtype == view->view.dtype &&
                    impl->view.device == view->view.device && !impl->base && !impl->autograd;
  MICA_CHECK_KIND(fits, Runtime, "_lie_in(): the tensors differ, or the first has a history");
  impl->storage = view->storage;
  impl->set_geometry(unwrap(place).sizes(), unwrap(place).strides(), view->offset);
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// Whether a pass from these nodes reaches a node for which such a class answers, or a leaf of such a class.
static bool reaches_classes(std::vector<Node*> waiting) {
  std::unordered_set<const Node*> seen;
  while (!waiting.empty()) {
    Node* node = waiting.back();
    waiting.pop_back();
    if (!node || !seen.insert(node).second) continue;
    if (node->asks_classes) return true;
    if (node->is_accumulator && is_of_class(static_cast<AccumulateGrad*>(node)->variable)) return true;
    for (const Edge& edge : node->next_edges) waiting.push_back(edge.function.get());
  }
  return false;
}

static bool is_class_pass(const std::vector<Tensor>& roots, const std::vector<Edge>& edges) {
  if (!pass_mode) return false;
  std::vector<Node*> nodes;
  for (const Tensor& root : roots) {
    if (is_of_class(root)) return true;
    if (root.defined()) nodes.push_back(root.grad_fn());
  }
  for (const Edge& edge : edges) nodes.push_back(edge.function.get());
  return reaches_classes(std::move(nodes));
}

ClassPass::ClassPass() : ClassPass(pass_mode != nullptr) {}

ClassPass::ClassPass(const std::vector<Tensor>& roots, const std::vector<Edge>& edges)
    : ClassPass(is_class_pass(roots, edges)) {}

ClassPass::ClassPass(bool entered) : entered_(entered), before_(dispatch::in_parts) {
  if (!entered_) return;
  Py_DECREF(DispatchModes::push(nullptr, pass_mode));
  dispatch::in_parts = true;
}

ClassPass::~ClassPass() {
  if (!entered_) return;
  Py_XDECREF(DispatchModes::pop(nullptr, nullptr));
  dispatch::in_parts = before_;
}

// Calls function(*args, **kwargs) with the mode that asks classes.
static PyObject* call_in_class_pass(PyObject*, PyObject* given) {
  PyObject *function, *args, *kwargs;
  if (!PyArg_ParseTuple(given, "OO!O!:_call_in_class_pass", &function, &PyTuple_Type, &args, &PyDict_Type, &kwargs))
    return nullptr;
  const ClassPass classes;
  return PyObject_Call(function, args, kwargs);
}

// __torch_dispatch__(func, types, args=(), kwargs=None) for a class that leaves the call to plain tensors.
static PyObject* call_plain(PyObject*, PyObject* given, PyObject* named) {
  static const char* const names[] = {"func", "types", "args", "kwargs", nullptr};
  PyObject *function, *types, *args = nullptr, *kwargs = nullptr;
  if (!PyArg_ParseTupleAndKeywords(given, named, "OO|OO:__torch_dispatch__", const_cast<char**>(names), &function,
                                   &types, &args, &kwargs))
    return nullptr;
  Owned positional(args ? PySequence_Tuple(args) : PyTuple_New(0));
  if (!positional) return nullptr;
  const bool before = exchange_dispatch_aside(true);
  PyObject* result = PyObject_Call(function, positional.get(), kwargs == Py_None ? nullptr : kwargs);
  exchange_dispatch_aside(before);
  return result;
}

bool add_dispatch_modes(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_push_on_torch_dispatch_stack", DispatchModes::push, METH_O, nullptr},
      {"_pop_torch_dispatch_stack", DispatchModes::pop, METH_NOARGS, nullptr},
      {"_get_dispatch_stack_at", DispatchModes::at, METH_O, nullptr},
      {"_len_torch_dispatch_stack", DispatchModes::size, METH_NOARGS, nullptr},
      {"_call_in_class_pass", call_in_class_pass, METH_VARARGS, nullptr},
      {"_disabled_torch_dispatch_impl", as_cfunction(call_plain), METH_VARARGS | METH_KEYWORDS,
       "The __torch_dispatch__ of Tensor, and of a class that wants none."},
      {"_lie_in", lie_in, METH_VARARGS, nullptr},
      {"_set_class_pass", set_class_pass, METH_VARARGS, nullptr},
      {}};
  extension = module;
  dispatch::handler = handle;
  if (PyModule_AddFunctions(module, functions) < 0) return false;
  disabled_dispatch = PyObject_GetAttrString(module, "_disabled_torch_dispatch_impl");
  return disabled_dispatch != nullptr;
}

bool add_torch_dispatch() {
  auto* type = reinterpret_cast<PyObject*>(tensor_type);
  return PyObject_SetAttrString(type, "__torch_dispatch__", disabled_dispatch) == 0;
}

}  // namespace mica::python
