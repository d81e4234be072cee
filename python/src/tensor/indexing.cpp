// x[...] and x[...] = value: turns Python's objects into entries of an index. mica/indexing.h says what they mean.
#include "mica/indexing.h"

#include <algorithm>

#include "arguments/torch_function.h"
#include "mica/warning.h"
#include "operations/entry.h"
#include "tensor/tensor_new.h"

namespace mica::python {

using indexing::Slice;
using indexing::TensorIndex;

// ---- entries

static std::optional<int64_t> slice_bound(PyObject* o) {
  if (o == Py_None) return std::nullopt;
  if (int64_t small; small_int(o, small)) return small;
  Py_ssize_t value;
  if (!_PyEval_SliceIndex(o, &value)) throw PythonError();
  return value;
}

static Slice slice_entry(PyObject* slice) {
  auto* s = reinterpret_cast<PySliceObject*>(slice);
  const auto step = slice_bound(s->step);
  return Slice(slice_bound(s->start), slice_bound(s->stop), step);
}

static int64_t integer_entry(PyObject* o) {
  if (int64_t small; small_int(o, small)) return small;
  int overflow;
  Owned number(checked(PyNumber_Index(o)));
  const int64_t value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  MICA_CHECK_KIND(!overflow, Value, "Overflow when unpacking long long");
  return value;
}

// The indices that a list, a range or an array holds: masks stay masks, everything else is taken for integers.
static Tensor sequence_entry(PyObject* sequence) {
  Tensor t = tensor_from_data(sequence, std::nullopt, kCPU);
  const bool mask = (t.dtype() == DType::Bool || t.dtype() == DType::UInt8) && t.numel() > 0;
  t = lifted(std::move(t));
  return mask ? t : mica::to(t, DType::Int64, false, false, std::nullopt);
}

static TensorIndex entry_of(PyObject* o) {
  if (PyLong_CheckExact(o)) return integer_entry(o);
  if (PySlice_Check(o)) return slice_entry(o);
  if (o == Py_None) return indexing::None;
  if (o == Py_Ellipsis) return indexing::Ellipsis;
  if (PyBool_Check(o)) return o == Py_True;
  if (is_tensor(o)) return unwrap(o);
  if (PyIndex_Check(o) && !PySequence_Check(o)) return integer_entry(o);
  if (PyUnicode_Check(o) || PyBytes_Check(o))
    fail(ErrorKind::Type,
         cat("new(): invalid data type '", Py_TYPE(o)->tp_name, "': a tensor is not indexed with text"));
  if (PySequence_Check(o) || is_numpy_scalar(o)) return sequence_entry(o);
  fail(ErrorKind::Index,
       cat("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got ",
           Py_TYPE(o)->tp_name, ")"));
}

// Whether a list stands for a tuple, as in old programs: a list that holds anything but numbers does.
static bool stands_for_tuple(PyObject* list) {
  if (!PyList_Check(list) || PyList_GET_SIZE(list) >= 32) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* o = PyList_GET_ITEM(list, i);
    if (o == Py_None || o == Py_Ellipsis || PySlice_Check(o) || is_tensor(o) || PySequence_Check(o)) return true;
  }
  return false;
}

static indexing::Indexed apply(const Tensor& x, PyObject* index) {
  const bool tuple = PyTuple_Check(index), list = !tuple && stands_for_tuple(index);
  if (list) {
    warn(
        "Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in pytorch 2.9; "
        "use "
        "x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will be interpreted as tensor index, "
        "x[torch.tensor(seq)], "
        "which will result either in an error or a different result");
  }
  if (!tuple && !list) {
    const TensorIndex only = entry_of(index);
    return indexing::apply(x, ArrayRef<TensorIndex>(&only, 1));
  }
  InlineList<TensorIndex, 4> entries;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(index); ++i)
    entries.push_back(entry_of(PySequence_Fast_GET_ITEM(index, i)));
  return indexing::apply(x, ArrayRef<TensorIndex>(entries.begin(), entries.size()));
}

// ---- __torch_function__

// How deep tuples within an index are searched for overrides. A deeper tuple cannot be an index.
constexpr int kNestedTuples = 8;

// Asks the tensor, the index and the contents of the index. Returns true if one of them has answered; then `answer` is
// the answer.
static bool overridden(const char* method, PyObject* self, PyObject* index, PyObject* value, PyObject*& answer) {
  PyObject* overloaded[8];
  int count = 0;
  auto consider = [&](PyObject* o) {
    if (o && count < 8 && overrides_torch_function(o) &&
        std::none_of(overloaded, overloaded + count, [&](PyObject* x) { return Py_TYPE(x) == Py_TYPE(o); }))
      overloaded[count++] = o;
  };
  // Asks tuples within the index too. Lists are left out: their elements are usually numbers, and many.
  auto consider_all = [&](auto& again, PyObject* o, int depth) -> void {
    consider(o);
    if (PyTuple_Check(o) && depth < kNestedTuples)
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) again(again, PyTuple_GET_ITEM(o, i), depth + 1);
  };
  consider(self);
  consider_all(consider_all, index, 0);
  consider(value);
  if (!torch_function_wanted(count)) return false;
  Owned function(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), method));
  PyObject* args[] = {self, index, value};
  answer = function ? call_torch_function(function.get(), overloaded, count, args, value ? 3 : 2) : nullptr;
  return true;
}

static bool nothing_to_ask(PyObject* self, PyObject* index) {
  return is_exact_tensor(self) && !(thread_modes & mode_bit::kFunctionMode) &&
         (PyLong_CheckExact(index) || PySlice_Check(index) || is_exact_tensor(index));
}

// ---- x[index]

PyObject* tensor_getitem(PyObject* self, PyObject* index) try {
  PyObject* answer;
  if (!nothing_to_ask(self, index) && overridden("__getitem__", self, index, nullptr, answer)) return answer;
  const Tensor& x = unwrap(self);
  if (PyLong_CheckExact(index)) return wrap(indexing::select(x, 0, integer_entry(index), 0));
  if (PySlice_Check(index)) return wrap(indexing::slice(x, 0, slice_entry(index)));
  indexing::Indexed at = apply(x, index);
  if (!at.indices.empty()) {
    Unlocked unlocked(at.self.numel() > kUnlockElements);
    Tensor gathered = mica::index(at.self, at.indices);
    unlocked.lock();
    return wrap(std::move(gathered));
  }
  // Indexing always makes a new tensor: x[...] is not x.
  return wrap(at.self.is_same(x) ? mica::alias(x) : std::move(at.self));
} catch (...) {
  return raise_current_exception();
}

// ---- x[index] = value

static void assign(const indexing::Indexed& target, PyObject* value) {
  if (!is_tensor(value)) {
    indexing::assign(target, scalar_from_object(value));
    return;
  }
  Unlocked unlocked(target.self.numel() > kUnlockElements);
  indexing::assign(target, unwrap(value));
}

int tensor_setitem(PyObject* self, PyObject* index, PyObject* value) try {
  if (!value) {
    PyErr_SetString(PyExc_TypeError, "Tensor does not support deleting items");
    return -1;
  }
  const bool plain =
      nothing_to_ask(self, index) && (is_exact_tensor(value) || PyFloat_CheckExact(value) || PyLong_CheckExact(value));
  PyObject* answer;
  if (!plain && overridden("__setitem__", self, index, value, answer)) {
    Py_XDECREF(answer);
    return answer ? 0 : -1;
  }
  const Tensor& x = unwrap(self);
  MICA_CHECK_KIND(x.layout() == Layout::Strided, Type, "Cannot assign to a sparse tensor");
  if (!is_tensor(value) && !is_number_like(value))
    fail(ErrorKind::Type,
         cat("can't assign a ", Py_TYPE(value)->tp_name, " to a torch.", info(x.dtype()).legacy, "Tensor"));
  if (PyLong_CheckExact(index)) {
    assign({indexing::select(x, 0, integer_entry(index), 0), {}}, value);
  } else if (PySlice_Check(index)) {
    assign({indexing::slice(x, 0, slice_entry(index)), {}}, value);
  } else {
    assign(apply(x, index), value);
  }
  return 0;
} catch (...) {
  return raise_current_exception_int();
}

}  // namespace mica::python
