// x[...] and x[...] = value: integers, slices of any step, None, Ellipsis, bools, masks, integer tensors and sequences.
#include <algorithm>

#include "entry.h"
#include "mica/warning.h"
#include "tensor_new.h"
#include "torch_function.h"

namespace mica::python {

// ---- basic indices: views

static Tensor select_at(const Tensor& x, int64_t dim, int64_t index, int64_t real_dim) {
  MICA_CHECK_KIND(
      dim != 0 || x.dim() != 0, Index,
      "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to convert a "
      "0-dim tensor to a number");
  const int64_t n = x.size(dim);
  MICA_CHECK_KIND(index >= -n && index < n, Index, "index ", index, " is out of bounds for dimension ", real_dim,
                  " with size ", n);
  return mica::select(x, dim, index);
}

static std::optional<int64_t> slice_bound(PyObject* o) {
  if (o == Py_None) return std::nullopt;
  Py_ssize_t value;
  if (!_PyEval_SliceIndex(o, &value)) throw PythonError();
  return value;
}

static Tensor slice_at(const Tensor& x, int64_t dim, PyObject* slice) {
  auto* s = reinterpret_cast<PySliceObject*>(slice);
  const int64_t step = slice_bound(s->step).value_or(1);
  MICA_CHECK_KIND(step != 0, Value, "slice step cannot be zero");
  MICA_CHECK_KIND(x.dim() > 0, Index, "slice() cannot be applied to a 0-dim tensor.");
  const auto start = slice_bound(s->start), stop = slice_bound(s->stop);
  if (!start && !stop && step == 1) return mica::alias(x);
  return mica::slice(x, dim, start, stop, step);
}

// ---- the whole index

static bool is_mask(const Tensor& t) { return t.dtype() == DType::Bool || t.dtype() == DType::UInt8; }

// One entry for each dimension of `self` after basic indexing; undefined where no tensor stands.
struct Indexed {
  Tensor self;
  std::vector<Tensor> indices;
};

static bool is_plain_sequence(PyObject* o) {
  return PySequence_Check(o) && !is_tensor(o) && !PyUnicode_Check(o) && !PyBytes_Check(o);
}

// The tensor of indices that a list, a range or an array stands for.
static Tensor index_tensor(PyObject* sequence) {
  Tensor t = tensor_from_data(sequence, std::nullopt, kCPU);
  if (t.numel() == 0 && !PyObject_CheckBuffer(sequence)) return mica::to(t, DType::Int64, false, false, std::nullopt);
  if (t.is_floating_point() && !PyObject_CheckBuffer(sequence))
    return mica::to(t, DType::Int64, false, false, std::nullopt);
  return t;
}

[[noreturn]] static void fail_index(PyObject* o) {
  if (PyUnicode_Check(o)) fail(ErrorKind::Type, "new(): invalid data type 'str'");
  fail(ErrorKind::Index, cat("only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
                             "indices (got ",
                             Py_TYPE(o)->tp_name, ")"));
}

static int64_t index_value(PyObject* o) {
  int64_t value;
  if (small_int(o, value)) return value;
  int overflow;
  Owned number(checked(PyNumber_Index(o)));
  value = PyLong_AsLongLongAndOverflow(number.get(), &overflow);
  MICA_CHECK_KIND(!overflow, Value, "Overflow when unpacking long long");
  return value;
}

// How many dimensions of the tensor an entry of an index takes up.
static int64_t dims_taken(PyObject* o) {
  if (o == Py_None || o == Py_Ellipsis || PyBool_Check(o)) return 0;
  if (is_tensor(o) && is_mask(unwrap(o))) return unwrap(o).dim();
  return 1;
}

static Tensor flag_index(bool value) {
  return value ? mica::zeros(IntArrayRef(int64_t{1}), DType::Int64)
               : mica::empty(IntArrayRef(int64_t{0}), DType::Int64, std::nullopt);
}

static Indexed apply(const Tensor& x, PyObject* const* entries, Py_ssize_t count) {
  int64_t taken = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (entries[i] != Py_Ellipsis && is_plain_sequence(entries[i]) && PyObject_CheckBuffer(entries[i])) {
      Tensor mask = index_tensor(entries[i]);
      taken += is_mask(mask) ? mask.dim() : 1;
    } else {
      taken += dims_taken(entries[i]);
    }
  }
  MICA_CHECK_KIND(taken <= x.dim(), Index, "too many indices for tensor of dimension ", x.dim());
  Indexed result{x, {}};
  int64_t dim = 0, real_dim = 0;  // in the result so far, in x
  int64_t folded = 0;             // a mask is one entry for as many dimensions as it has: how many more than entries
  auto record = [&](Tensor index) {
    result.indices.resize(static_cast<size_t>(dim - folded));
    const int64_t covered = is_mask(index) ? std::max<int64_t>(index.dim(), 1) : 1;
    dim += covered;
    folded += covered - 1;
    result.indices.push_back(std::move(index));
  };
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* o = entries[i];
    if (o == Py_None) {
      result.self = mica::unsqueeze(result.self, dim++);
    } else if (o == Py_Ellipsis) {
      dim += x.dim() - taken;
      real_dim += x.dim() - taken;
    } else if (PySlice_Check(o)) {
      result.self = slice_at(result.self, dim++, o);
      ++real_dim;
    } else if (PyBool_Check(o)) {
      result.self = mica::unsqueeze(result.self, dim);
      record(flag_index(o == Py_True));
    } else if (is_tensor(o)) {
      const Tensor& t = unwrap(o);
      if (t.dim() == 0 && is_integral(t.dtype()) && !is_mask(t)) {
        result.self = select_at(result.self, dim, t.item().to_int(), real_dim++);
      } else if (t.dim() == 0 && is_mask(t)) {
        result.self = mica::unsqueeze(result.self, dim);
        record(flag_index(t.item().to_bool()));
      } else {
        real_dim += dims_taken(o);
        record(t);
      }
    } else if (PyIndex_Check(o) && !PySequence_Check(o)) {
      result.self = select_at(result.self, dim, index_value(o), real_dim++);
    } else if (is_plain_sequence(o)) {
      Tensor t = index_tensor(o);
      real_dim += is_mask(t) ? t.dim() : 1;
      record(std::move(t));
    } else {
      fail_index(o);
    }
  }
  return result;
}

// Old programs index with a list where a tuple is meant: one that holds anything but numbers is taken for a tuple.
static bool stands_for_tuple(PyObject* list) {
  if (!PyList_Check(list) || PyList_GET_SIZE(list) >= 32) return false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* o = PyList_GET_ITEM(list, i);
    if (o == Py_None || o == Py_Ellipsis || PySlice_Check(o) || is_tensor(o) || PySequence_Check(o)) return true;
  }
  return false;
}

static Indexed apply(const Tensor& x, PyObject* index) {
  if (PyTuple_Check(index)) return apply(x, PySequence_Fast_ITEMS(index), PyTuple_GET_SIZE(index));
  if (stands_for_tuple(index)) {
    warn(
        "Using a non-tuple sequence for multidimensional indexing is deprecated and will be changed in pytorch 2.9; "
        "use "
        "x[tuple(seq)] instead of x[seq]. In pytorch 2.9 this will be interpreted as tensor index, "
        "x[torch.tensor(seq)], "
        "which will result either in an error or a different result");
    return apply(x, PySequence_Fast_ITEMS(index), PyList_GET_SIZE(index));
  }
  return apply(x, &index, 1);
}

// ---- __torch_function__

// Asks the tensor, the index and what the index holds; true if one of them has answered (then `answer` is it).
static bool overridden(const char* method, PyObject* self, PyObject* index, PyObject* value, PyObject*& answer) {
  PyObject* overloaded[8];
  int count = 0;
  auto consider = [&](PyObject* o) {
    if (o && count < 8 && overrides_torch_function(o) &&
        std::none_of(overloaded, overloaded + count, [&](PyObject* x) { return Py_TYPE(x) == Py_TYPE(o); }))
      overloaded[count++] = o;
  };
  consider(self);
  consider(index);
  if (PyTuple_Check(index))
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(index); ++i) consider(PyTuple_GET_ITEM(index, i));
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

template <class T>
static Tensor gather(const T& self, TensorList indices) {
  if constexpr (requires { index(self, indices); }) return index(self, indices);
  fail(ErrorKind::NotImplemented, "indexing with tensors is not part of this build");
}

PyObject* tensor_getitem(PyObject* self, PyObject* index) try {
  PyObject* answer;
  if (!nothing_to_ask(self, index) && overridden("__getitem__", self, index, nullptr, answer)) return answer;
  const Tensor& x = unwrap(self);
  if (PyLong_CheckExact(index)) return wrap(select_at(x, 0, index_value(index), 0));
  if (PySlice_Check(index)) return wrap(slice_at(x, 0, index));
  Indexed result = apply(x, index);
  if (!result.indices.empty()) {
    Unlocked unlocked(result.self.numel() > kUnlockElements);
    Tensor gathered = gather(result.self, result.indices);
    unlocked.lock();
    return wrap(std::move(gathered));
  }
  // Indexing always makes a new tensor: x[...] is not x.
  return wrap(result.self.is_same(x) ? mica::alias(x) : std::move(result.self));
} catch (...) {
  return raise_current_exception();
}

// ---- x[index] = value

template <class T>
static void scatter(const T& self, TensorList indices, const Tensor& value) {
  if constexpr (requires { index_put_(self, indices, value, false); }) {
    index_put_(self, indices, value, false);
  } else {
    fail(ErrorKind::NotImplemented, "indexed assignment with tensors is not part of this build");
  }
}

// Leading dimensions of size 1 that the target does not have are dropped, as torch does.
static Tensor without_leading_ones(const Tensor& value, const Tensor& target) {
  Tensor v = value;
  while (v.dim() > target.dim() && v.size(0) == 1) v = mica::select(v, 0, 0);
  return v;
}

static void assign(const Tensor& target, PyObject* value) {
  if (!is_tensor(value)) {
    mica::fill_(target, scalar_from_object(value));
  } else if (unwrap(value).dim() == 0 && !unwrap(value).requires_grad() && unwrap(value).is_cpu() && target.is_cpu()) {
    mica::fill_(target, unwrap(value));
  } else {
    mica::copy_(target, without_leading_ones(unwrap(value), target), false);
  }
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
  if (!is_tensor(value) && !is_number_like(value))
    fail(ErrorKind::Type,
         cat("can't assign a ", Py_TYPE(value)->tp_name, " to a torch.", info(x.dtype()).legacy, "Tensor"));
  if (PyLong_CheckExact(index)) {
    assign(select_at(x, 0, index_value(index), 0), value);
    return 0;
  }
  if (PySlice_Check(index)) {
    assign(slice_at(x, 0, index), value);
    return 0;
  }
  Indexed target = apply(x, index);
  if (target.indices.empty()) {
    assign(target.self, value);
    return 0;
  }
  Tensor source =
      is_tensor(value) ? unwrap(value) : mica::full(IntArrayRef(), scalar_from_object(value), target.self.options());
  // A number takes the target's dtype; so does a 0-dim tensor, and leading ones are dropped.
  if (source.dim() == 0 && source.dtype() != x.dtype())
    source = mica::to(source, x.dtype(), false, false, std::nullopt);
  while (source.dim() > target.self.dim() && source.size(0) == 1) source = mica::select(source, 0, 0);
  Unlocked unlocked(target.self.numel() > kUnlockElements);
  scatter(target.self, target.indices, source);
  return 0;
} catch (...) {
  return raise_current_exception_int();
}

}  // namespace mica::python
