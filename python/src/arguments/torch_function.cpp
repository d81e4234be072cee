#include "arguments/torch_function.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments/default_torch_function.h"
#include "arguments/mode_stack.h"
#include "arguments/parser.h"
#include "mica/autograd.h"

namespace mica::python {

static PyObject* torch_function_name;  // "__torch_function__", interned
static PyObject* disabled_implementation;
static PyObject* extension_module;  // borrowed: it lives as long as the interpreter

// Per thread: DisableTorchFunctionSubclass silences arguments, DisableTorchFunction modes too.
static thread_local bool subclasses_disabled = false;
static thread_local bool all_disabled = false;

// Set while a function is called that must not ask overrides. The first question is answered with no, and clears it.
static thread_local bool hop_skipped = false;

static PyObject* torch_dispatch_name;     // "__torch_dispatch__", interned
static PyObject* plain_values_name;       // "_values_are_plain", interned
static thread_local bool dispatch_aside;  // while a call of a class with a __torch_dispatch__ is looked at

// The function that is handed the calls of this thread that nobody else answers, or null: _call_recorded_by().
static thread_local PyObject* recorder = nullptr;

PyObject* disabled_dispatch = nullptr;

bool exchange_dispatch_aside(bool value) { return std::exchange(dispatch_aside, value); }

namespace {
// While an object of this class lives, neither modes nor classes are asked.
class ModesDisabled {
 public:
  ModesDisabled() : saved_(all_disabled) { all_disabled = true; }
  ModesDisabled(const ModesDisabled&) = delete;
  ModesDisabled& operator=(const ModesDisabled&) = delete;
  ~ModesDisabled() { all_disabled = saved_; }

 private:
  bool saved_;
};

struct FunctionMode {
  static constexpr const char* name = "TorchFunctionMode";
  static void set_active(bool on) { set_modes(mode_bit::kFunctionMode, on || recorder); }
};
using FunctionModes = ModeStack<FunctionMode>;

// While an object of this class lives, calls are handed to a recorder, or to none.
class RecordedBy {
 public:
  explicit RecordedBy(PyObject* next) : before_(std::exchange(recorder, next)) {
    FunctionMode::set_active(!FunctionModes::empty());
  }
  RecordedBy(const RecordedBy&) = delete;
  RecordedBy& operator=(const RecordedBy&) = delete;
  ~RecordedBy() {
    recorder = before_;
    FunctionMode::set_active(!FunctionModes::empty());
  }

 private:
  PyObject* before_;
};
}  // namespace

bool has_torch_dispatch(PyTypeObject* type) {
  PyObject* found = _PyType_Lookup(type, torch_dispatch_name);
  return found && found != disabled_dispatch;
}

bool overrides_torch_dispatch(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (type == tensor_type || dispatch_aside || !PyType_IsSubtype(type, tensor_type)) return false;
  return has_torch_dispatch(type);
}

static bool asks_function(PyObject* o) {
  if (subclasses_disabled || all_disabled) return false;
  PyObject* found = _PyType_Lookup(Py_TYPE(o), torch_function_name);
  return found && found != disabled_implementation;
}

bool overrides_torch_function(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  if (type == tensor_type) return false;
  // The class that was last found to have no override, usually Parameter. A version belongs to one class and is never
  // used again; a class that changes loses its version.
  static thread_local PyTypeObject* silent_type = nullptr;
  static thread_local unsigned int silent_version = 0;
  if (type == silent_type && type->tp_version_tag == silent_version) return false;
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type || type == &PyTuple_Type ||
      type == &PyList_Type || type == &PyBool_Type || o == Py_None)
    return false;
  if (asks_function(o) || overrides_torch_dispatch(o)) return true;
  if (PyObject* found = _PyType_Lookup(type, torch_function_name);
      found == disabled_implementation && !dispatch_aside && type->tp_version_tag) {
    silent_type = type;
    silent_version = type->tp_version_tag;
  }
  return false;
}

bool attributes_overridden(PyObject* o) { return asks_function(o); }

bool torch_function_wanted(int num_overloaded) {
  return num_overloaded > 0 || ((recorder || !FunctionModes::empty()) && !all_disabled);
}

// Tensors of a class with a __torch_dispatch__ hold no elements. Below __torch_function__, their calls go to it as
// operators of torch.ops.aten.
static PyObject* dispatch(PyObject* o, PyObject* function, PyObject* types, PyObject* args, PyObject* kwargs) {
  Owned module(PyImport_ImportModule("mica._subclasses.dispatching"));
  Owned call(module ? PyObject_GetAttrString(module.get(), "call") : nullptr);
  if (!call) return nullptr;
  PyObject* arguments[] = {o, function, types, args, kwargs ? kwargs : Py_None};
  return PyObject_Vectorcall(call.get(), arguments, 5, nullptr);
}

// Subclasses are asked before their bases; otherwise from left to right.
static std::vector<PyObject*> in_order(PyObject** overloaded, int count) {
  std::vector<PyObject*> order;
  for (int i = 0; i < count; ++i) {
    auto at = std::find_if(order.begin(), order.end(),
                           [&](PyObject* before) { return PyType_IsSubtype(Py_TYPE(overloaded[i]), Py_TYPE(before)); });
    order.insert(at, overloaded[i]);
  }
  return order;
}

static PyObject* ask(PyObject* function, PyObject** overloaded, int count, PyObject* args, PyObject* kwargs) {
  if (std::exchange(hop_skipped, false)) [[unlikely]] {
    ModesDisabled silent;
    return PyObject_Call(function, args, kwargs);
  }
  std::vector<PyObject*> order = in_order(overloaded, count);
  Owned types(PyTuple_New(static_cast<Py_ssize_t>(order.size())));
  if (!types) return nullptr;
  for (size_t i = 0; i < order.size(); ++i)
    PyTuple_SET_ITEM(types.get(), static_cast<Py_ssize_t>(i),
                     Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(order[i]))));
  if (!FunctionModes::empty() && !all_disabled) {
    FunctionModes::Aside aside;
    Owned mode = Owned::borrow(aside.mode());
    PyObject* call[] = {mode.get(), function, types.get(), args, kwargs};
    Owned answer(PyObject_VectorcallMethod(torch_function_name, call, kwargs ? 5 : 4, nullptr));
    if (!answer || answer.get() != Py_NotImplemented) return answer.release();
  }
  for (PyObject* o : order) {
    if (!asks_function(o)) continue;
    PyObject* call[] = {o, function, types.get(), args, kwargs};
    Owned answer(PyObject_VectorcallMethod(torch_function_name, call, kwargs ? 5 : 4, nullptr));
    if (!answer || answer.get() != Py_NotImplemented) return answer.release();
  }
  for (PyObject* o : order) {
    if (asks_function(o) || !overrides_torch_dispatch(o)) continue;
    Owned answer(dispatch(o, function, types.get(), args, kwargs));
    if (!answer || answer.get() != Py_NotImplemented) return answer.release();
  }
  if (recorder && order.empty()) {
    Owned record = Owned::borrow(recorder);
    const RecordedBy none(nullptr);
    PyObject* call[] = {function, args, kwargs ? kwargs : Py_None};
    return PyObject_Vectorcall(record.get(), call, 3, nullptr);
  }
  Owned name(PyObject_GetAttrString(function, "__name__"));
  if (!name) return nullptr;
  std::string tried;
  for (PyObject* o : order) {
    Owned type(PyObject_Repr(reinterpret_cast<PyObject*>(Py_TYPE(o))));
    if (!type) return nullptr;
    tried += std::string("\n  - tensor subclass ") + PyUnicode_AsUTF8(type.get());
  }
  const bool method =
      PyObject_TypeCheck(function, &PyMethodDescr_Type) || PyObject_TypeCheck(function, &PyWrapperDescr_Type);
  return PyErr_Format(PyExc_TypeError,
                      "Multiple dispatch failed for 'torch.%s%U'; all __torch_function__ handlers returned "
                      "NotImplemented:\n%s\n\nFor more information, try re-running with "
                      "TORCH_LOGS=not_implemented",
                      method ? "Tensor." : "", name.get(), tried.c_str());
}

bool has_plain_values(PyObject* o) { return _PyType_Lookup(Py_TYPE(o), plain_values_name) != nullptr; }

// Whether the class answers for the values of its tensors.
static bool answers_for_values(PyObject* o) {
  if (!overrides_torch_function(o) || !asks_function(o)) return false;
  PyTypeObject* type = Py_TYPE(o);
  return _PyType_Lookup(type, torch_function_name) != _PyType_Lookup(tensor_type, torch_function_name) &&
         !has_plain_values(o);
}

static bool is_asked_about_values(PyObject* o) {
  return ((thread_modes & mode_bit::kFunctionMode) && !all_disabled) || answers_for_values(o);
}

// Whether a method reads elements, which a tensor with a __torch_dispatch__ does not have. Its class is asked for the
// method.
static bool reads_absent_element(PyObject* self, std::string_view method) {
  static constexpr std::string_view kReading[] = {"item",        "__bool__", "__int__", "__float__", "__index__",
                                                  "__complex__", "tolist",   "numpy",   "__array__"};
  return std::find(std::begin(kReading), std::end(kReading), method) != std::end(kReading) &&
         overrides_torch_dispatch(self) && !has_plain_values(self);
}

PyObject* ask_about(PyObject* self, const char* method, PyObject* const* more, Py_ssize_t count) {
  if (!is_asked_about_values(self) && !reads_absent_element(self, method)) return nullptr;
  Owned function(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), method));
  if (!function) return nullptr;
  std::vector<PyObject*> args = {self};
  args.insert(args.end(), more, more + count);
  return call_torch_function(function.get(), &self, overrides_torch_function(self) ? 1 : 0, args.data(), count + 1);
}

// A recorder answers nothing: it makes the call.
static PyObject* asked_about_values(PyObject*, PyObject* o) {
  if (std::exchange(hop_skipped, false)) Py_RETURN_FALSE;
  return PyBool_FromLong(is_tensor(o) && ((!FunctionModes::empty() && !all_disabled) || answers_for_values(o)));
}

// A class that answers for its tensors makes their methods ask. A class that defines __torch_dispatch__ but no
// __torch_function__ gets the disabled one, as in torch: its results are what its __torch_dispatch__ returns.
static PyObject* init_subclass(PyObject* cls, PyObject*, PyObject*) {
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  if (has_torch_dispatch(type) &&
      _PyType_Lookup(type, torch_function_name) == _PyType_Lookup(tensor_type, torch_function_name) &&
      PyObject_SetAttr(cls, torch_function_name, disabled_implementation) < 0)
    return nullptr;
  PyObject* found = _PyType_Lookup(type, torch_function_name);
  if (found && found != disabled_implementation && found != _PyType_Lookup(tensor_type, torch_function_name) &&
      !_PyType_Lookup(type, plain_values_name))
    let_methods_ask();
  Py_RETURN_NONE;
}

static PyObject* function_object(const Parser& parser, bool method) {
  if (method) return PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), parser.name());
  if (!*parser.space()) return PyObject_GetAttrString(extension_module, parser.name());
  std::string attribute = "_";
  for (const char* c = parser.space(); *c; ++c) attribute += *c == '.' ? '_' : *c;
  Owned space(PyObject_GetAttrString(extension_module, attribute.c_str()));
  return space ? PyObject_GetAttrString(space.get(), parser.name()) : nullptr;
}

PyObject* call_torch_function(const Parser& parser, PyObject** overloaded, int count, PyObject* self,
                              PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  Owned function(function_object(parser, self != nullptr));
  if (!function) return nullptr;
  const Py_ssize_t shift = self ? 1 : 0;
  Owned tuple(PyTuple_New(nargs + shift));
  if (!tuple) return nullptr;
  if (self) PyTuple_SET_ITEM(tuple.get(), 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(tuple.get(), i + shift, Py_NewRef(args[i]));
  Owned kwargs;
  if (kwnames && PyTuple_GET_SIZE(kwnames) > 0) {
    kwargs = Owned(PyDict_New());
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(kwnames); ++k)
      if (!kwargs || PyDict_SetItem(kwargs.get(), PyTuple_GET_ITEM(kwnames, k), args[nargs + k]) < 0) return nullptr;
  }
  return ask(function.get(), overloaded, count, tuple.get(), kwargs.get());
}

PyObject* call_torch_function(PyObject* function, PyObject** overloaded, int count, PyObject* const* args,
                              Py_ssize_t nargs) {
  Owned tuple(PyTuple_New(nargs));
  if (!tuple) return nullptr;
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(args[i]));
  return ask(function, overloaded, count, tuple.get(), nullptr);
}

SubclassesDisabled::SubclassesDisabled() : saved_(subclasses_disabled) { subclasses_disabled = true; }
SubclassesDisabled::~SubclassesDisabled() { subclasses_disabled = saved_; }

PyMethodDef torch_function_methods[] = {
    {"__torch_function__", as_cfunction(default_torch_function), METH_VARARGS | METH_KEYWORDS | METH_CLASS,
     "Calls the function on the arguments as plain tensors and returns the result as this class."},
    {"__init_subclass__", as_cfunction(init_subclass), METH_VARARGS | METH_KEYWORDS | METH_CLASS, nullptr},
    {}};

// ---- what the package's overrides module builds upon

static PyObject* disabled(PyObject*, PyObject* args) {
  // (func, types, args, kwargs): makes the call while subclasses are not asked. A built-in function in a class is not
  // bound.
  PyObject *function, *types, *call_args = nullptr, *call_kwargs = nullptr;
  if (!PyArg_ParseTuple(args, "OO|O!O", &function, &types, &PyTuple_Type, &call_args, &call_kwargs)) return nullptr;
  SubclassesDisabled guard;
  Owned no_args(call_args ? nullptr : PyTuple_New(0));
  return PyObject_Call(function, call_args ? call_args : no_args.get(), call_kwargs == Py_None ? nullptr : call_kwargs);
}

// (func, types, args, kwargs): makes the call. The function itself asks nobody, but the functions that it calls do.
static PyObject* skip_one_hop(PyObject*, PyObject* args) {
  PyObject *function, *types, *call_args = nullptr, *call_kwargs = nullptr;
  if (!PyArg_ParseTuple(args, "OO|OO", &function, &types, &call_args, &call_kwargs)) return nullptr;
  Owned positional(call_args ? PySequence_Tuple(call_args) : PyTuple_New(0));
  if (!positional) return nullptr;
  if (call_kwargs == Py_None) call_kwargs = nullptr;
  if (call_kwargs && !PyDict_Check(call_kwargs)) {
    return PyErr_Format(PyExc_TypeError, "redispatch_function(): kwargs must be a dict, not %s",
                        Py_TYPE(call_kwargs)->tp_name);
  }
  const bool before = hop_skipped;
  hop_skipped = true;
  PyObject* answer = PyObject_Call(function, positional.get(), call_kwargs);
  hop_skipped = before;
  return answer;
}

// Sets a flag and returns what it was.
static PyObject* set_flag(bool& flag, PyObject* value) {
  int on = PyObject_IsTrue(value);
  if (on < 0) return nullptr;
  bool before = flag;
  flag = on;
  return PyBool_FromLong(before);
}
static PyObject* set_subclasses_disabled(PyObject*, PyObject* value) { return set_flag(subclasses_disabled, value); }
static PyObject* set_all_disabled(PyObject*, PyObject* value) { return set_flag(all_disabled, value); }
static PyObject* set_dispatch_aside(PyObject*, PyObject* value) { return set_flag(dispatch_aside, value); }
static PyObject* is_enabled(PyObject*, PyObject*) { return PyBool_FromLong(!subclasses_disabled && !all_disabled); }

static PyObject* push_mode(PyObject* module, PyObject* mode) {
  let_methods_ask();
  return FunctionModes::push(module, mode);
}

static PyObject* has_torch_function(PyObject*, PyObject* objects) {
  Owned list(PySequence_Fast(objects, "expected a sequence"));
  if (!list) return nullptr;
  if (std::exchange(hop_skipped, false)) Py_RETURN_FALSE;
  if (!FunctionModes::empty() && !all_disabled) Py_RETURN_TRUE;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i)
    if (overrides_torch_function(PySequence_Fast_GET_ITEM(list.get(), i))) Py_RETURN_TRUE;
  Py_RETURN_FALSE;
}

// handle_torch_function(public_api, relevant_args, *args, **kwargs), for functions written in Python.
static PyObject* handle_torch_function(PyObject*, PyObject* args, PyObject* kwargs) {
  if (PyTuple_GET_SIZE(args) < 2)
    return PyErr_Format(PyExc_TypeError, "handle_torch_function() takes at least 2 arguments");
  Owned relevant(PySequence_Fast(PyTuple_GET_ITEM(args, 1), "relevant_args must be a sequence"));
  Owned rest(PyTuple_GetSlice(args, 2, PyTuple_GET_SIZE(args)));
  if (!relevant || !rest) return nullptr;
  std::vector<PyObject*> overloaded;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(relevant.get()); ++i) {
    PyObject* o = PySequence_Fast_GET_ITEM(relevant.get(), i);
    bool seen =
        std::any_of(overloaded.begin(), overloaded.end(), [&](PyObject* x) { return Py_TYPE(x) == Py_TYPE(o); });
    if (!seen && overrides_torch_function(o)) overloaded.push_back(o);
  }
  return ask(PyTuple_GET_ITEM(args, 0), overloaded.data(), static_cast<int>(overloaded.size()), rest.get(), kwargs);
}

// _call_recorded_by(recorder, function, args, kwargs): calls the function. The calls that it makes on tensors, and that
// no mode or class answers, are handed to recorder(function, args, kwargs or None), which makes them.
static PyObject* call_recorded_by(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 4 || !PyTuple_Check(args[2]) || !PyDict_Check(args[3]))
    return PyErr_Format(PyExc_TypeError, "_call_recorded_by() takes a recorder, a function, a tuple and a dict");
  const RecordedBy scope(args[0]);
  return PyObject_Call(args[1], args[2], args[3]);
}

// ---- with DisableTorchFunctionSubclass(): ...

struct DisablerObject {
  PyObject_HEAD bool before;
};

static bool& subclass_flag() { return subclasses_disabled; }
static bool& all_flag() { return all_disabled; }

template <bool& (*flag)()>
static PyObject* disabler_enter(PyObject* self, PyObject*) {
  reinterpret_cast<DisablerObject*>(self)->before = flag();
  flag() = true;
  return Py_NewRef(self);
}
template <bool& (*flag)()>
static PyObject* disabler_exit(PyObject* self, PyObject*) {
  flag() = reinterpret_cast<DisablerObject*>(self)->before;
  Py_RETURN_NONE;
}
template <bool& (*flag)()>
static PyMethodDef disabler_methods[] = {{"__enter__", disabler_enter<flag>, METH_NOARGS, nullptr},
                                         {"__exit__", disabler_exit<flag>, METH_VARARGS, nullptr},
                                         {}};

static bool add_disabler(PyObject* module, const char* name, PyMethodDef* methods) {
  PyType_Slot slots[] = {{Py_tp_methods, methods}, {0, nullptr}};
  PyType_Spec spec = {name, sizeof(DisablerObject), 0, Py_TPFLAGS_DEFAULT, slots};
  return add_type(module, &spec) != nullptr;
}

bool add_torch_function(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_disabled_torch_function_impl", disabled, METH_VARARGS, "The __torch_function__ of a class that wants none."},
      {"_skip_one_hop_torch_function", skip_one_hop, METH_VARARGS, nullptr},
      {"_set_torch_function_subclass_disabled", set_subclasses_disabled, METH_O, nullptr},
      {"_set_torch_function_disabled", set_all_disabled, METH_O, nullptr},
      {"_is_torch_function_enabled", is_enabled, METH_NOARGS, nullptr},
      {"_push_on_torch_function_stack", push_mode, METH_O, nullptr},
      {"_pop_torch_function_stack", FunctionModes::pop, METH_NOARGS, nullptr},
      {"_get_function_stack_at", FunctionModes::at, METH_O, nullptr},
      {"_len_torch_function_stack", FunctionModes::size, METH_NOARGS, nullptr},
      {"_set_dispatch_aside", set_dispatch_aside, METH_O, nullptr},
      {"_asked_about_values", asked_about_values, METH_O,
       "Whether a mode or the tensor's class answers for methods that hand out a value."},
      {"_has_torch_function", has_torch_function, METH_O, nullptr},
      {"_call_recorded_by", as_cfunction(call_recorded_by), METH_FASTCALL,
       "Calls a function whose calls on tensors are handed to a recorder."},
      {"_handle_torch_function", as_cfunction(handle_torch_function), METH_VARARGS | METH_KEYWORDS, nullptr},
      {}};
  if (PyModule_AddFunctions(module, functions) < 0) return false;
  extension_module = module;
  torch_function_name = PyUnicode_InternFromString("__torch_function__");
  torch_dispatch_name = PyUnicode_InternFromString("__torch_dispatch__");
  plain_values_name = PyUnicode_InternFromString("_values_are_plain");
  disabled_implementation = PyObject_GetAttrString(module, "_disabled_torch_function_impl");
  return torch_function_name && torch_dispatch_name && plain_values_name && disabled_implementation &&
         add_disabler(module, "torch._C.DisableTorchFunctionSubclass", disabler_methods<subclass_flag>) &&
         add_disabler(module, "torch._C.DisableTorchFunction", disabler_methods<all_flag>);
}

}  // namespace mica::python
