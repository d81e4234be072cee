// Lists of calls on tensors (mica/_dynamo/replay/call_lists.py).
//
// A list has the functions of C that a call of a compiled function called, in order, with their arguments: constants,
// and tensors by the slots in which earlier calls have left them. To make it again is to call these functions again. So
// it computes what the function would, bit for bit, as long as the function would call the same: a snapshot says so
// (snapshot.cpp), and the forms of all results are compared on the way.
#include "modes/call_list.h"

#include <memory>
#include <optional>
#include <utility>

#include "modes/modes.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"

namespace mica::python {

namespace {

// One call: (function, arguments, names of the last of them or None, pattern, slots that nobody needs afterwards,
// whether gradients were on).
struct Step {
  PyObject* function;
  std::vector<CallValue> arguments;
  PyObject* names;
  ResultPattern result;
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
  Step step{item_of(encoded, 0),           {}, names, ResultPattern(item_of(encoded, 3), slots), {},
            item_of(encoded, 5) == Py_True};
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
  std::optional<CallValue> result_;
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
    for (const CallValue& each : step.arguments) {
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

}  // namespace

// The list is kept alive meanwhile: another thread may let it go.
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

bool is_call_list(PyObject* object) { return Py_IS_TYPE(object, call_list_type); }
size_t inputs_of(PyObject* list) { return reinterpret_cast<CallList*>(list)->steps->inputs(); }
size_t slots_of(PyObject* list) { return reinterpret_cast<CallList*>(list)->steps->slots(); }

namespace {

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

}  // namespace

bool add_call_list(PyObject* module) {
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

}  // namespace mica::python
