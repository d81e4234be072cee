// Compares what a replayed function has read with what it finds now (mica/_dynamo/replay/state.py).
//
// A record is a tuple of a kind, an object and what the object held. Values are the same if they are the same objects,
// or equal numbers or texts. No Python code runs here, so that a comparison of thousands of records takes microseconds.
#include "modes/comparison.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string_view>

#include "modes/tensor_form.h"
#include "tensor/tensor_object.h"

namespace mica::python {

PyObject* dict_of_attributes(PyObject* object) {
  PyObject** place = _PyObject_GetDictPtr(object);
  return place ? *place : nullptr;
}

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

namespace {

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

// Whether a set has these items in this order. A set that equals another may have 1 where that has 1.0.
bool is_same_set(PyObject* set, PyObject* items) {
  if (PySet_GET_SIZE(set) != PyTuple_GET_SIZE(items)) return false;
  const auto* s = reinterpret_cast<const PySetObject*>(set);
  Py_ssize_t i = 0;
  for (const setentry* entry = s->table; entry <= s->table + s->mask; ++entry) {
    if (!entry->key || entry->hash == -1) continue;  // free, or left by what was taken out
    if (!is_same_value(entry->key, PyTuple_GET_ITEM(items, i++))) return false;
  }
  return true;
}

std::string_view bytes_of(PyObject* bytes) {
  return {PyBytes_AS_STRING(bytes), static_cast<size_t>(PyBytes_GET_SIZE(bytes))};
}

// What function_state() says, without references.
std::array<PyObject*, 4> parts_of(PyObject* function) {
  const auto* f = reinterpret_cast<PyFunctionObject*>(function);
  const auto or_none = [](PyObject* o) { return o ? o : Py_None; };
  // Python makes the dict of a function when it is asked for.
  PyObject* attributes = f->func_dict && PyDict_GET_SIZE(f->func_dict) > 0 ? f->func_dict : Py_None;
  return {f->func_code, or_none(f->func_defaults), or_none(f->func_kwdefaults), attributes};
}

bool is_same_function(PyObject* object, PyObject* before) {
  const auto parts = parts_of(object);
  return std::equal(parts.begin(), parts.end(), reinterpret_cast<PyTupleObject*>(before)->ob_item);
}

// Whether a dict begins with these very objects. More may have been added.
bool is_same_beginning(PyObject* dict, PyObject* keys, PyObject* values) {
  Py_ssize_t position = 0;
  PyObject *key, *value;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); ++i)
    if (!PyDict_Next(dict, &position, &key, &value) || key != PyTuple_GET_ITEM(keys, i) ||
        value != PyTuple_GET_ITEM(values, i))
      return false;
  return true;
}

// Whether an OrderedDict has these keys in this order. The order is its own: the dict beneath has another.
bool is_same_order(PyObject* dict, PyObject* keys) {
  const Owned iterator(PyODict_Type.tp_iter(dict));
  if (!iterator) return false;
  Py_ssize_t i = 0;
  while (const Owned key{PyIter_Next(iterator.get())}) {
    if (i >= PyTuple_GET_SIZE(keys) || key.get() != PyTuple_GET_ITEM(keys, i)) return false;
    ++i;
  }
  return !PyErr_Occurred() && i == PyTuple_GET_SIZE(keys);
}

int note_referent(PyObject* object, void* referents) try {
  static_cast<std::vector<PyObject*>*>(referents)->push_back(object);
  return 0;
} catch (...) {
  return -1;
}

// Whether an object in C still refers to these objects, each first of a pair followed by its second: a cache with a
// limit keeps keys and results so, and nobody else can see them.
bool refers_to_pairs(PyObject* object, PyObject* pairs) {
  std::vector<PyObject*> now;
  if (Py_TYPE(object)->tp_traverse(object, note_referent, &now) != 0) return false;
  PyObject** pair = reinterpret_cast<PyTupleObject*>(pairs)->ob_item;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(pairs); i += 2)
    if (std::search(now.begin(), now.end(), pair + i, pair + i + 2) == now.end()) return false;
  return true;
}

// Whether a function of C says of the thread or the process what it said before.
bool is_same_setting(PyObject* function, PyObject* before, PyObject* args) {
  const Owned now(PyObject_CallObject(function, args));
  return now && is_same_value(now.get(), before);
}

// Whether a weak reference is to the object at an address, and that of a class. A reference to an object that has gone
// is to none.
bool is_same_reference(PyObject* reference, PyObject* address, PyObject* type) {
  PyObject* now = PyWeakref_GetObject(reference);
  if (now == Py_None) return PyLong_AsVoidPtr(address) == nullptr;
  return now == PyLong_AsVoidPtr(address) && reinterpret_cast<PyObject*>(Py_TYPE(now)) == type;
}

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
    case Record::kDict:
      return is_same_dict(r.object, r.before, r.last);
    case Record::kSequence:
      return is_same_sequence(r.object, r.before);
    case Record::kCell: {
      PyObject* now = PyCell_GET(r.object);
      return now ? is_same_value(now, r.before) : r.before == Py_Ellipsis;
    }
    case Record::kTensor:
      return has_facts(unwrap(r.object), bytes_of(r.before));
    case Record::kForm:
      return has_form(unwrap(r.object), bytes_of(r.before));
    case Record::kType:
      return Py_TYPE(r.object) == reinterpret_cast<PyTypeObject*>(r.before) &&
             (!r.last || dict_of_attributes(r.object) == r.last);
    case Record::kEntry: {
      PyObject* now = PyDict_GetItemWithError(r.object, r.before);
      return now ? is_same_value(now, r.last) : r.last == Py_Ellipsis;
    }
    case Record::kClass:
      return is_same_dict(reinterpret_cast<PyTypeObject*>(r.object)->tp_dict, r.before, r.last);
    case Record::kSet:
      return is_same_set(r.object, r.before);
    case Record::kFunction:
      return is_same_function(r.object, r.before);
    case Record::kWeak:
      return is_same_reference(r.object, r.before, r.last);
    case Record::kPrefix:
      return is_same_beginning(r.object, r.before, r.last);
    case Record::kOrder:
      return is_same_order(r.object, r.before);
    case Record::kBases:
      return reinterpret_cast<PyTypeObject*>(r.object)->tp_mro == r.before;
    case Record::kSetting:
      return is_same_setting(r.object, r.before, r.last);
    case Record::kPairs:
      return refers_to_pairs(r.object, r.before);
  }
  return false;
}

// The dict whose changes a record is about, or null.
PyObject* dict_of(const Record& r) {
  if (r.kind == Record::kDict || r.kind == Record::kEntry || r.kind == Record::kPrefix) return r.object;
  return r.kind == Record::kClass ? reinterpret_cast<PyTypeObject*>(r.object)->tp_dict : nullptr;
}

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

}  // namespace

PyObject* function_state(PyObject* function) {
  const auto parts = parts_of(function);
  return PyTuple_Pack(4, parts[0], parts[1], parts[2], parts[3]);
}

bool take_apart(PyObject* record, Record& r) {
  if (!PyTuple_CheckExact(record) || PyTuple_GET_SIZE(record) < 3) return false;
  const long kind = PyLong_AsLong(PyTuple_GET_ITEM(record, 0));
  PyErr_Clear();
  r = {static_cast<Record::Kind>(kind), PyTuple_GET_ITEM(record, 1), PyTuple_GET_ITEM(record, 2),
       PyTuple_GET_SIZE(record) > 3 ? PyTuple_GET_ITEM(record, 3) : nullptr};
  const bool has_lists = PyTuple_CheckExact(r.before) && r.last && PyTuple_CheckExact(r.last) &&
                         PyTuple_GET_SIZE(r.last) == PyTuple_GET_SIZE(r.before);
  switch (kind) {
    case Record::kDict:
    case Record::kPrefix:
      return PyDict_Check(r.object) && has_lists;
    case Record::kSequence:
      return (PyList_Check(r.object) || PyTuple_Check(r.object)) && PyTuple_CheckExact(r.before);
    case Record::kCell:
      return PyCell_Check(r.object);
    case Record::kTensor:
    case Record::kForm:
      return is_tensor(r.object) && PyBytes_CheckExact(r.before);
    case Record::kEntry:
      return PyDict_Check(r.object) && r.last;
    case Record::kClass:
      return PyType_Check(r.object) && has_lists &&
             (reinterpret_cast<PyTypeObject*>(r.object)->tp_flags & Py_TPFLAGS_HEAPTYPE);
    case Record::kSet:
      return PyAnySet_Check(r.object) && PyTuple_CheckExact(r.before);
    case Record::kFunction:
      return PyFunction_Check(r.object) && PyTuple_CheckExact(r.before) && PyTuple_GET_SIZE(r.before) == 4;
    case Record::kWeak:
      return PyWeakref_CheckRef(r.object) && PyLong_CheckExact(r.before) && r.last;
    case Record::kType:
      return PyType_Check(r.before) && (!r.last || PyDict_Check(r.last));
    case Record::kOrder:
      return PyODict_Check(r.object) && PyTuple_CheckExact(r.before);
    case Record::kBases:
      return PyType_Check(r.object) && PyTuple_CheckExact(r.before);
    case Record::kSetting:
      return PyCFunction_Check(r.object) && r.last && PyTuple_CheckExact(r.last);
    case Record::kPairs:
      return Py_TYPE(r.object)->tp_traverse && PyTuple_CheckExact(r.before) && PyTuple_GET_SIZE(r.before) % 2 == 0;
    default:
      return false;
  }
}

Comparison::Comparison(std::vector<Record> records) : records_(std::move(records)) {
  for (uint32_t i = 0; i < records_.size(); ++i) {
    const Record& r = records_[i];
    if (dict_of(r)) {
      order_.push_back(i);
    } else if (r.kind == Record::kTensor || r.kind == Record::kForm) {
      const auto bytes = static_cast<uint32_t>(PyBytes_GET_SIZE(r.before));
      tensors_.push_back({r.object, i, static_cast<uint32_t>(facts_.size()), bytes, r.kind == Record::kForm,
                          has_attributes(r.object)});
      facts_.insert(facts_.end(), PyBytes_AS_STRING(r.before), PyBytes_AS_STRING(r.before) + bytes);
    } else if (r.kind == Record::kType) {
      typed_.push_back(i);
    } else if (r.kind == Record::kSet) {
      if (!PyFrozenSet_Check(r.object)) sets_.push_back({r.object, i, entries_of(r.object)});
    } else if (r.kind != Record::kSequence || !PyTuple_Check(r.object)) {
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
    types_.push_back({records_[i].object, reinterpret_cast<const PyTypeObject*>(records_[i].before), records_[i].last});
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
    const std::string_view before(facts_.data() + f.begin, f.bytes);
    if (has_attributes(f.tensor) != f.has_attributes) return f.number;  // those that it has have a record of their own
    if (!(f.is_form ? has_form : has_facts)(unwrap(f.tensor), before)) return f.number;
  }
  for (size_t i = 0; i < types_.size(); ++i) {
    if (i + kAhead < types_.size()) __builtin_prefetch(types_[i + kAhead].object);
    const Typed& each = types_[i];
    if (Py_TYPE(each.object) != each.type || (each.dict && dict_of_attributes(each.object) != each.dict))
      return typed_[i];
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

}  // namespace mica::python
