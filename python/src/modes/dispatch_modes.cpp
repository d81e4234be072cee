#include "modes/dispatch_modes.h"

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "arguments/mode_stack.h"
#include "arguments/torch_function.h"
#include "autograd/metadata.h"
#include "core/absent_memory.h"
#include "core/geometry.h"
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

// item_of(tensor), of mica._subclasses.dispatching
static PyObject* item_function = nullptr;

static Scalar item_of_class(const Tensor& t) {
  Locked lock;
  Owned object(wrap(t));
  Owned answer(checked(PyObject_CallOneArg(item_function, object.get())));
  return scalar_from_object(answer.get());
}

static PyObject* set_item_of_class(PyObject*, PyObject* function) {
  Py_XSETREF(item_function, Py_NewRef(function));
  absent_item = item_of_class;
  Py_RETURN_NONE;
}

// Gives a tensor of such a class the place that a view of another has in memory, so that autograd knows them as parts
// of each other, and returns whether it fits there. The elements there have no meaning.
static PyObject* lie_in(PyObject*, PyObject* args) try {
  PyObject *tensor, *place;
  if (!PyArg_ParseTuple(args, "OO:_lie_in", &tensor, &place)) return nullptr;
  MICA_CHECK_KIND(is_tensor(tensor) && is_tensor(place), Type, "_lie_in(): two tensors are expected");
  TensorImpl *impl = unwrap(tensor).impl(), *view = unwrap(place).impl();
  const bool fits = unwrap(tensor).sizes() == unwrap(place).sizes() && impl->view.dtype == view->view.dtype &&
                    impl->view.device == view->view.device && !impl->base && !impl->autograd;
  if (!fits) Py_RETURN_FALSE;
  impl->storage = view->storage;
  if (view->own_version()) impl->set_own_version(view->own_version());
  impl->set_geometry(unwrap(place).sizes(), unwrap(place).strides(), view->offset);
  Py_RETURN_TRUE;
} catch (...) {
  return raise_current_exception();
}

// (example, sizes, strides or None, offset): a tensor of the example's dtype and device for such a class. Its memory
// stands for elements that the class has.
static PyObject* absent_tensor(PyObject*, PyObject* args) try {
  PyObject *example, *size_object, *stride_object;
  long long offset;
  if (!PyArg_ParseTuple(args, "OOOL:_absent_tensor", &example, &size_object, &stride_object, &offset)) return nullptr;
  MICA_CHECK_KIND(is_tensor(example), Type, "_absent_tensor(): a tensor is expected");
  const DimVector sizes = dims_from_object(size_object);
  for (const int64_t n : sizes)
    MICA_CHECK(n >= 0, "Trying to create tensor with negative dimension ", n, ": ", IntArrayRef(sizes));
  const DimVector strides = stride_object == Py_None ? contiguous_strides(sizes) : dims_from_object(stride_object);
  MICA_CHECK(sizes.size() == strides.size(), "a tensor of sizes ", IntArrayRef(sizes), " has no strides ",
             IntArrayRef(strides));
  const Tensor& like = unwrap(example);
  // What is made of a view may lie backwards, or not at the beginning.
  DimVector lengths(strides);
  for (int64_t& step : lengths) step = step < 0 ? -std::max(step, -std::numeric_limits<int64_t>::max()) : step;
  (void)storage_bytes_needed(sizes, lengths, 0, like.element_size());  // refuses what overflows
  offset = std::max<int64_t>(offset, -extent(sizes, strides).low);
  const int64_t nbytes = storage_bytes_needed(sizes, strides, offset, like.element_size());
  Storage memory = absent_memory(static_cast<size_t>(nbytes), like.device());
  TensorImpl* made = TensorImpl::create(std::move(memory), like.dtype(), like.device(), sizes, strides, offset);
  made->bits |= like.impl()->bits & tensor_bit::kInference;
  return wrap(Tensor::adopt(made));
} catch (...) {
  return raise_current_exception();
}

// (tensor, base, is_one_of_several): from now on the tensor is a view of the base, in whose memory it lies.
static PyObject* mark_view(PyObject*, PyObject* args) try {
  PyObject *tensor, *base;
  int several;
  if (!PyArg_ParseTuple(args, "OOp:_mark_view", &tensor, &base, &several)) return nullptr;
  MICA_CHECK_KIND(is_tensor(tensor) && is_tensor(base), Type, "_mark_view(): two tensors are expected");
  MICA_CHECK_KIND(dispatch::shares_memory(unwrap(tensor), unwrap(base)), Runtime, "_mark_view(): no view of the base");
  using Creation = ViewInfo::Creation;
  set_view(unwrap(tensor), unwrap(base),
           !grad_enabled() ? Creation::InNoGrad
           : several       ? Creation::MultiOutput
                           : Creation::Normal);
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

// A tensor on the meta device for one that a Python number has become, which ranks like it in promotion; None of
// others.
static PyObject* number_on_meta(PyObject*, PyObject* object) try {
  if (!is_tensor(object) || !(unwrap(object)->bits & tensor_bit::kWrappedNumber)) Py_RETURN_NONE;
  std::optional<dispatch::Aside> unseen;
  if (dispatch::active) unseen.emplace();
  Tensor made = mica::empty(IntArrayRef(), TensorOptions(unwrap(object).dtype()).device(kMeta), std::nullopt);
  made->bits |= tensor_bit::kWrappedNumber;
  return wrap(std::move(made));
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

// The mode that asks classes is made with the module that has it.
static bool prepare_pass() {
  if (pass_mode) return true;
  Owned module(checked(PyImport_ImportModule("mica._subclasses.recorded")));
  Owned done(checked(PyObject_CallMethod(module.get(), "make_ready", nullptr)));
  return true;
}

bool is_of_dispatched_class(const Tensor& t) { return is_of_class(t); }

ClassPass::ClassPass() : ClassPass(pass_mode != nullptr) {}
ClassPass::ClassPass(Wanted wanted) : ClassPass(wanted == Wanted::Yes && prepare_pass()) {}

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
      {"_set_item_of_class", set_item_of_class, METH_O, nullptr},
      {"_absent_tensor", absent_tensor, METH_VARARGS, nullptr},
      {"_mark_view", mark_view, METH_VARARGS, nullptr},
      {"_number_on_meta", number_on_meta, METH_O, nullptr},
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
