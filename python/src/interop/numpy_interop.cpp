// NumPy arrays and tensors over one memory. Arrays are read through Python's buffer protocol and made from it, so that
// neither NumPy's headers nor its import are needed before a program asks for an array.
#include <cstring>

#include "arguments/torch_function.h"
#include "core/exported_storage.h"
#include "interop/foreign_memory.h"
#include "mica/warning.h"
#include "operations/entry.h"
#include "tensor/tensor_new.h"

namespace mica::python {

// An attribute of NumPy, kept for ever; null if NumPy is not imported and must not be.
static PyObject* numpy_attribute(PyObject*& cache, const char* name, bool import) {
  if (cache) return cache;
  if (!import && !PyDict_GetItemString(PyImport_GetModuleDict(), "numpy")) return nullptr;
  Owned numpy(PyImport_ImportModule("numpy"));
  if (numpy) cache = PyObject_GetAttrString(numpy.get(), name);
  if (!cache && !import) PyErr_Clear();
  return cache;
}

bool is_numpy_array(PyObject* o) {
  static PyObject* type = nullptr;
  PyObject* ndarray = numpy_attribute(type, "ndarray", false);
  return ndarray && PyType_Check(ndarray) && PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(ndarray));
}

// ---- element types in the buffer protocol's letters

DType dtype_of_format(const char* format, Py_ssize_t itemsize) {
  if (!format) return DType::UInt8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  const std::string_view f = format;
  if (f == "?") return DType::Bool;
  if (f == "e") return DType::Float16;
  if (f == "f") return DType::Float32;
  if (f == "d") return DType::Float64;
  if (f == "Zf") return DType::Complex64;
  if (f == "Zd") return DType::Complex128;
  if (f.size() != 1) return DType::Undefined;
  const bool is_signed = std::strchr("bhilqn", f[0]), is_unsigned = std::strchr("BHILQN", f[0]);
  if (!is_signed && !is_unsigned) return DType::Undefined;
  switch (itemsize) {
    case 1:
      return is_signed ? DType::Int8 : DType::UInt8;
    case 2:
      return is_signed ? DType::Int16 : DType::UInt16;
    case 4:
      return is_signed ? DType::Int32 : DType::UInt32;
    case 8:
      return is_signed ? DType::Int64 : DType::UInt64;
    default:
      return DType::Undefined;
  }
}

static const char* format_of_dtype(DType dtype) {
  switch (dtype) {
    case DType::UInt8:
      return "B";
    case DType::Int8:
      return "b";
    case DType::Int16:
      return "h";
    case DType::Int32:
      return "i";
    case DType::Int64:
      return "l";
    case DType::Float16:
      return "e";
    case DType::Float32:
      return "f";
    case DType::Float64:
      return "d";
    case DType::Complex64:
      return "Zf";
    case DType::Complex128:
      return "Zd";
    case DType::Bool:
      return "?";
    case DType::UInt16:
      return "H";
    case DType::UInt32:
      return "I";
    case DType::UInt64:
      return "L";
    default:
      return nullptr;
  }
}

// ---- from NumPy

[[noreturn]] static void refuse_elements(PyObject* array) {
  Owned dtype(checked(PyObject_GetAttrString(array, "dtype")));
  Owned type(checked(PyObject_GetAttrString(dtype.get(), "type")));
  Owned name(checked(PyObject_GetAttrString(type.get(), "__name__")));
  fail(ErrorKind::Type, cat("can't convert np.ndarray of type numpy.", PyUnicode_AsUTF8(name.get()),
                            ". The only supported types are: float64, float32, float16, complex64, complex128, int64, "
                            "int32, int16, int8, uint64, uint32, uint16, uint8, and bool."));
}

Tensor tensor_from_numpy(PyObject* array, bool stays_shared) {
  Py_buffer view;
  if (PyObject_GetBuffer(array, &view, PyBUF_STRIDES | PyBUF_FORMAT) < 0) {
    PyErr_Clear();  // dates and the like have no format
    refuse_elements(array);
  }
  // Releases the description of the array only; the array stays.
  std::unique_ptr<Py_buffer, void (*)(Py_buffer*)> release(&view, PyBuffer_Release);
  const bool swapped = view.format && (*view.format == '>' || *view.format == '!');
  const DType dtype = dtype_of_format(view.format + (swapped ? 1 : 0), view.itemsize);
  if (dtype == DType::Undefined) refuse_elements(array);
  MICA_CHECK_KIND(!swapped || view.itemsize == 1, Value,
                  "given numpy array has byte order different from the native byte order. Conversion between byte "
                  "orders is currently not supported. Use array.astype(array.dtype.newbyteorder('=')).");
  if (view.readonly && stays_shared)
    MICA_WARN_ONCE(
        "The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means writing "
        "to this tensor will result in undefined behavior. You may want to copy the array to protect its data or make "
        "it writable before converting it to a tensor. This type of warning will be suppressed for the rest of this "
        "program.");
  DimVector sizes, strides;
  for (int i = 0; i < view.ndim; ++i) {
    MICA_CHECK_KIND(view.strides[i] % view.itemsize == 0, Value,
                    "given numpy array strides not a multiple of the element byte size. Copy the numpy array to "
                    "reallocate the memory.");
    sizes.push_back(view.shape[i]);
    strides.push_back(view.strides[i] / view.itemsize);
  }
  return tensor_over(view.buf, dtype, kCPU, sizes, strides, drop_object, Py_NewRef(array));
}

static PyObject* from_numpy(PyObject*, PyObject* array) try {
  if (!is_numpy_array(array)) {
    // An array within a captured graph (mica/_dynamo/arrays.py) has a tensor, but no memory yet.
    if (PyObject_HasAttrString(reinterpret_cast<PyObject*>(Py_TYPE(array)), "_captured_tensor"))
      return PyObject_CallMethod(array, "_captured_tensor", nullptr);
    return PyErr_Format(PyExc_TypeError, "expected np.ndarray (got %s)", Py_TYPE(array)->tp_name);
  }
  return wrap(lifted(tensor_from_numpy(array)));
} catch (...) {
  return raise_current_exception();
}

// ---- to NumPy

// The object that NumPy gets: a tensor's memory behind the buffer protocol. It becomes the array's base.
struct MemoryObject {
  PyObject_HEAD Tensor tensor;
  Py_ssize_t byte_strides[64];
};
static PyTypeObject* memory_type = nullptr;

static int memory_buffer(PyObject* self, Py_buffer* view, int) {
  auto* memory = reinterpret_cast<MemoryObject*>(self);
  const Tensor& x = memory->tensor;
  *view = {};
  view->buf = x.data_ptr();
  view->obj = Py_NewRef(self);
  view->itemsize = static_cast<Py_ssize_t>(x.element_size());
  view->len = static_cast<Py_ssize_t>(x.nbytes());
  view->ndim = static_cast<int>(x.dim());
  view->format = const_cast<char*>(format_of_dtype(x.dtype()));
  view->shape = const_cast<Py_ssize_t*>(reinterpret_cast<const Py_ssize_t*>(x.sizes().data()));
  view->strides = memory->byte_strides;
  return 0;
}

static void memory_dealloc(PyObject* self) {
  reinterpret_cast<MemoryObject*>(self)->tensor.~Tensor();
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject* array_over(const Tensor& x) {
  static PyObject* cache = nullptr;
  PyObject* asarray = numpy_attribute(cache, "asarray", true);
  if (!asarray) return nullptr;
  auto* memory = PyObject_New(MemoryObject, memory_type);
  if (!memory) return nullptr;
  keep_in_place(*x.storage());
  // An alias, so that a later resize_ or set_ of the tensor does not reach the array's geometry.
  new (&memory->tensor) Tensor(Tensor::adopt(
      TensorImpl::create(x.storage(), x.dtype(), x.device(), x.sizes(), x.strides(), x.storage_offset())));
  for (size_t i = 0; i < x.strides().size(); ++i)
    memory->byte_strides[i] = static_cast<Py_ssize_t>(x.strides()[i] * x.element_size());
  Owned owner(reinterpret_cast<PyObject*>(memory));
  return PyObject_CallOneArg(asarray, owner.get());
}

static PyObject* to_numpy(const Tensor& given, bool force) {
  Tensor x = given;
  if (force) {
    NoGradGuard no_history;
    x = mica::resolve_neg(mica::resolve_conj(mica::to(mica::detach(x), TensorOptions(kCPU), false, false)));
  }
  MICA_CHECK_KIND(x.layout() == Layout::Strided, Type, "can't convert ", x.layout(),
                  " layout tensor to numpy. Use Tensor.to_dense() first.");
  MICA_CHECK_KIND(!x.is_quantized(), Type,
                  "can't convert a quantized tensor to numpy. Use Tensor.dequantize() or "
                  "Tensor.int_repr() first.");
  MICA_CHECK_KIND(x.is_cpu(), Type, "can't convert ", x.device(),
                  " device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.");
  MICA_CHECK(!x.requires_grad() || !grad_enabled(),
             "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.");
  MICA_CHECK(!x.is_conj(),
             "Can't call numpy() on Tensor that has conjugate bit set. Use tensor.resolve_conj().numpy() instead.");
  MICA_CHECK(!x.is_neg(),
             "Can't call numpy() on Tensor that has negative bit set. Use tensor.resolve_neg().numpy() instead.");
  MICA_CHECK_KIND(format_of_dtype(x.dtype()), Type, "Got unsupported ScalarType ", info(x.dtype()).legacy);
  MICA_CHECK(x.dim() <= 64, "NumPy arrays have at most 64 dimensions, the tensor has ", x.dim());
  return array_over(x);
}

static PyObject* numpy(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) try {
  if (nargs == 0 && !kwnames) {
    if (may_be_asked(self)) [[unlikely]] {
      if (PyObject* answer = ask_about(self, "numpy"); answer || PyErr_Occurred()) return answer;
    }
    return to_numpy(unwrap(self), false);
  }
  static constexpr SignatureText texts[] = {{kMethod, "Tensor self, *, bool force=False"}};
  static constinit Parser parser("numpy", texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  return to_numpy(a.tensor(0), a.flag(1));
} catch (...) {
  return raise_current_exception();
}

// NumPy's protocol: np.asarray(tensor), np.array(tensor, dtype, copy=...).
static PyObject* as_array(PyObject* self, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"dtype", "copy", nullptr};
  PyObject *dtype = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", const_cast<char**>(names), &dtype, &copy))
    return nullptr;
  if (may_be_asked(self)) [[unlikely]] {
    PyObject* answer = ask_about(self, "__array__", &dtype, dtype == Py_None ? 0 : 1);
    if (answer || PyErr_Occurred()) return answer;
  }
  Owned array(to_numpy(unwrap(self), false));
  if (!array) return nullptr;
  if (dtype != Py_None) {
    Owned present(PyObject_GetAttrString(array.get(), "dtype"));
    const int same = present ? PyObject_RichCompareBool(present.get(), dtype, Py_EQ) : -1;
    if (same < 0) return nullptr;
    if (!same && copy == Py_False)
      return PyErr_Format(PyExc_ValueError, "Unable to avoid copy while creating an array of another dtype.");
    if (!same) return PyObject_CallMethod(array.get(), "astype", "O", dtype);
  }
  return copy == Py_True ? PyObject_CallMethod(array.get(), "copy", nullptr) : array.release();
} catch (...) {
  return raise_current_exception();
}

// The result of a NumPy function of a tensor, as a tensor again. NumPy also passes its context and whether the result
// is to be a scalar; a tensor stays one.
static PyObject* wrap_array(PyObject* self, PyObject* args) try {
  PyObject *array, *context, *return_scalar;
  if (!PyArg_UnpackTuple(args, "__array_wrap__", 1, 3, &array, &context, &return_scalar)) return nullptr;
  if (PyObject* answer = nullptr; is_answered(self, "__array_wrap__", answer, &array, 1)) return answer;
  if (!is_numpy_array(array)) return from_numpy(self, array);
  Tensor result = tensor_from_numpy(array);
  // Bools come back as bytes, as in torch.
  if (result.dtype() == DType::Bool) result = mica::to(result, TensorOptions(DType::UInt8), false, false);
  return wrap(std::move(result));
} catch (...) {
  return raise_current_exception();
}

static PyObject* cuda_array_interface(PyObject* self, void*) try {
  if (may_be_asked(self) && torch_function_wanted(attributes_overridden(self) ? 1 : 0)) [[unlikely]] {
    Owned attribute(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "__cuda_array_interface__"));
    Owned get(attribute ? PyObject_GetAttrString(attribute.get(), "__get__") : nullptr);
    if (!get) return nullptr;
    return call_torch_function(get.get(), &self, overrides_torch_function(self) ? 1 : 0, &self, 1);
  }
  const Tensor& x = unwrap(self);
  MICA_CHECK_KIND(x.is_cuda(), Attribute, "Can't get __cuda_array_interface__ on non-CUDA tensor type: torch.",
                  info(x.dtype()).legacy,
                  "Tensor If CUDA data is required use tensor.cuda() to copy tensor to device memory.");
  MICA_CHECK(!x.requires_grad(),
             "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, use "
             "var.detach() to get Variable that doesn't require grad.");
  MICA_CHECK_KIND(format_of_dtype(x.dtype()), Type, "the CUDA array interface has no ", x.dtype());
  const char kind = x.dtype() == DType::Bool    ? 'b'
                    : x.is_complex()            ? 'c'
                    : x.is_floating_point()     ? 'f'
                    : info(x.dtype()).is_signed ? 'i'
                                                : 'u';
  Owned shape(PyTuple_New(x.dim())), strides(PyTuple_New(x.dim()));
  if (!shape || !strides) return nullptr;
  for (int64_t i = 0; i < x.dim(); ++i) {
    PyTuple_SET_ITEM(shape.get(), i, PyLong_FromLongLong(x.size(i)));
    PyTuple_SET_ITEM(strides.get(), i, PyLong_FromLongLong(x.stride(i) * x.element_size()));
  }
  const bool row_major = x.is_contiguous();
  Owned type(PyUnicode_FromFormat("<%c%d", kind, static_cast<int>(x.element_size())));
  Owned address(PyLong_FromVoidPtr(x.numel() ? x.data_ptr() : nullptr));
  return Py_BuildValue("{s:O,s:O,s:O,s:(OO),s:i}", "typestr", type.get(), "shape", shape.get(), "strides",
                       row_major ? Py_None : strides.get(), "data", address.get(), Py_False, "version", 2);
} catch (...) {
  return raise_current_exception();
}

bool add_numpy(PyObject* module) {
  static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(memory_buffer)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(memory_dealloc)},
                                {0, nullptr}};
  static PyType_Spec spec = {"mica._C._TensorMemory", sizeof(MemoryObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
  memory_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  static PyMethodDef methods[] = {
      {"numpy", as_cfunction(numpy), METH_FASTCALL | METH_KEYWORDS,
       "A NumPy array over the tensor's memory; with force=True, of a copy where the memory cannot be shared."},
      {"__array__", as_cfunction(as_array), METH_VARARGS | METH_KEYWORDS, nullptr},
      {"__array_wrap__", wrap_array, METH_VARARGS, nullptr},
      {}};
  static PyGetSetDef attributes[] = {{"__cuda_array_interface__", cuda_array_interface, nullptr, nullptr, nullptr}, {}};
  static PyMethodDef functions[] = {
      {"from_numpy", from_numpy, METH_O, "A tensor over a NumPy array's memory, of any strides, negative ones too."},
      {}};
  return memory_type && add_tensor_methods(methods) && add_tensor_attributes(attributes) &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
