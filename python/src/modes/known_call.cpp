// Calls of compiled functions that are made again by a list (mica/_dynamo/replay/calls.py): whether a call is one that
// is known is found out here, without Python.
#include "modes/known_call.h"

#include <structmember.h>

#include <algorithm>
#include <functional>

#include "modes/call_list.h"
#include "modes/comparison.h"
#include "modes/modes.h"
#include "modes/snapshot.h"
#include "modes/tensor_form.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"

namespace mica::python {

namespace {

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
  if (!PyArg_ParseTuple(args, "O!O!OOO!", &PyTuple_Type, &arguments, &PyTuple_Type, &names, &snapshot, &list,
                        &PyTuple_Type, &state))
    return nullptr;
  bool fits = is_snapshot(snapshot) && is_call_list(list) && PyTuple_GET_SIZE(names) <= PyTuple_GET_SIZE(arguments);
  size_t tensors = 0;
  for (Py_ssize_t i = 0; fits && i < PyTuple_GET_SIZE(arguments); ++i) {
    PyObject* argument = PyTuple_GET_ITEM(arguments, i);
    fits = is_known_argument(argument);
    tensors += fits && PyTuple_GET_SIZE(argument) == 2;
  }
  fits = fits && tensors == inputs_of(list);
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
  slots.reserve(slots_of(list.get()));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(known->arguments); ++i)
    if (PyTuple_GET_SIZE(PyTuple_GET_ITEM(known->arguments, i)) == 2) slots.push_back(Owned::borrow(args[i]));
  return run_list(list.get(), std::move(slots));
}

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

}  // namespace mica::python
