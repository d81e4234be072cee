#include "tensor_new.h"

#include <cstring>

#include "entry.h"
#include "mica/warning.h"

namespace mica::python {

// ---- nested sequences

static bool is_sequence(PyObject* o) {
  return PySequence_Check(o) && !is_tensor(o) && !PyUnicode_Check(o) && !PyBytes_Check(o);
}

static constexpr size_t kMaxNesting = 128;

// The sizes of nested sequences, read off the first element of each.
static DimVector nested_sizes(PyObject* data) {
  DimVector sizes;
  Owned current = Owned::borrow(data);
  while (is_sequence(current.get())) {
    Py_ssize_t n = PySequence_Size(current.get());
    if (n < 0) throw PythonError();
    sizes.push_back(n);
    MICA_CHECK_KIND(sizes.size() <= kMaxNesting, Value, "too many dimensions '", Py_TYPE(data)->tp_name, "'");
    if (n == 0) return sizes;
    current = Owned(checked(PySequence_GetItem(current.get(), 0)));
  }
  // A tensor inside a list gives its dimensions too; only a single element can be read from it.
  if (is_tensor(current.get()) && !sizes.empty())
    for (int64_t extent : unwrap(current.get()).sizes()) sizes.push_back(extent);
  return sizes;
}

static DType dtype_of_number(PyObject* o) {
  if (PyFloat_Check(o)) return default_dtype();
  if (PyBool_Check(o)) return DType::Bool;
  if (PyLong_Check(o)) return DType::Int64;
  if (PyComplex_Check(o)) return default_complex_dtype();
  if (is_tensor(o)) return unwrap(o).dtype();
  if (is_numpy_scalar(o)) {
    Scalar s = scalar_from_object(o);
    Owned name(checked(PyObject_GetAttrString(o, "dtype")));
    Owned text(checked(PyObject_Str(name.get())));
    for (int i = 0; i < kNumDTypes; ++i)
      if (PyUnicode_CompareWithASCIIString(text.get(), kDTypeInfo[i].name) == 0) return static_cast<DType>(i);
    return s.dtype();
  }
  if (PyUnicode_Check(o)) fail(ErrorKind::Type, cat("new(): invalid data type '", Py_TYPE(o)->tp_name, "'"));
  fail(ErrorKind::Runtime, cat("Could not infer dtype of ", Py_TYPE(o)->tp_name));
}

static DType nested_dtype(PyObject* o, DType so_far = DType::Undefined, size_t depth = 0) {
  MICA_CHECK_KIND(depth <= kMaxNesting, Value, "too many dimensions '", Py_TYPE(o)->tp_name, "'");
  if (!is_sequence(o)) {
    DType t = dtype_of_number(o);
    return so_far == DType::Undefined || so_far == t ? t : promote_types(so_far, t);
  }
  Owned items(checked(PySequence_Fast(o, "a sequence was expected")));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    so_far = nested_dtype(PySequence_Fast_GET_ITEM(items.get(), i), so_far, depth + 1);
  return so_far;
}

static void store(char* p, DType dtype, const Scalar& s) {
  switch (dtype) {
#define MICA_STORE(T, Name)                                         \
  case DType::Name: {                                               \
    T value = s.to<T>();                                            \
    std::memcpy(p, static_cast<const void*>(&value), sizeof value); \
    return;                                                         \
  }
    MICA_FORALL_DTYPES(MICA_STORE)
#undef MICA_STORE
    case DType::Undefined:
      break;
  }
}

// Writes the numbers of `o` in row-major order from `p` on; returns where the next one goes.
static char* store_nested(PyObject* o, IntArrayRef sizes, size_t dim, DType dtype, char* p) {
  if (dim == sizes.size()) {
    if (is_sequence(o) || PyUnicode_Check(o))
      fail(ErrorKind::Value,
           cat("only one element tensors can be converted to Python scalars, got ", Py_TYPE(o)->tp_name));
    if (!is_number_like(o)) {
      if (!is_tensor(o)) fail(ErrorKind::Type, cat("must be real number, not ", Py_TYPE(o)->tp_name));
      MICA_CHECK_KIND(unwrap(o).numel() == 1, Value, "only one element tensors can be converted to Python scalars");
    }
    store(p, dtype, is_tensor(o) ? unwrap(o).item() : scalar_from_object(o));
    return p + mica::element_size(dtype);
  }
  if (is_tensor(o)) {
    Tensor flat =
        mica::contiguous(mica::to(unwrap(o), TensorOptions(dtype).with_device(kCPU), false, false, std::nullopt),
                         MemoryFormat::Contiguous);
    MICA_CHECK_KIND(flat.sizes() == IntArrayRef(sizes.slice(dim, sizes.size() - dim)), Value,
                    "expected sequence of equal sizes at dim ", dim);
    std::memcpy(p, flat.data_ptr(), static_cast<size_t>(flat.nbytes()));
    return p + flat.nbytes();
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

// ---- buffers: bytes, bytearray, array.array, NumPy arrays

static DType dtype_of_format(const char* format, Py_ssize_t itemsize) {
  if (!format) return DType::UInt8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const std::string_view f = format;
  if (f == "?") return DType::Bool;
  if (f == "e") return DType::Float16;
  if (f == "f") return DType::Float32;
  if (f == "d") return DType::Float64;
  if (f == "Zf") return DType::Complex64;
  if (f == "Zd") return DType::Complex128;
  static constexpr DType kSigned[] = {DType::Int8, DType::Int16, DType::Int32, DType::Int64};
  static constexpr DType kUnsigned[] = {DType::UInt8, DType::UInt16, DType::UInt32, DType::UInt64};
  const int log2 = itemsize == 1 ? 0 : itemsize == 2 ? 1 : itemsize == 4 ? 2 : itemsize == 8 ? 3 : -1;
  if (log2 >= 0 && f.size() == 1) {
    if (std::strchr("bhilqn", f[0])) return kSigned[log2];
    if (std::strchr("BHILQNc", f[0])) return kUnsigned[log2];
  }
  return DType::Undefined;
}

class Buffer {
 public:
  explicit Buffer(PyObject* o) {
    if (PyObject_GetBuffer(o, &view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) throw PythonError();
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { PyBuffer_Release(&view); }
  Py_buffer view;
};

// The buffer's elements in a contiguous tensor on the CPU.
static Tensor tensor_from_buffer(PyObject* o) {
  Buffer buffer(o);
  DType dtype = dtype_of_format(buffer.view.format, buffer.view.itemsize);
  if (dtype == DType::Undefined)
    fail(ErrorKind::Type,
         cat("can't convert elements of format '", buffer.view.format,
             "' to a tensor. The supported types "
             "are: float64, float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, "
             "uint32, uint16, uint8, and bool."));
  DimVector sizes;
  for (int i = 0; i < buffer.view.ndim; ++i) sizes.push_back(buffer.view.shape[i]);
  Tensor t = mica::empty(sizes, TensorOptions(dtype).with_device(kCPU), std::nullopt);
  if (t.numel() && PyBuffer_ToContiguous(t.data_ptr(), &buffer.view, buffer.view.len, 'C') < 0) throw PythonError();
  return t;
}

Tensor tensor_from_data(PyObject* data, std::optional<DType> dtype, Device device) {
  NoGradGuard no_history;
  Tensor t;
  if (is_tensor(data)) {
    t = mica::clone(unwrap(data), std::nullopt);
  } else if (PyObject_CheckBuffer(data) && !is_numpy_scalar(data)) {
    t = tensor_from_buffer(data);
  } else {
    if (PyUnicode_Check(data)) fail(ErrorKind::Type, "new(): invalid data type 'str'");
    const DimVector sizes = nested_sizes(data);
    DType wanted = dtype ? *dtype : nested_dtype(data);
    if (wanted == DType::Undefined) wanted = default_dtype();
    t = mica::empty(sizes, TensorOptions(wanted).with_device(kCPU), std::nullopt);
    if (t.numel() > 0 || sizes.size() > 1) store_nested(data, sizes, 0, wanted, static_cast<char*>(t.data_ptr()));
  }
  TensorOptions options;
  options.dtype = dtype;
  options.device = device;
  return mica::to(t, options, false, false, std::nullopt);
}

// ---- torch.tensor

static PyObject* tensor(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) try {
  static constexpr SignatureText texts[] = {
      {kFunction,
       "Tensor data, *, ScalarType? dtype=None, Device? device=None, bool pin_memory=False, bool "
       "requires_grad=False"}};
  static constinit Parser parser("tensor", texts);
  // The data may be anything, which no kind of parameter says: a stand-in takes its place for parsing.
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
  const Device device = a.has(2) ? a.device(2) : is_tensor(data) ? unwrap(data).device() : default_device();
  Tensor t = tensor_from_data(data, dtype, device);
  if (a.flag(4)) t.set_requires_grad(true);
  return wrap(std::move(t));
} catch (...) {
  return raise_current_exception();
}

// ---- torch.Tensor(...), the constructor of old: sizes or data

static Tensor legacy_tensor(PyObject* args) {
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  const TensorOptions options = TensorOptions(default_dtype());
  if (n == 1) {
    PyObject* only = PyTuple_GET_ITEM(args, 0);
    if (is_tensor(only)) return mica::alias(mica::detach(unwrap(only)));
    if (Py_TYPE(only) != size_type && !is_int_like(only))
      return tensor_from_data(only, default_dtype(), default_device());
  }
  PyObject* sizes = n == 1 && Py_TYPE(PyTuple_GET_ITEM(args, 0)) == size_type ? PyTuple_GET_ITEM(args, 0) : args;
  DimVector dims;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sizes); ++i) {
    PyObject* item = PyTuple_GET_ITEM(sizes, i);
    if (!is_int_like(item))
      fail(ErrorKind::Type, cat("new() received an invalid combination of arguments: size ", i, " must be int, not ",
                                Py_TYPE(item)->tp_name));
    dims.push_back(int_from_object(item));
  }
  if (n == 0) dims.push_back(0);
  return mica::empty(dims, options, std::nullopt);
}

PyObject* tensor_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) try {
  PyObject* data = kwargs && PyTuple_GET_SIZE(args) == 0 ? PyDict_GetItemString(kwargs, "data") : nullptr;
  Owned packed(data ? PyTuple_Pack(1, data) : Py_NewRef(args));
  Tensor t = legacy_tensor(checked(packed.get()));
  return type == tensor_type ? wrap(std::move(t)) : wrap_as(type, std::move(t));
} catch (...) {
  return raise_current_exception();
}

bool add_tensor_constructors(PyObject* module) {
  static PyMethodDef functions[] = {{"tensor", as_cfunction(tensor), METH_FASTCALL | METH_KEYWORDS,
                                     "A new tensor of the numbers in nested sequences; always a copy."},
                                    {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
