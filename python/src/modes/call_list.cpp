// Lists of calls on tensors, and calls of compiled functions that are made by such a list (mica/_dynamo/replay).
//
// A list has the functions of C that a call of a compiled function called, in order, with their arguments: constants,
// and tensors by the slots in which earlier calls have left them. To make it again is to call these functions again. So
// it computes what the function would, bit for bit, as long as the function would call the same: a snapshot says so
// (state.cpp), and the forms of all results are compared on the way.
#include "modes/call_list.h"

#include <structmember.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "modes/modes.h"
#include "modes/snapshot.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"

namespace mica::python {

namespace {

struct Malformed {};

PyObject* item_of(PyObject* tuple, Py_ssize_t i) {
  if (!PyTuple_CheckExact(tuple) || i >= PyTuple_GET_SIZE(tuple)) throw Malformed();
  return PyTuple_GET_ITEM(tuple, i);
}
uint32_t number_of(PyObject* number, size_t below) {
  const long value = PyLong_CheckExact(number) ? PyLong_AsLong(number) : -1;
  if (value < 0 || static_cast<size_t>(value) >= below) throw Malformed();
  return static_cast<uint32_t>(value);
}

using Slots = std::vector<Owned>;

// ---- values: arguments of a call, or what a list returns

// (0, constant), (1, slot), (2, values) a list, (3, values) a tuple, (4, values, keys) a dict
class Value {
 public:
  Value(PyObject* encoded, size_t slots);
  PyObject* made(const Slots& slots) const;  // a new reference
  uint32_t slot() const { return slot_; }

 private:
  enum class Kind : uint8_t { kConstant, kSlot, kList, kTuple, kDict };
  Kind kind_;
  uint32_t slot_ = 0;
  PyObject* constant_ = nullptr;  // or the keys of a dict; the list's tuple holds it
  std::vector<Value> items_;
};

Value::Value(PyObject* encoded, size_t slots) : kind_(static_cast<Kind>(number_of(item_of(encoded, 0), 5))) {
  PyObject* content = item_of(encoded, 1);
  if (kind_ == Kind::kConstant) {
    constant_ = content;
  } else if (kind_ == Kind::kSlot) {
    slot_ = number_of(content, slots);
  } else {
    if (!PyTuple_CheckExact(content)) throw Malformed();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(content); ++i) items_.emplace_back(item_of(content, i), slots);
    if (kind_ == Kind::kDict) {
      constant_ = item_of(encoded, 2);
      if (!PyTuple_CheckExact(constant_) || PyTuple_GET_SIZE(constant_) != PyTuple_GET_SIZE(content)) throw Malformed();
    }
  }
}

PyObject* Value::made(const Slots& slots) const {
  const auto size = static_cast<Py_ssize_t>(items_.size());
  switch (kind_) {
    case Kind::kConstant:
      return Py_NewRef(constant_);
    case Kind::kSlot:
      if (!slots[slot_]) throw std::runtime_error("a list of calls asks for a slot that no call has filled");
      return Py_NewRef(slots[slot_].get());
    case Kind::kList:
    case Kind::kTuple: {
      const bool is_list = kind_ == Kind::kList;
      Owned made(checked(is_list ? PyList_New(size) : PyTuple_New(size)));
      for (Py_ssize_t i = 0; i < size; ++i) {
        PyObject* item = items_[static_cast<size_t>(i)].made(slots);
        if (is_list)
          PyList_SET_ITEM(made.get(), i, item);
        else
          PyTuple_SET_ITEM(made.get(), i, item);
      }
      return made.release();
    }
    case Kind::kDict: {
      Owned made(checked(PyDict_New()));
      for (Py_ssize_t i = 0; i < size; ++i) {
        Owned item(items_[static_cast<size_t>(i)].made(slots));
        if (PyDict_SetItem(made.get(), PyTuple_GET_ITEM(constant_, i), item.get()) < 0) throw PythonError();
      }
      return made.release();
    }
  }
  return nullptr;
}

// ---- patterns: what a call has to return

// (0,) anything, (1, slot, form) a tensor, (2, patterns) a list or tuple, (3, constant) an equal number or text
class Pattern {
 public:
  Pattern(PyObject* encoded, size_t slots);
  bool take(PyObject* result, Slots& slots) const;  // whether it fits; tensors are put into their slots

 private:
  enum class Kind : uint8_t { kAnything, kTensor, kItems, kConstant };
  Kind kind_;
  uint32_t slot_ = 0;
  PyObject* content_ = nullptr;  // the form, or the constant
  std::vector<Pattern> items_;
};

Pattern::Pattern(PyObject* encoded, size_t slots) : kind_(static_cast<Kind>(number_of(item_of(encoded, 0), 4))) {
  if (kind_ == Kind::kAnything) return;
  PyObject* content = item_of(encoded, 1);
  if (kind_ == Kind::kConstant) {
    content_ = content;
  } else if (kind_ == Kind::kTensor) {
    slot_ = number_of(content, slots);
    content_ = item_of(encoded, 2);
    if (!PyBytes_CheckExact(content_)) throw Malformed();
  } else {
    if (!PyTuple_CheckExact(content)) throw Malformed();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(content); ++i) items_.emplace_back(item_of(content, i), slots);
  }
}

bool Pattern::take(PyObject* result, Slots& slots) const {
  switch (kind_) {
    case Kind::kAnything:
      return true;
    case Kind::kConstant:
      return is_same_value(result, content_);
    case Kind::kTensor:
      if (!is_exact_tensor(result) ||
          !has_form(unwrap(result), {PyBytes_AS_STRING(content_), static_cast<size_t>(PyBytes_GET_SIZE(content_))}))
        return false;
      slots[slot_] = Owned::borrow(result);
      return true;
    case Kind::kItems: {
      if (!PyList_Check(result) && !PyTuple_Check(result)) return false;
      if (PySequence_Fast_GET_SIZE(result) != static_cast<Py_ssize_t>(items_.size())) return false;
      for (size_t i = 0; i < items_.size(); ++i)
        if (!items_[i].take(PySequence_Fast_GET_ITEM(result, static_cast<Py_ssize_t>(i)), slots)) return false;
      return true;
    }
  }
  return false;
}

// ---- lists

// One call: (function, arguments, names of the last of them or None, pattern, slots that nobody needs afterwards,
// whether gradients were on).
struct Step {
  PyObject* function;
  std::vector<Value> arguments;
  PyObject* names;
  Pattern result;
  std::vector<uint32_t> released;
  bool records;
};

Step step_of(PyObject* encoded, size_t slots) {
  PyObject *arguments = item_of(encoded, 1), *names = item_of(encoded, 2), *released = item_of(encoded, 4);
  if (!PyTuple_CheckExact(arguments) || !PyTuple_CheckExact(released)) throw Malformed();
  if (names == Py_None) names = nullptr;
  if (names && (!PyTuple_CheckExact(names) || PyTuple_GET_SIZE(names) > PyTuple_GET_SIZE(arguments))) throw Malformed();
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
    if (!PyUnicode_CheckExact(PyTuple_GET_ITEM(names, i))) throw Malformed();
  Step step{item_of(encoded, 0), {}, names, Pattern(item_of(encoded, 3), slots), {}, item_of(encoded, 5) == Py_True};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arguments); ++i)
    step.arguments.emplace_back(item_of(arguments, i), slots);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(released); ++i)
    step.released.push_back(number_of(item_of(released, i), slots));
  return step;
}

class Steps {
 public:
  // (number of inputs, number of slots, steps, result). The first slots are the inputs.
  explicit Steps(PyObject* encoded);
  size_t inputs() const { return inputs_; }
  // What the list returns, or null: then an error is set, or a result did not fit.
  PyObject* run(Slots& slots) const;
  size_t slots() const { return slots_; }
  bool is_repeatable = true;  // whether the function may be called after some steps have run

 private:
  size_t inputs_, slots_;
  std::vector<Step> steps_;
  std::optional<Value> result_;
};

Steps::Steps(PyObject* encoded) {
  constexpr size_t kMost = 1u << 24;
  slots_ = number_of(item_of(encoded, 1), kMost);
  inputs_ = number_of(item_of(encoded, 0), slots_ + 1);
  PyObject* steps = item_of(encoded, 2);
  if (!PyTuple_CheckExact(steps)) throw Malformed();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); ++i) steps_.push_back(step_of(item_of(steps, i), slots_));
  result_.emplace(item_of(encoded, 3), slots_);
}

// The values of a call's arguments, which live until it has been made.
class CallArguments {
 public:
  CallArguments(const Step& step, const Slots& slots) {
    values_.reserve(step.arguments.size());
    objects_.reserve(step.arguments.size() + 1);
    objects_.push_back(nullptr);  // a place for what the called function puts before them
    for (const Value& each : step.arguments) {
      values_.emplace_back(each.made(slots));
      objects_.push_back(values_.back().get());
    }
  }
  PyObject* const* begin() const { return objects_.data() + 1; }

 private:
  std::vector<Owned> values_;
  std::vector<PyObject*> objects_;
};

PyObject* Steps::run(Slots& slots) const {
  const ModeGuard modes(0, true);
  for (const Step& step : steps_) {
    set_modes(mode_bit::kNoGrad, !step.records);
    Owned result;
    {
      const CallArguments arguments(step, slots);
      const size_t named = step.names ? static_cast<size_t>(PyTuple_GET_SIZE(step.names)) : 0;
      const size_t by_place = step.arguments.size() - named;
      result = Owned(
          PyObject_Vectorcall(step.function, arguments.begin(), by_place | PY_VECTORCALL_ARGUMENTS_OFFSET, step.names));
    }
    if (!result || !step.result.take(result.get(), slots)) return nullptr;
    for (const uint32_t slot : step.released) slots[slot] = Owned();
  }
  return result_->made(slots);
}

struct CallList {
  PyObject_HEAD PyObject* tuple;  // what the steps point into
  Steps* steps;
};

PyTypeObject* call_list_type = nullptr;

PyObject* new_call_list(PyTypeObject* type, PyObject* args, PyObject*) try {
  PyObject* tuple;
  int is_repeatable;
  if (!PyArg_ParseTuple(args, "O!p", &PyTuple_Type, &tuple, &is_repeatable)) return nullptr;
  auto steps = std::make_unique<Steps>(tuple);
  steps->is_repeatable = is_repeatable != 0;
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  reinterpret_cast<CallList*>(self)->tuple = Py_NewRef(tuple);
  reinterpret_cast<CallList*>(self)->steps = steps.release();
  return self;
} catch (const Malformed&) {
  return PyErr_Format(PyExc_TypeError, "_CallList(): the list is malformed");
} catch (...) {
  return raise_current_exception();
}

int list_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<CallList*>(self)->tuple);
  return 0;
}
int list_clear(PyObject* self) {
  auto* list = reinterpret_cast<CallList*>(self);
  delete std::exchange(list->steps, nullptr);  // they point into the tuple
  Py_CLEAR(list->tuple);
  return 0;
}
void list_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  list_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

// Runs a list for tensors. The list is kept alive meanwhile: another thread may let it go.
PyObject* run_list(PyObject* list, Slots slots) {
  const Owned kept = Owned::borrow(list);
  const Steps* steps = reinterpret_cast<CallList*>(list)->steps;
  if (!steps || slots.size() != steps->inputs())
    return PyErr_Format(PyExc_TypeError, "the list takes another number of tensors");
  slots.resize(steps->slots());
  PyObject* result = steps->run(slots);
  // An error in a list that changes nothing but what it made is the function's to raise, with the lines of the program.
  if (!result && steps->is_repeatable && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
  if (!result && !steps->is_repeatable && !PyErr_Occurred())
    PyErr_SetString(PyExc_RuntimeError,
                    "a compiled function was replayed, and a tensor in it has another form than in the calls before, "
                    "after others had been changed. Set MICA_COMPILER_REPLAY=0 and report this");
  return result;
}

// list.run(tensors): the result, or NotImplemented where the function has to be called.
PyObject* list_run(PyObject* self, PyObject* tensors) try {
  if (!PyList_CheckExact(tensors)) return PyErr_Format(PyExc_TypeError, "run() takes a list of tensors");
  Slots slots;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors); ++i) {
    if (!is_tensor(PyList_GET_ITEM(tensors, i))) return PyErr_Format(PyExc_TypeError, "run() takes a list of tensors");
    slots.push_back(Owned::borrow(PyList_GET_ITEM(tensors, i)));
  }
  PyObject* result = run_list(self, std::move(slots));
  if (result || PyErr_Occurred()) return result;
  Py_RETURN_NOTIMPLEMENTED;
} catch (...) {
  return raise_current_exception();
}

bool add_list(PyObject* module) {
  static PyMethodDef methods[] = {
      {"run", list_run, METH_O,
       "The result for a list of tensors, or NotImplemented where the function has to be called."},
      {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_call_list)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(list_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(list_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(list_clear)},
                                {Py_tp_methods, methods},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch._C._CallList", sizeof(CallList), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  call_list_type = add_type(module, &spec);
  return call_list_type != nullptr;
}

// ---- known calls

// A call of a compiled function, known by its arguments. Each argument is a tuple: (type, form) of a tensor, or
// (value,).
struct KnownCall {
  PyObject_HEAD PyObject *arguments, *names, *snapshot, *list;
  PyObject* state;   // a tuple of tensors that the function reads besides, in the order of their addresses
  Py_ssize_t count;  // how often it was made again
  uint32_t modes;
  DType dtype;
};

uint32_t lasting_modes() { return thread_modes & ~mode_bit::kRecord; }

bool is_known_argument(PyObject* argument) {
  if (!PyTuple_CheckExact(argument)) return false;
  if (PyTuple_GET_SIZE(argument) == 1) return true;
  return PyTuple_GET_SIZE(argument) == 2 && PyType_Check(PyTuple_GET_ITEM(argument, 0)) &&
         PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(argument, 0)), tensor_type) &&
         PyBytes_CheckExact(PyTuple_GET_ITEM(argument, 1));
}

PyObject* new_known_call(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *arguments, *names, *snapshot, *list, *state;
  if (!PyArg_ParseTuple(args, "O!O!OO!O!", &PyTuple_Type, &arguments, &PyTuple_Type, &names, &snapshot, call_list_type,
                        &list, &PyTuple_Type, &state))
    return nullptr;
  bool fits = is_snapshot(snapshot) && PyTuple_GET_SIZE(names) <= PyTuple_GET_SIZE(arguments);
  size_t tensors = 0;
  for (Py_ssize_t i = 0; fits && i < PyTuple_GET_SIZE(arguments); ++i) {
    PyObject* argument = PyTuple_GET_ITEM(arguments, i);
    fits = is_known_argument(argument);
    tensors += fits && PyTuple_GET_SIZE(argument) == 2;
  }
  fits = fits && tensors == reinterpret_cast<CallList*>(list)->steps->inputs();
  if (!fits) return PyErr_Format(PyExc_TypeError, "_KnownCall(): what it is given is malformed");
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  auto* known = reinterpret_cast<KnownCall*>(self);
  known->arguments = Py_NewRef(arguments);
  known->names = Py_NewRef(names);
  known->snapshot = Py_NewRef(snapshot);
  known->list = Py_NewRef(list);
  known->state = Py_NewRef(state);
  known->modes = lasting_modes();
  known->dtype = default_dtype();
  return self;
}

int known_traverse(PyObject* self, visitproc visit, void* arg) {
  const auto* known = reinterpret_cast<KnownCall*>(self);
  Py_VISIT(Py_TYPE(self));
  for (PyObject* each : {known->arguments, known->names, known->snapshot, known->list, known->state}) Py_VISIT(each);
  return 0;
}
int known_clear(PyObject* self) {
  auto* known = reinterpret_cast<KnownCall*>(self);
  Py_CLEAR(known->arguments);
  Py_CLEAR(known->names);
  Py_CLEAR(known->snapshot);
  Py_CLEAR(known->list);
  Py_CLEAR(known->state);
  return 0;
}
void known_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  known_clear(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyTypeObject* known_call_type = nullptr;

bool add_known_call(PyObject* module) {
  static PyMemberDef members[] = {
      {"count", T_PYSSIZET, offsetof(KnownCall, count), READONLY, "How often it was made again."}, {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_known_call)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(known_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(known_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(known_clear)},
                                {Py_tp_members, members},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch._C._KnownCall", sizeof(KnownCall), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
                             slots};
  known_call_type = add_type(module, &spec);
  return known_call_type != nullptr;
}

bool are_same_names(PyObject* known, PyObject* names) {
  const Py_ssize_t count = names ? PyTuple_GET_SIZE(names) : 0;
  if (PyTuple_GET_SIZE(known) != count) return false;
  for (Py_ssize_t i = 0; i < count; ++i)
    if (!is_same_value(PyTuple_GET_ITEM(names, i), PyTuple_GET_ITEM(known, i))) return false;
  return true;
}

bool is_this_argument(PyObject* argument, PyObject* known) {
  PyObject* first = PyTuple_GET_ITEM(known, 0);
  if (PyTuple_GET_SIZE(known) == 1) return is_same_value(argument, first);
  if (Py_TYPE(argument) != reinterpret_cast<PyTypeObject*>(first) || has_attributes(argument)) return false;
  PyObject* form = PyTuple_GET_ITEM(known, 1);
  return has_form(unwrap(argument), {PyBytes_AS_STRING(form), static_cast<size_t>(PyBytes_GET_SIZE(form))});
}

// Whether an argument is one of the tensors that the function reads itself: it may ask whether they are the same.
bool is_among(PyObject* argument, PyObject* sorted) {
  PyObject** begin = reinterpret_cast<PyTupleObject*>(sorted)->ob_item;
  return std::binary_search(begin, begin + PyTuple_GET_SIZE(sorted), argument, std::less<PyObject*>());
}

// Whether a profiler or a debugger wants to see Python run.
bool is_python_watched() {
  const PyThreadState* state = PyThreadState_Get();
  return state->c_profilefunc || state->c_tracefunc;
}

}  // namespace

bool is_known_call(PyObject* object) { return Py_IS_TYPE(object, known_call_type); }

bool is_this_call(PyObject* object, PyObject* const* args, size_t nargs, PyObject* names) {
  const auto* known = reinterpret_cast<KnownCall*>(object);
  const Py_ssize_t by_name = names ? PyTuple_GET_SIZE(names) : 0;
  const Py_ssize_t count = PyVectorcall_NARGS(nargs) + by_name;
  if (!known->arguments || count != PyTuple_GET_SIZE(known->arguments) || known->modes != lasting_modes() ||
      known->dtype != default_dtype() || !are_same_names(known->names, names) || is_python_watched())
    return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_this_argument(args[i], PyTuple_GET_ITEM(known->arguments, i))) return false;
    if (!is_tensor(args[i])) continue;
    if (is_among(args[i], known->state)) return false;
    for (Py_ssize_t before = 0; before < i; ++before)
      if (args[before] == args[i]) return false;  // each tensor has a slot of its own
  }
  return snapshot_holds(known->snapshot);
}

PyObject* make_again(PyObject* object, PyObject* const* args) {
  auto* known = reinterpret_cast<KnownCall*>(object);
  ++known->count;
  const Owned list = Owned::borrow(known->list);
  Slots slots;
  slots.reserve(reinterpret_cast<CallList*>(list.get())->steps->slots());
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(known->arguments); ++i)
    if (PyTuple_GET_SIZE(PyTuple_GET_ITEM(known->arguments, i)) == 2) slots.push_back(Owned::borrow(args[i]));
  return run_list(list.get(), std::move(slots));
}

bool add_call_lists(PyObject* module) { return add_list(module) && add_known_call(module); }

}  // namespace mica::python
