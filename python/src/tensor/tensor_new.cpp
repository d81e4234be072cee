#include "tensor/tensor_new.h"

#include <cstring>

#include "arguments/torch_function.h"
#include "core/default_device.h"
#include "graph/tensor_autograd.h"
#include "interop/foreign_memory.h"
#include "mica/values.h"
#include "mica/warning.h"
#include "operations/entry.h"
#include "tensor/names.h"
#include "types/storage_object.h"

namespace mica::python {

// ---- nested sequences

// Whether an object is a sequence of data. A tensor is not: it stands for its one element. Nor is a NumPy scalar,
// though it can be asked for items.
static bool is_sequence(PyObject* o) { return PySequence_Check(o) && !is_tensor(o) && !is_numpy_scalar(o); }

static constexpr size_t kMaxNesting = 128;

// The sizes of nested sequences, read off the first element of each.
static DimVector nested_sizes(PyObject* data) {
  DimVector sizes;
  Owned current = Owned::borrow(data);
  while (is_sequence(current.get())) {
    Py_ssize_t n = PySequence_Size(current.get());
    if (n < 0) throw PythonError();
    sizes.push_back(n);
    // The items of a string are strings again, without end.
    MICA_CHECK_KIND(sizes.size() <= kMaxNesting && !PyUnicode_Check(current.get()), Value, "too many dimensions '",
                    Py_TYPE(current.get())->tp_name, "'");
    if (n == 0) return sizes;
    current = Owned(checked(PySequence_GetItem(current.get(), 0)));
  }
  return sizes;
}

// A NumPy scalar brings its dtype, though float64 is a Python float too.
static DType dtype_of_numpy_scalar(PyObject* o) {
  Owned dtype(checked(PyObject_GetAttrString(o, "dtype")));
  Owned text(checked(PyObject_Str(dtype.get())));
  for (int i = 0; i < kNumDTypes; ++i)
    if (PyUnicode_CompareWithASCIIString(text.get(), kDTypeInfo[i].name) == 0) return static_cast<DType>(i);
  return scalar_from_object(o).dtype();
}

static DType dtype_of_number(PyObject* o) {
  if (PyFloat_CheckExact(o)) return default_dtype();
  if (PyBool_Check(o)) return DType::Bool;
  if (PyLong_Check(o)) return DType::Int64;
  if (is_numpy_scalar(o)) return dtype_of_numpy_scalar(o);
  if (PyFloat_Check(o)) return default_dtype();
  if (PyComplex_Check(o)) return default_complex_dtype();
  if (is_tensor(o)) return unwrap(o).dtype();
  if (PyUnicode_Check(o)) fail(ErrorKind::Type, cat("new(): invalid data type '", Py_TYPE(o)->tp_name, "'"));
  fail(ErrorKind::Runtime, cat("Could not infer dtype of ", Py_TYPE(o)->tp_name));
}

static DType nested_dtype(PyObject* o, DType so_far = DType::Undefined, size_t depth = 0) {
  MICA_CHECK_KIND(depth <= kMaxNesting, Value, "too many dimensions '", Py_TYPE(o)->tp_name, "'");
  const bool array = is_numpy_array(o);
  if (array || !is_sequence(o) || PyUnicode_Check(o)) {
    DType t = array ? tensor_from_numpy(o, false).dtype() : dtype_of_number(o);
    return so_far == DType::Undefined || so_far == t ? t : promote_types(so_far, t);
  }
  Owned items(checked(PySequence_Fast(o, "a sequence was expected")));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    so_far = nested_dtype(PySequence_Fast_GET_ITEM(items.get(), i), so_far, depth + 1);
  return so_far;
}

// An integer dtype refuses a number that it cannot hold. A number beyond the range of a floating-point dtype becomes
// infinite.
template <class T>
static T stored(const Scalar& s) {
  return std::is_integral_v<T> ? s.to<T>() : s.cast<T>();
}

static void store(char* p, DType dtype, const Scalar& s) {
  switch (dtype) {
#define MICA_STORE(T, Name)                                         \
  case DType::Name: {                                               \
    T value = stored<T>(s);                                         \
    std::memcpy(p, static_cast<const void*>(&value), sizeof value); \
    return;                                                         \
  }
    MICA_FORALL_DTYPES(MICA_STORE)
#undef MICA_STORE
    default:
      fail("store_scalar: invalid type");
  }
}

// The number that `o` is, with torch's errors for what is none.
static Scalar number_for(PyObject* o, DType dtype) {
  const bool integral = is_integral(dtype);
  if (is_tensor(o) || is_numpy_array(o)) {
    const Tensor t = is_tensor(o) ? unwrap(o) : tensor_from_numpy(o, false);
    if (t.numel() == 1) {
      if (!integral) warn_of_number(t);
      return t.item();
    }
    if (integral)
      fail(ErrorKind::Type,
           cat("only integer tensors of a single element can be converted to an index; to join tensors of ", t.numel(),
               " elements use torch.stack"));
    fail(ErrorKind::Value, cat("only one element tensors can be converted to Python scalars; to join tensors of ",
                               t.numel(), " elements use torch.stack"));
  }
  if (!is_number_like(o))
    fail(ErrorKind::Type, integral ? cat("'", Py_TYPE(o)->tp_name, "' object cannot be interpreted as an integer")
                                   : cat("must be real number, not ", Py_TYPE(o)->tp_name));
  MICA_CHECK_KIND(
      is_complex(dtype) || !PyComplex_Check(o), Type,
      integral ? "'complex' object cannot be interpreted as an integer" : "must be real number, not complex");
  int overflow = 0;
  if (PyLong_Check(o) && dtype != DType::UInt64) PyLong_AsLongLongAndOverflow(o, &overflow);
  if (!overflow) return scalar_from_object(o);
  MICA_CHECK_KIND(!integral, Value, "Overflow when unpacking long long");
  if (dtype == DType::Bool) return Scalar(true);
  const double value = PyLong_AsDouble(o);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return Scalar(value);
}

// Writes the numbers of `o` in row-major order from `p` on; returns where the next one goes.
static char* store_nested(PyObject* o, IntArrayRef sizes, size_t dim, DType dtype, char* p) {
  if (dim == sizes.size()) {
    store(p, dtype, number_for(o, dtype));
    return p + mica::element_size(dtype);
  }
  if (!is_sequence(o)) fail(ErrorKind::Type, cat("not a sequence"));
  Owned items(checked(PySequence_Fast(o, "not a sequence")));
  Py_ssize_t n = PySequence_Fast_GET_SIZE(items.get());
  MICA_CHECK_KIND(n == sizes[dim], Value, "expected sequence of length ", sizes[dim], " at dim ", dim, " (got ", n,
                  ")");
  PyObject** each = PySequence_Fast_ITEMS(items.get());
  if (dim + 1 == sizes.size() && dtype == DType::Float32) {
    // The usual case, without a Scalar for each element.
    for (Py_ssize_t i = 0; i < n; ++i, p += 4) {
      if (!PyFloat_CheckExact(each[i])) {
        store_nested(each[i], sizes, dim + 1, dtype, p);
        continue;
      }
      float value = static_cast<float>(PyFloat_AS_DOUBLE(each[i]));
      std::memcpy(p, &value, 4);
    }
    return p;
  }
  for (Py_ssize_t i = 0; i < n; ++i) p = store_nested(PySequence_Fast_ITEMS(items.get())[i], sizes, dim + 1, dtype, p);
  return p;
}

// ---- storages, whose memory is shared

static bool is_typed_storage(PyObject* o) {
  static PyObject* mark = PyUnicode_InternFromString("_fixed_dtype");  // of the class TypedStorage
  return !is_tensor(o) && !PyType_Check(o) && _PyType_Lookup(Py_TYPE(o), mark);
}

static bool is_any_storage(PyObject* o) { return is_storage(o) || is_typed_storage(o); }

// All of a storage as a tensor of the dtype, which must be a typed storage's own; `before` and `after` are around its
// name in the error.
static Tensor tensor_over(PyObject* storage, DType dtype, const char* before, const char* after) {
  Owned bytes = Owned::borrow(storage);
  if (!is_storage(storage)) {
    Owned own(checked(PyObject_GetAttrString(storage, "dtype")));
    MICA_CHECK(dtype_from_object(own.get()) == dtype, "Expected a Storage of type ", info(dtype).legacy,
               " or an UntypedStorage, but got ", before, info(dtype_from_object(own.get())).legacy, after);
    bytes = Owned(checked(PyObject_GetAttrString(storage, "_untyped_storage")));
  }
  const Storage& memory = storage_of(bytes.get());
  const int64_t count = static_cast<int64_t>(memory->nbytes()) / mica::element_size(dtype);
  return Tensor::adopt(TensorImpl::create(memory, dtype, memory->device(), {count}, {1}, 0));
}

Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype, Device device) {
  const bool recorded = grad_enabled();
  NoGradGuard no_history;
  Tensor t;
  if (is_tensor(data)) {
    t = mica::clone(unwrap(data), std::nullopt);
  } else if (is_any_storage(data)) {
    t = tensor_over(data, dtype.value_or(is_storage(data) ? DType::Int64 : default_dtype()), "", "");
  } else if (is_numpy_array(data)) {
    std::optional<dispatch::Aside> unseen;  // a mode is handed what was made, as it is of numbers
    if (dispatch::active) unseen.emplace();
    t = mica::to(tensor_from_numpy(data, false), TensorOptions().dtype(dtype).device(device), false, true,
                 std::nullopt);
  } else if (!is_numpy_scalar(data) && has_dlpack(data)) {
    t = mica::clone(tensor_from_dlpack(data, std::nullopt, std::nullopt), std::nullopt);
  } else {
    if (PyUnicode_Check(data) || PyBytes_Check(data))
      fail(ErrorKind::Type, cat("new(): invalid data type '", Py_TYPE(data)->tp_name, "'"));
    EnableGradGuard as_before(recorded);  // so that numbers which are tensors warn that their history is lost
    const DimVector sizes = nested_sizes(data);
    DType wanted = dtype ? *dtype : nested_dtype(data);
    if (wanted == DType::Undefined) wanted = default_dtype();
    t = mica::empty(sizes, TensorOptions(wanted).device(kCPU), std::nullopt);
    if (t.numel() > 0 || sizes.size() > 1) store_nested(data, sizes, 0, wanted, static_cast<char*>(t.data_ptr()));
  }
  TensorOptions options;
  options = options.dtype(dtype);
  options = options.device(device);
  return mica::to(t, options, false, false, std::nullopt);
}

Tensor lifted(Tensor made) { return dispatch::active ? dispatch::call_one("lift_fresh", {made}, false) : made; }

// ---- torch.tensor

static PyObject* tensor(PyObject* module, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames);

// torch.tensor(data, names=...): makes the tensor without names, then gives it the names.
static PyObject* named_tensor(PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames, Py_ssize_t at) {
  std::vector<PyObject*> rest(args, args + nargs + PyTuple_GET_SIZE(kwnames));
  rest.erase(rest.begin() + nargs + at);
  Owned before(PyTuple_GetSlice(kwnames, 0, at)), after(PyTuple_GetSlice(kwnames, at + 1, PyTuple_GET_SIZE(kwnames)));
  Owned keywords(before && after ? PySequence_Concat(before.get(), after.get()) : nullptr);
  if (!keywords) return nullptr;
  Owned made(tensor(nullptr, rest.data(), nargs, keywords.get()));
  if (!made) return nullptr;
  PyObject* names = args[nargs + at];
  if (names != Py_None) unwrap(made.get()).rename_(names_from_object(names));
  return made.release();
}

static PyObject* tensor(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) try {
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); ++i)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "names") == 0)
      return named_tensor(args, nargs, kwnames, i);
  static constexpr SignatureText texts[] = {
      {kFunction,
       "Tensor data, *, ScalarType? dtype=None, Device? device=None, bool pin_memory=False, bool "
       "requires_grad=False"}};
  static constinit Parser parser("tensor", texts);
  // A mode gets the arguments of the program, and so does a class that does not compute by its elements. A tensor of
  // any other subclass is data, and the result is a plain tensor.
  PyObject* overloaded[1] = {nargs > 0 ? args[0] : nullptr};
  const int others = overloaded[0] && is_tensor(overloaded[0]) && overrides_torch_function(overloaded[0]) &&
                     (overrides_torch_dispatch(overloaded[0]) || has_plain_values(overloaded[0]));
  if (torch_function_wanted(others)) [[unlikely]]
    return call_torch_function(parser, overloaded, others, nullptr, args, nargs, kwnames);
  // The data may be anything, for which there is no kind of parameter: an object stands in for it during parsing.
  static PyObject* stand_in = wrap(mica::empty(IntArrayRef(int64_t{0}), TensorOptions(kCPU), std::nullopt));
  PyObject* given[8];
  Py_ssize_t total = nargs + (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (total > 8) total = 8;
  PyObject* data = nullptr;
  for (Py_ssize_t i = 0; i < total; ++i) {
    const bool is_data =
        i < nargs ? i == 0 : PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i - nargs), "data") == 0;
    if (is_data) data = args[i];
    given[i] = is_data ? stand_in : args[i];
  }
  Arguments a;
  if (parser.parse(a, nullptr, given, nargs, kwnames) < 0) return a.result;
  if (is_tensor(data))
    warn(
        "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
        "sourceTensor.detach().clone().requires_grad_(True), rather than torch.tensor(sourceTensor).");
  const auto dtype = a.optional_dtype(1);
  const Device unsaid = is_tensor(data) ? chosen_device().value_or(unwrap(data).device()) : default_device();
  const Device device = a.has(2) ? a.device(2) : unsaid;
  Tensor t = lifted(tensor_from_data(data, dtype, device));
  MICA_CHECK(!a.flag(4) || t.is_floating_point() || t.is_complex(),
             "Only Tensors of floating point and complex dtype can require gradients, not of ", t.dtype());
  return wrap(made_with(std::move(t), TensorOptions().pinned_memory(a.flag(3)).requires_grad(a.flag(4))));
} catch (...) {
  return raise_current_exception();
}

// ---- torch.Tensor(...), torch.LongTensor(...), x.new(...): the constructors of old, from sizes or data

static DimVector legacy_sizes(PyObject* sizes) {
  DimVector dims;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sizes); ++i) {
    PyObject* item = PyTuple_GET_ITEM(sizes, i);
    if (i == 0 && !is_int_like(item) && PyTuple_GET_SIZE(sizes) > 1 && !PyFloat_Check(item))
      fail(ErrorKind::Type,
           cat("new() received an invalid combination of arguments - the first of ", PyTuple_GET_SIZE(sizes), " is a ",
               Py_TYPE(item)->tp_name,
               ", but expected one of:\n * (*, torch.device device = None)\n * (torch.Storage storage)"
               "\n * (Tensor other)\n * (tuple of ints size, *, torch.device device = None)\n * (object "
               "data, *, torch.device device = None)\n"));
    if (!is_int_like(item))
      fail(ErrorKind::Type, cat("new(): argument 'size' failed to unpack the object at pos ", i + 1,
                                " with error \"type must be tuple of ints,but got ", Py_TYPE(item)->tp_name, "\""));
    dims.push_back(int_from_object(item));
  }
  return dims;
}

// `exact`: a tensor given must have the dtype, as the typed constructors want it; torch.Tensor(x) takes any.
static Tensor legacy_tensor(PyObject* args, DType dtype, Device device, bool exact) {
  const TensorOptions options = TensorOptions(dtype).device(device);
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  if (n == 0) return mica::empty(IntArrayRef(int64_t{0}), options, std::nullopt);
  PyObject* first = PyTuple_GET_ITEM(args, 0);
  if (n == 1 && Py_TYPE(first) == size_type) return mica::empty(legacy_sizes(first), options, std::nullopt);
  if (n > 1 || (is_int_like(first) && !is_numpy_array(first)))
    return mica::empty(legacy_sizes(args), options, std::nullopt);
  if (is_any_storage(first)) return tensor_over(first, dtype, "type ", " for argument 1 'storage'");
  if (is_tensor(first)) {
    const Tensor& given = unwrap(first);
    MICA_CHECK_KIND(!exact || (given.dtype() == dtype && given.device() == device), Type, "expected torch.",
                    info(dtype).legacy, "Tensor (got torch.", info(given.dtype()).legacy,
                    "Tensor); convert with .to(torch.", name(dtype), ")");
    return mica::alias(given);
  }
  if (!PySequence_Check(first))
    fail(ErrorKind::Type, cat("new(): data must be a sequence (got ", Py_TYPE(first)->tp_name, ")"));
  return tensor_from_data(first, dtype, device);
}

// The positional arguments that `size=`, `data=` or `other=` stand for.
static Owned legacy_arguments(PyObject* args, PyObject* kwargs) {
  if (!kwargs || PyTuple_GET_SIZE(args) > 0) return Owned(Py_NewRef(args));
  if (PyObject* size = PyDict_GetItemString(kwargs, "size")) {
    if (!PySequence_Check(size))
      fail(ErrorKind::Type, cat("new(): argument 'size' must be tuple of ints, not ", Py_TYPE(size)->tp_name));
    return Owned(
        PyTuple_Pack(1, Owned(checked(PyObject_CallOneArg(reinterpret_cast<PyObject*>(size_type), size))).get()));
  }
  for (const char* name : {"data", "other"})
    if (PyObject* given = PyDict_GetItemString(kwargs, name)) return Owned(PyTuple_Pack(1, given));
  return Owned(Py_NewRef(args));
}

PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) try {
  Owned packed = legacy_arguments(args, kwargs);
  if (PyTuple_GET_SIZE(packed.get()) > 0 && !fulfil_for_class(PyTuple_GET_ITEM(packed.get(), 0))) return nullptr;
  Tensor t = legacy_tensor(checked(packed.get()), default_dtype(), tensor_type_device(), false);
  return type == tensor_type ? wrap(std::move(t)) : wrap_as(type, std::move(t));
} catch (...) {
  return raise_current_exception();
}

// _legacy_new(dtype, device, args, keywords)
static PyObject* legacy_new(PyObject*, PyObject* args) try {
  PyObject *dtype, *device, *given, *named = nullptr;
  if (!PyArg_ParseTuple(args, "O!O!O!|O!", dtype_type, &dtype, device_type, &device, &PyTuple_Type, &given,
                        &PyDict_Type, &named))
    return nullptr;
  Owned packed = legacy_arguments(given, named);
  return wrap(legacy_tensor(checked(packed.get()), dtype_of_object(dtype), device_from_object(device), true));
} catch (...) {
  return raise_current_exception();
}

bool add_tensor_constructors(PyObject* module) {
  static PyMethodDef functions[] = {
      {"tensor", as_cfunction(tensor), METH_FASTCALL | METH_KEYWORDS,
       "A new tensor of the numbers in nested sequences, which are copied. A storage is shared."},
      {"_legacy_new", legacy_new, METH_VARARGS, nullptr},
      {"_set_before_class", set_before_class, METH_O,
       "What is called with a tensor before one of a class is made of it."},
      {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
