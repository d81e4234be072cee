// Compares what a replayed function has read with what it finds now (mica/_dynamo/replay/state.py).
//
// A snapshot is a list of records: tuples of a kind, an object and what the object held. Values are the same if they
// are the same objects, or equal numbers or texts. No Python code runs here, so that a comparison of thousands of
// records takes microseconds.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "modes/modes.h"
#include "modes/snapshot.h"
#include "operations/entry.h"
#include "tensor/tensor_object.h"

namespace mica::python {

bool is_same_value(PyObject* now, PyObject* before) {
  if (now == before) return true;
  if (!now || !before || Py_TYPE(now) != Py_TYPE(before)) return false;
  if (PyFloat_CheckExact(now)) {  // by their bits: 0.0 equals -0.0, and a NaN equals nothing
    const double a = PyFloat_AS_DOUBLE(now), b = PyFloat_AS_DOUBLE(before);
    return std::memcmp(&a, &b, sizeof a) == 0;
  }
  if (!PyLong_CheckExact(now) && !PyUnicode_CheckExact(now)) return false;
  return PyObject_RichCompareBool(now, before, Py_EQ) == 1;
}

TensorForm::TensorForm(const Tensor& t) {
  facts_[size_++] = static_cast<int64_t>(t.dtype()) | static_cast<int64_t>(t.layout()) << 8 |
                    static_cast<int64_t>(t.device().type()) << 16 | static_cast<int64_t>(t.requires_grad()) << 24 |
                    static_cast<int64_t>(t.impl()->bits) << 32;
  facts_[size_++] = t.device().index();
  facts_[size_++] = t.dim();
  for (const int64_t size : t.sizes()) facts_[size_++] = size;
  for (const int64_t stride : t.strides()) facts_[size_++] = stride;
}

bool has_form(const Tensor& t, std::string_view form) {
  return t.defined() && t.dim() <= kMostDims && TensorForm(t).bytes() == form;
}

bool has_attributes(PyObject* tensor) {
  PyObject* dict = reinterpret_cast<TensorObject*>(tensor)->dict;
  return dict && PyDict_GET_SIZE(dict) > 0;
}

namespace {

enum Kind : long { kDict, kSequence, kCell, kTensor, kEntry, kClass, kSet, kFunction, kWeak, kForm, kType };

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
constexpr size_t kMostFacts = 6 + 2 * kMostDims;

std::string_view bytes_of(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))};
}

bool is_same_tensor(PyObject* tensor, const char* before, size_t bytes) {
  const Tensor& t = unwrap(tensor);
  if (t.dim() > kMostDims) return false;
  int64_t facts[kMostFacts];
  const size_t size = facts_of(t, facts);
  return size == bytes && std::memcmp(facts, before, size) == 0;
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

bool is_same(const Record& r) {
  switch (r.kind) {
    case kDict:
      return is_same_dict(r.object, r.before, r.last);
    case kSequence:
      return is_same_sequence(r.object, r.before);
    case kCell: {
      PyObject* now = PyCell_GET(r.object);
      return now ? is_same_value(now, r.before) : r.before == Py_Ellipsis;
    }
    case kTensor:
      return is_same_tensor(r.object, PyBytes_AS_STRING(r.before), static_cast<size_t>(PyBytes_GET_SIZE(r.before)));
    case kForm:
      return has_form(unwrap(r.object), bytes_of(r.before));
    case kType:
      return Py_TYPE(r.object) == reinterpret_cast<PyTypeObject*>(r.before);
    case kEntry: {
      PyObject* now = PyDict_GetItemWithError(r.object, r.before);
      return now ? is_same_value(now, r.last) : r.last == Py_Ellipsis;
    }
    case kClass:
      return is_same_dict(reinterpret_cast<PyTypeObject*>(r.object)->tp_dict, r.before, r.last);
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

// The dict whose changes a record is about, or null.
PyObject* dict_of(const Record& r) {
  if (r.kind == kDict || r.kind == kEntry) return r.object;
  return r.kind == kClass ? reinterpret_cast<PyTypeObject*>(r.object)->tp_dict : nullptr;
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
    case kForm:
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
    case kType:
      return PyType_Check(r.before);
    default:
      return false;
  }
}

// The records in the order in which they are compared. Most are of dicts, each somewhere else in memory, and the
// program has used the caches for other things since the last comparison. So dicts go by their addresses, and each
// object is asked for some steps before it is looked at.
class Comparison {
 public:
  explicit Comparison(std::vector<Record> records);
  // The number of the first record that no longer holds, or -1.
  Py_ssize_t first_difference();
  Py_ssize_t find_difference();  // the number of any record that no longer holds, or -1
  void clear();

 private:
  struct Watched {
    PyObject* dict;
    uint64_t version;       // when its entries were last found to be the same
    uint32_t begin, count;  // its records, in order_
  };
  struct Facts {
    PyObject* tensor;
    uint32_t number;        // of the record
    uint32_t begin, bytes;  // in facts_
    bool is_form;
  };
  struct Set {
    PyObject* set;
    uint32_t number;                // of the record
    std::vector<setentry> entries;  // as they lie in the set's table
  };
  static constexpr size_t kAhead = 12;

  std::vector<Record> records_;
  std::vector<Watched> watched_;
  std::vector<uint32_t> order_;  // the numbers of all records of dicts, by dict
  std::vector<Facts> tensors_;
  std::vector<char> facts_;
  std::vector<std::pair<PyObject*, const PyTypeObject*>> types_;
  std::vector<uint32_t> typed_;  // the numbers of records of types, by the objects' addresses
  std::vector<Set> sets_;
  std::vector<uint32_t> others_;
};

// A set whose table is the same, byte for byte, holds the same objects. Python compares sets by looking each object up.
std::vector<setentry> entries_of(PyObject* set) {
  const auto* s = reinterpret_cast<const PySetObject*>(set);
  return {s->table, s->table + s->mask + 1};
}
bool has_entries(PyObject* set, const std::vector<setentry>& entries) {
  const auto* s = reinterpret_cast<const PySetObject*>(set);
  return static_cast<size_t>(s->mask) + 1 == entries.size() &&
         std::memcmp(s->table, entries.data(), entries.size() * sizeof(setentry)) == 0;
}

Comparison::Comparison(std::vector<Record> records) : records_(std::move(records)) {
  for (uint32_t i = 0; i < records_.size(); ++i) {
    const Record& r = records_[i];
    if (dict_of(r)) {
      order_.push_back(i);
    } else if (r.kind == kTensor || r.kind == kForm) {
      const auto bytes = static_cast<uint32_t>(PyBytes_GET_SIZE(r.before));
      tensors_.push_back({r.object, i, static_cast<uint32_t>(facts_.size()), bytes, r.kind == kForm});
      facts_.insert(facts_.end(), PyBytes_AS_STRING(r.before), PyBytes_AS_STRING(r.before) + bytes);
    } else if (r.kind == kType) {
      typed_.push_back(i);
    } else if (r.kind == kSet) {
      if (!PyFrozenSet_Check(r.object)) sets_.push_back({r.object, i, entries_of(r.object)});
    } else if (r.kind != kSequence || !PyTuple_Check(r.object)) {
      others_.push_back(i);  // tuples, and frozen sets, stay what they are
    }
  }
  std::stable_sort(order_.begin(), order_.end(), [this](uint32_t a, uint32_t b) {
    return std::less<PyObject*>()(dict_of(records_[a]), dict_of(records_[b]));
  });
  std::stable_sort(typed_.begin(), typed_.end(), [this](uint32_t a, uint32_t b) {
    return std::less<PyObject*>()(records_[a].object, records_[b].object);
  });
  for (const uint32_t i : typed_)
    types_.push_back({records_[i].object, reinterpret_cast<const PyTypeObject*>(records_[i].before)});
  for (uint32_t at = 0; at < order_.size(); ++at) {
    PyObject* dict = dict_of(records_[order_[at]]);
    if (watched_.empty() || watched_.back().dict != dict) watched_.push_back({dict, 0, at, 0});
    ++watched_.back().count;
  }
}

Py_ssize_t Comparison::find_difference() {
  for (size_t i = 0; i < watched_.size(); ++i) {
    if (i + kAhead < watched_.size())
      __builtin_prefetch(reinterpret_cast<const char*>(watched_[i + kAhead].dict) + sizeof(PyObject));
    Watched& w = watched_[i];
    const uint64_t version = version_of(w.dict);
    if (version != 0 && version == w.version) continue;
    for (uint32_t at = w.begin; at < w.begin + w.count; ++at)
      if (!is_same(records_[order_[at]])) return order_[at];
    w.version = version;
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (i + kAhead < tensors_.size()) __builtin_prefetch(&unwrap(tensors_[i + kAhead].tensor));
    if (i + kAhead / 2 < tensors_.size()) __builtin_prefetch(unwrap(tensors_[i + kAhead / 2].tensor).impl());
    const Facts& f = tensors_[i];
    const char* before = facts_.data() + f.begin;
    const bool is_same =
        f.is_form ? has_form(unwrap(f.tensor), {before, f.bytes}) : is_same_tensor(f.tensor, before, f.bytes);
    if (!is_same) return f.number;
  }
  for (size_t i = 0; i < types_.size(); ++i) {
    if (i + kAhead < types_.size()) __builtin_prefetch(types_[i + kAhead].first);
    if (Py_TYPE(types_[i].first) != types_[i].second) return typed_[i];
  }
  for (const Set& each : sets_)
    if (!has_entries(each.set, each.entries) && !is_same(records_[each.number])) return each.number;
  for (size_t i = 0; i < others_.size(); ++i) {
    if (i + kAhead < others_.size())
      __builtin_prefetch(reinterpret_cast<const char*>(records_[others_[i + kAhead]].object) + sizeof(PyObject));
    if (!is_same(records_[others_[i]])) return others_[i];
  }
  return -1;
}

Py_ssize_t Comparison::first_difference() {
  const Py_ssize_t found = find_difference();
  for (Py_ssize_t i = 0; i < found; ++i)
    if (!PyErr_Occurred() && !is_same(records_[static_cast<size_t>(i)])) return i;
  return found;
}

void Comparison::clear() {
  records_.clear();
  watched_.clear();
  tensors_.clear();
  types_.clear();
  sets_.clear();
  others_.clear();
}

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
  snapshot_type = add_type(module, &spec);
  return snapshot_type != nullptr;
}

}  // namespace

bool is_snapshot(PyObject* object) { return Py_IS_TYPE(object, snapshot_type); }

bool snapshot_holds(PyObject* snapshot) {
  return reinterpret_cast<Snapshot*>(snapshot)->comparison->find_difference() < 0;
}

static PyObject* tensor_facts(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor) || unwrap(tensor).dim() > kMostDims)
    return PyErr_Format(PyExc_TypeError, "_tensor_facts() takes a tensor of at most 64 dimensions");
  int64_t facts[kMostFacts];
  const size_t size = facts_of(unwrap(tensor), facts);
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(facts), static_cast<Py_ssize_t>(size));
} catch (...) {
  return raise_current_exception();
}

static PyObject* tensor_form(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor) || unwrap(tensor).dim() > kMostDims)
    return PyErr_Format(PyExc_TypeError, "_tensor_form() takes a tensor of at most 64 dimensions");
  const TensorForm form(unwrap(tensor));
  return PyBytes_FromStringAndSize(form.bytes().data(), static_cast<Py_ssize_t>(form.bytes().size()));
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
      {"_tensor_form", tensor_form, METH_O, "What a tensor is but for values, address and history, as bytes."},
      {"_change_count", change_count, METH_O, nullptr},
      {"_count_change", count_change, METH_O, "Notes a change that no operation has counted."},
      {"_class_entries", class_entries, METH_O, nullptr},
      {}};
  return PyModule_AddFunctions(module, functions) == 0 && add_snapshot(module);
}

}  // namespace mica::python
