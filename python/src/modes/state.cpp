// Compares what a replayed function has read with what it finds now (mica/_dynamo/replay/state.py).
//
// A snapshot is a list of records: tuples of a kind, an object and what the object held. Values are the same if they
// are the same objects, or equal numbers or texts. No Python code runs here, so that a comparison of thousands of
// records takes microseconds.
#include <cstring>
#include <memory>
#include <vector>

#include "modes/modes.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"

namespace mica::python {

namespace {

enum Kind : long { kDict, kSequence, kCell, kTensor, kEntry, kClass, kSet, kFunction, kWeak };

bool is_same_value(PyObject* now, PyObject* before) {
  if (now == before) return true;
  if (!now || !before || Py_TYPE(now) != Py_TYPE(before)) return false;
  if (!PyLong_CheckExact(now) && !PyFloat_CheckExact(now) && !PyUnicode_CheckExact(now)) return false;
  return PyObject_RichCompareBool(now, before, Py_EQ) == 1;
}

bool is_same_dict(PyObject* dict, PyObject* keys, PyObject* values) {
  if (!dict || PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(keys)) return false;
  Py_ssize_t position = 0, i = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (key != PyTuple_GET_ITEM(keys, i) && !is_same_value(key, PyTuple_GET_ITEM(keys, i))) return false;
    if (!is_same_value(value, PyTuple_GET_ITEM(values, i))) return false;
    ++i;
  }
  return true;
}

bool is_same_sequence(PyObject* sequence, PyObject* items) {
  const Py_ssize_t size = PyTuple_GET_SIZE(items);
  if (PySequence_Fast_GET_SIZE(sequence) != size) return false;
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!is_same_value(PySequence_Fast_GET_ITEM(sequence, i), PyTuple_GET_ITEM(items, i))) return false;
  return true;
}

// The facts that a kernel gets of a tensor, and of its gradient: everything but the values. For memory that the host
// reads, also how often it was changed.
size_t facts_of(const Tensor& t, int64_t* facts) {
  const TensorImpl* impl = t.impl();
  size_t n = 0;
  facts[n++] = static_cast<int64_t>(reinterpret_cast<uintptr_t>(t.view_of().data));
  facts[n++] = static_cast<int64_t>(t.dtype()) | static_cast<int64_t>(t.layout()) << 8 |
               static_cast<int64_t>(t.device().type()) << 16 | static_cast<int64_t>(t.requires_grad()) << 24 |
               static_cast<int64_t>(impl->bits) << 32;
  facts[n++] = t.device().index();
  const Tensor grad = impl->requires_grad_leaf ? t.grad() : Tensor();
  facts[n++] = grad.defined() ? static_cast<int64_t>(reinterpret_cast<uintptr_t>(grad.impl()->view.data)) : -1;
  facts[n++] = t.is_cpu() ? static_cast<int64_t>(t.version()) : -1;
  facts[n++] = t.dim();
  for (int64_t d = 0; d < t.dim(); ++d) facts[n++] = t.sizes()[static_cast<size_t>(d)];
  for (int64_t d = 0; d < t.dim(); ++d) facts[n++] = t.strides()[static_cast<size_t>(d)];
  return n * sizeof(int64_t);
}
constexpr size_t kMostFacts = 6 + 2 * 64;

bool is_same_tensor(PyObject* tensor, PyObject* before) {
  const Tensor& t = unwrap(tensor);
  if (t.dim() > 64) return false;
  int64_t facts[kMostFacts];
  const size_t size = facts_of(t, facts);
  return static_cast<Py_ssize_t>(size) == PyBytes_GET_SIZE(before) &&
         std::memcmp(facts, PyBytes_AS_STRING(before), size) == 0;
}

// Whether a function still has the same code and the same default objects. `before` is a tuple of the code, the
// defaults and the defaults by name.
bool is_same_function(PyObject* object, PyObject* before) {
  const auto* f = reinterpret_cast<PyFunctionObject*>(object);
  const auto or_none = [](PyObject* o) { return o ? o : Py_None; };
  return f->func_code == PyTuple_GET_ITEM(before, 0) && or_none(f->func_defaults) == PyTuple_GET_ITEM(before, 1) &&
         or_none(f->func_kwdefaults) == PyTuple_GET_ITEM(before, 2);
}

// Whether a weak reference is to the object at an address. A reference to an object that has gone is to none.
bool is_same_reference(PyObject* reference, PyObject* address) {
  PyObject* now = PyWeakref_GetObject(reference);
  return (now == Py_None ? nullptr : now) == PyLong_AsVoidPtr(address);
}

// A record in its parts. The snapshot keeps its tuple.
struct Record {
  Kind kind;
  PyObject *object, *before, *last;
  uint64_t version = 0;  // of the dict, when its entries were last found to be the same
};

// A number that is another one after every change of a dict, or 0 where Python has none. A dict whose number is the
// same need not be looked through, which is most of what a comparison takes.
uint64_t version_of([[maybe_unused]] PyObject* dict) {
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // 3.12 announces that 3.13 has none
  return dict ? reinterpret_cast<PyDictObject*>(dict)->ma_version_tag : 0;
#pragma GCC diagnostic pop
#else
  return 0;
#endif
}

template <class Compare>
bool is_same_version(Record& r, PyObject* dict, const Compare& compare) {
  const uint64_t version = version_of(dict);
  if (version != 0 && version == r.version) return true;
  if (!compare()) return false;
  r.version = version;
  return true;
}

bool is_same(Record& r) {
  switch (r.kind) {
    case kDict:
      return is_same_version(r, r.object, [&] { return is_same_dict(r.object, r.before, r.last); });
    case kSequence:
      return is_same_sequence(r.object, r.before);
    case kCell: {
      PyObject* now = PyCell_GET(r.object);
      return now ? is_same_value(now, r.before) : r.before == Py_Ellipsis;
    }
    case kTensor:
      return is_same_tensor(r.object, r.before);
    case kEntry:
      return is_same_version(r, r.object, [&] {
        PyObject* now = PyDict_GetItemWithError(r.object, r.before);
        return now ? is_same_value(now, r.last) : r.last == Py_Ellipsis;
      });
    case kClass: {
      PyObject* names = reinterpret_cast<PyTypeObject*>(r.object)->tp_dict;
      return is_same_version(r, names, [&] { return is_same_dict(names, r.before, r.last); });
    }
    case kSet:  // of numbers and texts
      if (PySet_GET_SIZE(r.object) == 0) return PySet_GET_SIZE(r.before) == 0;
      return PyObject_RichCompareBool(r.object, r.before, Py_EQ) == 1;
    case kFunction:
      return is_same_function(r.object, r.before);
    case kWeak:
      return is_same_reference(r.object, r.before);
  }
  return false;
}

// False where a record is malformed.
bool take_apart(PyObject* record, Record& r) {
  if (!PyTuple_CheckExact(record) || PyTuple_GET_SIZE(record) < 3) return false;
  const long kind = PyLong_AsLong(PyTuple_GET_ITEM(record, 0));
  PyErr_Clear();
  r = {static_cast<Kind>(kind), PyTuple_GET_ITEM(record, 1), PyTuple_GET_ITEM(record, 2),
       PyTuple_GET_SIZE(record) > 3 ? PyTuple_GET_ITEM(record, 3) : nullptr};
  const bool has_lists = PyTuple_CheckExact(r.before) && r.last && PyTuple_CheckExact(r.last) &&
                         PyTuple_GET_SIZE(r.last) == PyTuple_GET_SIZE(r.before);
  switch (kind) {
    case kDict:
      return PyDict_Check(r.object) && has_lists;
    case kSequence:
      return (PyList_Check(r.object) || PyTuple_Check(r.object)) && PyTuple_CheckExact(r.before);
    case kCell:
      return PyCell_Check(r.object);
    case kTensor:
      return is_tensor(r.object) && PyBytes_CheckExact(r.before);
    case kEntry:
      return PyDict_Check(r.object) && r.last;
    case kClass:
      return PyType_Check(r.object) && has_lists &&
             (reinterpret_cast<PyTypeObject*>(r.object)->tp_flags & Py_TPFLAGS_HEAPTYPE);
    case kSet:
      return PyAnySet_Check(r.object) && PyFrozenSet_CheckExact(r.before);
    case kFunction:
      return PyFunction_Check(r.object) && PyTuple_CheckExact(r.before) && PyTuple_GET_SIZE(r.before) == 3;
    case kWeak:
      return PyWeakref_CheckRefExact(r.object) && PyLong_CheckExact(r.before);
    default:
      return false;
  }
}

struct Snapshot {
  PyObject_HEAD PyObject* tuple;  // of records
  std::vector<Record>* records;
};

PyObject* new_snapshot(PyTypeObject* type, PyObject* args, PyObject*) try {
  PyObject* tuple;
  if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &tuple)) return nullptr;
  auto records = std::make_unique<std::vector<Record>>(static_cast<size_t>(PyTuple_GET_SIZE(tuple)));
  for (size_t i = 0; i < records->size(); ++i)
    if (!take_apart(PyTuple_GET_ITEM(tuple, static_cast<Py_ssize_t>(i)), (*records)[i]))
      return PyErr_Format(PyExc_TypeError, "_Snapshot(): record %zu is malformed", i);
  PyObject* self = type->tp_alloc(type, 0);
  if (!self) return nullptr;
  reinterpret_cast<Snapshot*>(self)->tuple = Py_NewRef(tuple);
  reinterpret_cast<Snapshot*>(self)->records = records.release();
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
  if (snapshot->records) snapshot->records->clear();  // the records point into the tuple
  Py_CLEAR(snapshot->tuple);
  return 0;
}
void snapshot_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  snapshot_clear(self);
  delete reinterpret_cast<Snapshot*>(self)->records;
  type->tp_free(self);
  Py_DECREF(type);
}

// The number of the first record that no longer holds, or -1.
PyObject* first_difference(PyObject* self, PyObject*) try {
  std::vector<Record>& records = *reinterpret_cast<Snapshot*>(self)->records;
  for (size_t i = 0; i < records.size(); ++i) {
    if (!is_same(records[i])) return PyErr_Occurred() ? nullptr : PyLong_FromSize_t(i);
  }
  return PyLong_FromLong(-1);
} catch (...) {
  return raise_current_exception();
}

bool add_snapshot(PyObject* module) {
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
  return add_type(module, &spec) != nullptr;
}

}  // namespace

static PyObject* tensor_facts(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor) || unwrap(tensor).dim() > 64)
    return PyErr_Format(PyExc_TypeError, "_tensor_facts() takes a tensor of at most 64 dimensions");
  int64_t facts[kMostFacts];
  const size_t size = facts_of(unwrap(tensor), facts);
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(facts), static_cast<Py_ssize_t>(size));
} catch (...) {
  return raise_current_exception();
}

// How often the tensor's memory was changed. It works for inference tensors too, which do not tell Python.
static PyObject* change_count(PyObject*, PyObject* tensor) {
  if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "_change_count() takes a tensor");
  return PyLong_FromUnsignedLong(unwrap(tensor).version());
}

static PyObject* count_change(PyObject*, PyObject* tensor) {
  if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "_count_change() takes a tensor");
  mark_changed(unwrap(tensor));
  Py_RETURN_NONE;
}

// The names and values of a class, as two tuples.
static PyObject* class_entries(PyObject*, PyObject* type) {
  if (!PyType_Check(type) || !(reinterpret_cast<PyTypeObject*>(type)->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return PyErr_Format(PyExc_TypeError, "_class_entries() takes a class of Python's");
  PyObject* dict = reinterpret_cast<PyTypeObject*>(type)->tp_dict;
  Owned keys(PyDict_Keys(dict)), values(PyDict_Values(dict));
  if (!keys || !values) return nullptr;
  return Py_BuildValue("(NN)", PyList_AsTuple(keys.get()), PyList_AsTuple(values.get()));
}

bool add_state(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_tensor_facts", tensor_facts, METH_O, "All that a kernel is given of a tensor but its values, as bytes."},
      {"_change_count", change_count, METH_O, nullptr},
      {"_count_change", count_change, METH_O, "Notes a change that no operation has counted."},
      {"_class_entries", class_entries, METH_O, nullptr},
      {}};
  return PyModule_AddFunctions(module, functions) == 0 && add_snapshot(module);
}

}  // namespace mica::python
