// What a replayed call asks for each time (mica/_dynamo/replay): the key of its arguments, where storages lie. And the
// hook that watches a call before it is captured.
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "modes/modes.h"
#include "modes/tensor_form.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"

namespace mica::python {

namespace {

// ---- keys of arguments

// Makes the key of a value: all that it is but for the values and addresses of tensors. Tensors and objects that it
// meets are put into lists. The types that are constants, and those of plain tensors, are given as tuples.
class KeyMaker {
 public:
  KeyMaker(PyObject* plain, PyObject* constants, PyObject* tensors, PyObject* objects)
      : plain_(plain), constants_(constants), tensors_(tensors), objects_(objects) {}
  // A new reference. Null without an error: the value is of a kind that has no key.
  PyObject* make(PyObject* value);

 private:
  PyObject* make_tensor(PyObject* value);
  PyObject* make_items(PyObject* kind, PyObject* sequence);
  PyObject* make_dict(PyObject* dict);

  PyObject *plain_, *constants_, *tensors_, *objects_;
};

bool has_type(PyObject* types, PyTypeObject* type) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); ++i)
    if (PyTuple_GET_ITEM(types, i) == reinterpret_cast<PyObject*>(type)) return true;
  return false;
}

PyObject* KeyMaker::make_tensor(PyObject* value) {
  const Tensor& t = unwrap(value);
  if (t.layout() != Layout::Strided || (t.impl()->bits & tensor_bit::kSpecial) || t.dim() > kMostDims ||
      has_attributes(value))
    return nullptr;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors_); ++i)
    if (PyList_GET_ITEM(tensors_, i) == value) return Py_BuildValue("(sn)", "again", i);
  if (PyList_Append(tensors_, value) < 0) return nullptr;
  const TensorForm form(t);
  return Py_BuildValue("(Oy#)", Py_TYPE(value), form.bytes().data(), static_cast<Py_ssize_t>(form.bytes().size()));
}

PyObject* KeyMaker::make_items(PyObject* kind, PyObject* sequence) {
  // Of a copy: objects are made here, so that the garbage collector may run, and with it code that changes a list.
  Owned items(PySequence_Tuple(sequence));
  if (!items) return nullptr;
  const Py_ssize_t size = PyTuple_GET_SIZE(items.get());
  Owned key(PyTuple_New(size + 1));
  if (!key) return nullptr;
  PyTuple_SET_ITEM(key.get(), 0, Py_NewRef(kind));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = make(PyTuple_GET_ITEM(items.get(), i));
    if (!item) return nullptr;
    PyTuple_SET_ITEM(key.get(), i + 1, item);
  }
  return key.release();
}

PyObject* KeyMaker::make_dict(PyObject* dict) {
  Owned key(PyTuple_New(PyDict_GET_SIZE(dict) + 1));
  if (!key) return nullptr;
  PyTuple_SET_ITEM(key.get(), 0, Py_NewRef(reinterpret_cast<PyObject*>(&PyDict_Type)));
  Py_ssize_t position = 0, i = 0;
  PyObject *name, *value;
  while (i + 1 < PyTuple_GET_SIZE(key.get()) && PyDict_Next(dict, &position, &name, &value)) {
    const Owned its_name = Owned::borrow(name), its_value = Owned::borrow(value);
    const Owned first(make(name));
    const Owned second(first ? make(value) : nullptr);
    PyObject* pair = second ? PyTuple_Pack(2, first.get(), second.get()) : nullptr;
    if (!pair) return nullptr;
    PyTuple_SET_ITEM(key.get(), ++i, pair);
  }
  return i + 1 == PyTuple_GET_SIZE(key.get()) ? key.release() : nullptr;
}

PyObject* KeyMaker::make(PyObject* value) {
  PyTypeObject* type = Py_TYPE(value);
  auto* kind = reinterpret_cast<PyObject*>(type);
  if (has_type(plain_, type)) return make_tensor(value);
  if (type == &PyFloat_Type || type == &PyComplex_Type) {  // by their bits: 0.0 equals -0.0, and a NaN equals nothing
    const Py_complex number = PyComplex_AsCComplex(value);
    return Py_BuildValue("(Oy#)", kind, reinterpret_cast<const char*>(&number), Py_ssize_t{sizeof number});
  }
  if (has_type(constants_, type)) return PyTuple_Pack(2, kind, value);
  if (type == &PyList_Type || type == &PyTuple_Type || type == &PyDict_Type) {
    if (Py_EnterRecursiveCall(" in the arguments of a compiled function")) return nullptr;
    PyObject* key = type == &PyDict_Type ? make_dict(value) : make_items(kind, value);
    Py_LeaveRecursiveCall();
    return key;
  }
  if (is_tensor(value)) return nullptr;
  if (PyList_Append(objects_, value) < 0) return nullptr;
  return Py_BuildValue("(sNO)", "object", PyLong_FromVoidPtr(value), kind);
}

// ---- a call that is watched

// A call, watched by the interpreter's hook: the code of each function of Python that ran, with its globals, and the
// reason why a function of C that was called cannot be replayed.
class Watch {
 public:
  Watch(PyObject* codes, PyObject* refusal_of) : codes_(codes), refusal_of_(refusal_of) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  int note(PyFrameObject* frame, int event, PyObject* called);
  PyObject* reason() const { return reason_ ? reason_.get() : Py_None; }
  Py_ssize_t calls() const { return calls_; }  // of functions of Python

 private:
  int note_function(PyFrameObject* frame);
  int note_call_of_c(PyObject* called);
  void keep(PyObject* object) { kept_.push_back(Owned::borrow(object)); }

  PyObject *codes_, *refusal_of_;
  Py_ssize_t calls_ = 0;
  Owned reason_;
  // What was met before. Code and owners are kept alive, so that their addresses stay theirs.
  std::set<const PyObject*> functions_;
  std::set<std::tuple<const PyMethodDef*, const PyObject*, const PyObject*>> of_c_;
  std::vector<Owned> kept_;
};

int Watch::note_function(PyFrameObject* frame) {
  ++calls_;
  Owned code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
  if (!functions_.insert(code.get()).second) return 0;
  keep(code.get());
  Owned globals(PyFrame_GetGlobals(frame));
  return globals && PyDict_SetDefault(codes_, code.get(), globals.get()) ? 0 : -1;
}

int Watch::note_call_of_c(PyObject* called) {
  if (reason_) return 0;
  if (PyCFunction_Check(called)) {
    const auto* function = reinterpret_cast<PyCFunctionObject*>(called);
    PyObject* self = function->m_self;
    PyObject* owner = self && !PyModule_Check(self) ? reinterpret_cast<PyObject*>(Py_TYPE(self)) : self;
    if (!of_c_.insert({function->m_ml, function->m_module, owner}).second) return 0;
    if (owner) keep(owner);
    if (function->m_module) keep(function->m_module);
  }
  Owned reason(PyObject_CallOneArg(refusal_of_, called));
  if (!reason) return -1;
  if (reason.get() != Py_None) reason_ = std::move(reason);
  return 0;
}

int Watch::note(PyFrameObject* frame, int event, PyObject* called) try {
  if (event == PyTrace_CALL) return note_function(frame);
  return event == PyTrace_C_CALL ? note_call_of_c(called) : 0;
} catch (...) {
  return raise_current_exception_int();
}

int watch_hook(PyObject* capsule, PyFrameObject* frame, int event, PyObject* called) {
  auto* watch = static_cast<Watch*>(PyCapsule_GetPointer(capsule, nullptr));
  return watch ? watch->note(frame, event, called) : -1;
}

}  // namespace

static PyObject* call_key(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 6 || !PyTuple_Check(args[2]) || !PyTuple_Check(args[3]) || !PyList_CheckExact(args[4]) ||
      !PyList_CheckExact(args[5]))
    return PyErr_Format(PyExc_TypeError, "_call_key() takes arguments, two tuples of types and two lists");
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[2]); ++i)
    if (!PyType_Check(PyTuple_GET_ITEM(args[2], i)) ||
        !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(args[2], i)), tensor_type))
      return PyErr_Format(PyExc_TypeError, "_call_key() takes types of tensors");
  KeyMaker maker(args[2], args[3], args[4], args[5]);
  Owned by_place(maker.make(args[0])), by_name(by_place ? maker.make(args[1]) : nullptr);
  if (by_name) return PyTuple_Pack(2, by_place.get(), by_name.get());
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

static PyObject* storage_address(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "_storage_address() takes a tensor");
  const Storage& storage = unwrap(tensor).impl()->storage;
  return PyLong_FromVoidPtr(storage ? storage->data() : nullptr);
} catch (...) {
  return raise_current_exception();
}

static PyObject* count_changes(PyObject*, PyObject* tensors) {
  if (!PyList_CheckExact(tensors)) return PyErr_Format(PyExc_TypeError, "_count_changes() takes a list of tensors");
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(tensors); ++i) {
    PyObject* tensor = PyList_GET_ITEM(tensors, i);
    if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "_count_changes() takes a list of tensors");
    mark_changed(unwrap(tensor));
  }
  Py_RETURN_NONE;
}

static PyObject* call_watched(PyObject*, PyObject* const* args, Py_ssize_t count) try {
  if (count != 5 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2]) || !PyDict_CheckExact(args[3]))
    return PyErr_Format(PyExc_TypeError, "_call_watched() takes a function, a tuple, a dict, a dict and a function");
  Watch watch(args[3], args[4]);
  Owned capsule(PyCapsule_New(&watch, nullptr, nullptr));
  if (!capsule) return nullptr;
  PyEval_SetProfile(watch_hook, capsule.get());
  Owned result(PyObject_Call(args[0], args[1], args[2]));
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyEval_SetProfile(nullptr, nullptr);
  PyErr_Restore(type, value, traceback);
  if (!result) return nullptr;
  return Py_BuildValue("(OOn)", result.get(), watch.reason(), watch.calls());
} catch (...) {
  return raise_current_exception();
}

bool add_replay(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_call_key", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_key)), METH_FASTCALL,
       "The key of (args, kwargs), or None; tensors and objects that are met are put into two lists."},
      {"_storage_address", storage_address, METH_O, nullptr},
      {"_count_changes", count_changes, METH_O, "Notes changes of tensors that no operation has counted."},
      {"_call_watched", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_watched)), METH_FASTCALL,
       "A call's result, why it cannot be replayed, and how many functions of Python it called; code that ran is put "
       "into a dict."},
      {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
