// A snapshot: all that a replayed function has read, as an object of Python's (mica/_dynamo/replay/state.py).
#include "modes/snapshot.h"

#include <memory>
#include <vector>

#include "modes/comparison.h"
#include "modes/modes.h"
#include "types/objects.h"

namespace mica::python {

namespace {

struct Snapshot {
  PyObject_HEAD PyObject* tuple;  // of records
  Comparison* comparison;
};

PyObject* new_snapshot(PyTypeObject* type, PyObject* args, PyObject*) try {
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &tuple)) return nullptr;
  std::vector<Record> records(static_cast<size_t>(PyTuple_GET_SIZE(tuple)));
  for (size_t i = 0; i < records.size(); ++i)
    if (!take_apart(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i)), records[i]))
      return PyErr_Format(PyExc_TypeError, "_Snapshot(): record %zu is malformed", i);
  auto comparison = std::make_unique<Comparison>(std::move(records));
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  reinterpret_cast<Snapshot*>(self)->tuple = Py_NewRef(tuple);
  reinterpret_cast<Snapshot*>(self)->comparison = comparison.release();
  return self;
} catch (...) {
  return raise_current_exception();
}

int snapshot_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<Snapshot*>(self)->tuple);
  return 0;
}
int snapshot_clear(PyObject* self) {
  auto* snapshot = reinterpret_cast<Snapshot*>(self);
  if (snapshot->comparison) snapshot->comparison->clear();  // the records point into the tuple
  Py_CLEAR(snapshot->tuple);
  return 0;
}
void snapshot_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  snapshot_clear(self);
  delete reinterpret_cast<Snapshot*>(self)->comparison;
  type->tp_free(self);
  Py_DECREF(type);
}

// The number of the first record that no longer holds, or -1.
PyObject* first_difference(PyObject* self, PyObject*) try {
  const Py_ssize_t number = reinterpret_cast<Snapshot*>(self)->comparison->first_difference();
  return PyErr_Occurred() ? nullptr : PyLong_FromSsize_t(number);
} catch (...) {
  return raise_current_exception();
}

PyTypeObject* snapshot_type = nullptr;

// The names and values of a class, as two tuples.
PyObject* class_entries(PyObject*, PyObject* type) {
  if (!PyType_Check(type) || !(reinterpret_cast<PyTypeObject*>(type)->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return PyErr_Format(PyExc_TypeError, "_class_entries() takes a class of Python's");
  PyObject* dict = reinterpret_cast<PyTypeObject*>(type)->tp_dict;
  Owned keys(PyDict_Keys(dict)), values(PyDict_Values(dict));
  if (!keys || !values) return nullptr;
  return Py_BuildValue("(NN)", PyList_AsTuple(keys.get()), PyList_AsTuple(values.get()));
}

// Whether a dict is where an object's attributes are: a class may say something else of __dict__.
PyObject* has_this_dict(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 2) return PyErr_Format(PyExc_TypeError, "_has_this_dict() takes an object and a dict");
  return PyBool_FromLong(PyDict_Check(args[1]) && dict_of_attributes(args[0]) == args[1]);
}

PyObject* state_of_function(PyObject*, PyObject* function) {
  if (!PyFunction_Check(function))
    return PyErr_Format(PyExc_TypeError, "_function_state() takes a function of Python's");
  return function_state(function);
}

}  // namespace

bool is_snapshot(PyObject* object) { return Py_IS_TYPE(object, snapshot_type); }

bool snapshot_holds(PyObject* snapshot) {
  return reinterpret_cast<Snapshot*>(snapshot)->comparison->find_difference() < 0;
}

bool add_snapshots(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_class_entries", class_entries, METH_O, nullptr},
      {"_function_state", state_of_function, METH_O, nullptr},
      {"_has_this_dict", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(has_this_dict)), METH_FASTCALL,
       nullptr},
      {}};
  static PyMethodDef methods[] = {{"first_difference", first_difference, METH_NOARGS,
                                   "The number of the first record that no longer holds, or -1."},
                                  {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(new_snapshot)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(snapshot_dealloc)},
                                {Py_tp_traverse, reinterpret_cast<void*>(snapshot_traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(snapshot_clear)},
                                {Py_tp_methods, methods},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch._C._Snapshot", sizeof(Snapshot), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
  snapshot_type = add_type(module, &spec);
  return snapshot_type != nullptr && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
