// Conversions: between dtypes and devices, and to Python numbers and lists.
#include <cstring>

#include "arguments/torch_function.h"
#include "mica/core/recording.h"
#include "operations/by_hand.h"

namespace mica::python {

MICA_METHOD(to) {
  static constexpr SignatureText texts[] = {
      {kMethod,
       "Tensor self, Device? device=None, ScalarType? dtype=None, bool non_blocking=False, bool copy=False, *, "
       "MemoryFormat? memory_format=None"},
      {kMethod,
       "Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, *, "
       "MemoryFormat? memory_format=None"},
      {kMethod,
       "Tensor self, Tensor tensor, bool non_blocking=False, bool copy=False, *, "
       "MemoryFormat? memory_format=None"}};
  static constinit Parser parser("to", texts);
  Arguments a;
  TensorOptions options;
  int flags;  // where non_blocking, copy and memory_format begin
  switch (parser.parse(a, self, args, nargs, kwnames)) {
    case 0:
      options = options.device(a.optional_device(1));
      options = options.dtype(a.optional_dtype(2));
      flags = 3;
      break;
    case 1:
      options = options.dtype(a.dtype(1));
      flags = 2;
      break;
    case 2:
      options = options.dtype(a.tensor(1).dtype());
      options = options.device(a.tensor(1).device());
      flags = 2;
      break;
    default:
      return a.result;
  }
  const Tensor& x = a.tensor(0);
  const bool non_blocking = a.flag(flags), copy = a.flag(flags + 1);
  const auto format = a.optional_memory_format(flags + 2);
  MICA_RETURN(mica::to(x, options, non_blocking, copy, format));
}
MICA_ENTRY_END

// The method that converts to each dtype, in the order of DType.
static constexpr const char* kDTypeMethods[] = {"byte",   "char",  "short",  "int",     "long", "half",    "float",
                                                "double", "chalf", "cfloat", "cdouble", "bool", "bfloat16"};

// x.float(), x.long(), ...: to(dtype), with an optional memory_format.
template <DType dtype>
MICA_METHOD(to_dtype) {
  static constexpr SignatureText texts[] = {{kMethod, "Tensor self, *, MemoryFormat? memory_format=None"}};
  static constinit Parser parser(kDTypeMethods[static_cast<int>(dtype)], texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  const Tensor& x = a.tensor(0);
  const auto format = a.optional_memory_format(1);
  MICA_RETURN(mica::to(x, TensorOptions(dtype), false, false, format));
}
MICA_ENTRY_END

MICA_METHOD(cuda) {
  static constexpr SignatureText texts[] = {
      {kMethod, "Tensor self, Device? device=None, bool non_blocking=False, *, MemoryFormat? memory_format=None"}};
  static constinit Parser parser("cuda", texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  const Tensor& x = a.tensor(0);
  const Device device = a.optional_device(1).value_or(Device(DeviceType::CUDA));
  MICA_CHECK(device.is_cuda(), "Invalid device, must be cuda device");
  const bool non_blocking = a.flag(2);
  const auto format = a.optional_memory_format(3);
  MICA_RETURN(mica::to(x, TensorOptions(device), non_blocking, false, format));
}
MICA_ENTRY_END

MICA_METHOD(cpu) {
  static constexpr SignatureText texts[] = {{kMethod, "Tensor self, *, MemoryFormat? memory_format=None"}};
  static constinit Parser parser("cpu", texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  const Tensor& x = a.tensor(0);
  const auto format = a.optional_memory_format(1);
  MICA_RETURN(mica::to(x, TensorOptions(kCPU), false, false, format));
}
MICA_ENTRY_END

// ---- x.type(): the names of torch's tensor classes, torch.FloatTensor

static std::string legacy_type(const Tensor& x) {
  return cat("torch.", x.is_cpu() ? "" : cat(device_type_name(x.device().type()), "."), x.is_sparse() ? "sparse." : "",
             info(x.dtype()).legacy, "Tensor");
}

// The dtype that "torch.FloatTensor" names; undefined if it names none.
static DType dtype_of_legacy_name(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name.starts_with("cuda.")) name.remove_prefix(5);
  if (!name.ends_with("Tensor")) return DType::Undefined;
  name.remove_suffix(6);
  for (int i = 0; i < kNumDTypes; ++i)
    if (name == kDTypeInfo[i].legacy) return static_cast<DType>(i);
  return DType::Undefined;
}

static PyObject* type(PyObject* self, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"dtype", "non_blocking", nullptr};
  PyObject* wanted = Py_None;
  int non_blocking = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Op:type", const_cast<char**>(names), &wanted, &non_blocking))
    return nullptr;
  if (may_be_asked(self)) [[unlikely]] {
    const int count = attributes_overridden(self) ? 1 : 0;
    if (torch_function_wanted(count)) {
      Owned function(checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "type")));
      PyObject* call[] = {self, wanted, non_blocking ? Py_True : Py_False};
      return call_torch_function(function.get(), &self, count, call, wanted == Py_None ? 1 : non_blocking ? 3 : 2);
    }
  }
  const Tensor& x = unwrap(self);
  if (wanted == Py_None) return to_python(legacy_type(x));
  TensorOptions options;
  if (is_dtype_like(wanted)) {
    options = options.dtype(dtype_from_object(wanted));
  } else if (wanted == reinterpret_cast<PyObject*>(tensor_type)) {  // the type of tensors where none is given
    options = options.dtype(default_dtype()).device(kCPU);
  } else {
    Owned text = PyUnicode_Check(wanted) ? Owned::borrow(wanted) : Owned(PyObject_GetAttrString(wanted, "__name__"));
    PyErr_Clear();
    std::string name = text && PyUnicode_Check(text.get()) ? PyUnicode_AsUTF8(text.get()) : "";
    options = options.dtype(dtype_of_legacy_name(name));
    if (options.dtype_opt() == DType::Undefined)
      return PyErr_Format(PyExc_ValueError, "invalid type: '%s'",
                          name.empty() ? Py_TYPE(wanted)->tp_name : name.c_str());
    if (name.find("cuda.") != std::string::npos) options = options.device(Device(DeviceType::CUDA));
  }
  return wrap(mica::to(x, options, non_blocking, false, std::nullopt));
} catch (...) {
  return raise_current_exception();
}

// ---- to Python

static PyObject* item(PyObject* self, PyObject*) try {
  if (PyObject* answer = nullptr; is_answered(self, "item", answer)) return answer;
  return to_python(unwrap(self).item());
} catch (...) {
  return raise_current_exception();
}

template <class T>
static PyObject* number_object(const T& value) {
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
    return PyLong_FromLongLong(value);
  else if constexpr (std::is_integral_v<T>)
    return PyLong_FromUnsignedLongLong(value);
  else if constexpr (std::is_convertible_v<T, double>)
    return PyFloat_FromDouble(static_cast<double>(value));
  else
    return to_python(Scalar(value));
}

static PyObject* element_object(DType dtype, const char* p) {
  if (dtype == DType::Bool) return PyBool_FromLong(*p != 0);  // whatever byte it is
  switch (dtype) {
#define MICA_ELEMENT(T, Name)                                 \
  case DType::Name: {                                         \
    T value;                                                  \
    std::memcpy(static_cast<void*>(&value), p, sizeof value); \
    return number_object(value);                              \
  }
    MICA_FORALL_DTYPES(MICA_ELEMENT)
#undef MICA_ELEMENT
    default:
      fail("load_scalar: invalid type");
  }
}

static PyObject* nested_list(const TensorView& v, int dim, const char* p) {
  if (dim == v.ndim) return element_object(v.dtype, p);
  const int64_t n = v.sizes[dim], step = n > 1 ? v.strides[dim] * mica::element_size(v.dtype) : 0;
  Owned list(checked(PyList_New(n)));
  for (int64_t i = 0; i < n; ++i, p += step) PyList_SET_ITEM(list.get(), i, checked(nested_list(v, dim + 1, p)));
  return list.release();
}

static PyObject* tolist(PyObject* self, PyObject*) try {
  if (PyObject* answer = nullptr; is_answered(self, "tolist", answer)) return answer;
  Tensor x = unwrap(self);
  if (x.is_floating_point()) recording::ask_for_values("Tensor.tolist");
  MICA_CHECK_KIND(!x.is_meta(), NotImplemented, "Cannot copy out of meta tensor; no data!");
  require_strided(x, "elements");
  MICA_CHECK(!x.is_quantized(), "tolist() of a quantized tensor: use dequantize() or int_repr() first");
  NoGradGuard no_history;
  if (!x.is_cpu()) x = mica::to(x, TensorOptions(kCPU), false, false, std::nullopt);
  if (x.is_conj()) x = mica::resolve_conj(x);
  if (x.is_neg()) x = mica::resolve_neg(x);
  return nested_list(x.view_of(), 0, static_cast<const char*>(x.data_ptr()));
} catch (...) {
  return raise_current_exception();
}

#define MICA_TO(name, dtype) \
  { name, as_cfunction(to_dtype<DType::dtype>), kFast, "The tensor as this dtype; itself if it is." }

PyMethodDef tensor_conversions[] = {
    {"to", as_cfunction(to), kFast, "The tensor with another dtype or on another device; itself if nothing changes."},
    MICA_TO("float", Float32),
    MICA_TO("double", Float64),
    MICA_TO("half", Float16),
    MICA_TO("bfloat16", BFloat16),
    MICA_TO("cfloat", Complex64),
    MICA_TO("cdouble", Complex128),
    MICA_TO("chalf", Complex32),
    MICA_TO("bool", Bool),
    MICA_TO("byte", UInt8),
    MICA_TO("char", Int8),
    MICA_TO("short", Int16),
    MICA_TO("int", Int32),
    MICA_TO("long", Int64),
    {"cpu", as_cfunction(cpu), kFast, "The tensor in host memory."},
    {"cuda", as_cfunction(cuda), kFast, "The tensor on a CUDA device."},
    {"type", as_cfunction(type), METH_VARARGS | METH_KEYWORDS, "The name of the tensor's type, or a conversion to it."},
    {"item", item, METH_NOARGS, "The value of a tensor of one element, as a Python number."},
    {"tolist", tolist, METH_NOARGS, "The values as nested lists; a number for a 0-dim tensor."},
    {}};

}  // namespace mica::python
