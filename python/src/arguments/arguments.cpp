// Conversion of Python arguments to what operations take.
#include "arguments/parser.h"
#include "mica/error.h"
#include "mica/ops.h"

namespace mica::python {

// ---- what may stand for a number

// Does not import NumPy: an object can be a NumPy scalar only if the program has imported it.
bool is_numpy_scalar(PyObject* o) {
  static PyObject* generic = nullptr;
  if (!generic) {
    PyObject* modules = PyImport_GetModuleDict();
    PyObject* numpy = PyDict_GetItemString(modules, "numpy");
    if (!numpy) return false;
    generic = PyObject_GetAttrString(numpy, "generic");
    if (!generic || !PyType_Check(generic)) {
      PyErr_Clear();
      Py_CLEAR(generic);
      return false;
    }
  }
  return PyObject_TypeCheck(o, reinterpret_cast<PyTypeObject*>(generic));
}

static bool is_plain_0dim(PyObject* o) { return is_tensor(o) && unwrap(o).dim() == 0 && !unwrap(o).requires_grad(); }

bool is_int_like(PyObject* o) {
  if (PyLong_CheckExact(o)) [[likely]]
    return true;
  if (PyBool_Check(o)) return false;
  if (is_tensor(o)) return is_plain_0dim(o) && is_integral(unwrap(o).dtype());
  return PyIndex_Check(o);
}

bool is_size_like(PyObject* o) {
  if (!is_tensor(o)) return is_int_like(o);
  const Tensor& t = unwrap(o);
  return t.numel() == 1 && is_integral(t.dtype()) && !t.requires_grad();
}

// A size that a graph leaves open (mica.SymInt), or a number that is computed from one.
static bool is_open_number(PyObject* o) {
  const std::string_view name = Py_TYPE(o)->tp_name;
  return name == "SymInt" || name == "SymFloat";
}

bool is_number_like(PyObject* o) {
  if (PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o)) [[likely]]
    return true;
  if (is_tensor(o)) return is_plain_0dim(o);
  return is_numpy_scalar(o) || is_open_number(o);
}

static int64_t overflow_checked(PyObject* o) {
  int overflow;
  int64_t value = PyLong_AsLongLongAndOverflow(o, &overflow);
  if (overflow) {
    PyErr_SetString(PyExc_ValueError, "Overflow when unpacking long long");
    throw PythonError();
  }
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

int64_t int_from_object(PyObject* o) {
  int64_t value;
  if (small_int(o, value)) [[likely]]
    return value;
  if (PyLong_Check(o)) return overflow_checked(o);
  if (is_tensor(o)) return unwrap(o).item().to_int();
  Owned number(checked(PyNumber_Index(o)));
  return overflow_checked(number.get());
}

double double_from_object(PyObject* o) {
  if (PyFloat_Check(o)) [[likely]]
    return PyFloat_AS_DOUBLE(o);
  if (is_tensor(o)) return unwrap(o).item().to_double();
  double value = PyFloat_AsDouble(o);
  if (value == -1 && PyErr_Occurred()) throw PythonError();
  return value;
}

Scalar scalar_from_object(PyObject* o) {
  if (PyFloat_Check(o)) return Scalar(PyFloat_AS_DOUBLE(o));
  if (PyBool_Check(o)) return Scalar(o == Py_True);
  if (int64_t value; small_int(o, value)) return Scalar(value);
  if (PyLong_Check(o)) {
    int overflow;
    int64_t value = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow > 0) {
      uint64_t large = PyLong_AsUnsignedLongLong(o);
      if (!PyErr_Occurred()) return Scalar(large);
      PyErr_Clear();
    }
    if (overflow) {
      PyErr_SetString(PyExc_OverflowError, "int too big to convert");
      throw PythonError();
    }
    return Scalar(value);
  }
  if (PyComplex_Check(o)) {
    Py_complex z = PyComplex_AsCComplex(o);
    return Scalar(complex128(z.real, z.imag));
  }
  if (is_tensor(o)) return unwrap(o).item();
  if (is_open_number(o)) {
    Owned number(checked(PyIndex_Check(o) ? PyNumber_Index(o) : PyNumber_Float(o)));
    return scalar_from_object(number.get());
  }
  // A NumPy scalar: its item() is a Python number.
  Owned number(checked(PyObject_CallMethod(o, "item", nullptr)));
  if (!PyFloat_Check(number.get()) && !PyLong_Check(number.get()) && !PyComplex_Check(number.get()))
    fail(ErrorKind::Type, cat("a number was expected, not ", Py_TYPE(o)->tp_name));
  return scalar_from_object(number.get());
}

bool is_dtype_like(PyObject* o) {
  return is_dtype(o) || o == reinterpret_cast<PyObject*>(&PyFloat_Type) ||
         o == reinterpret_cast<PyObject*>(&PyLong_Type) || o == reinterpret_cast<PyObject*>(&PyBool_Type) ||
         o == reinterpret_cast<PyObject*>(&PyComplex_Type);
}

DType dtype_from_object(PyObject* o) {
  if (is_dtype(o)) {
    const DType dtype = dtype_of_object(o);
    if (dtype == DType::Undefined || is_packed_quantized(dtype)) [[unlikely]]
      refuse_placeholder(o);
    return dtype;
  }
  if (o == reinterpret_cast<PyObject*>(&PyFloat_Type)) return DType::Float64;
  if (o == reinterpret_cast<PyObject*>(&PyLong_Type)) return DType::Int64;
  if (o == reinterpret_cast<PyObject*>(&PyBool_Type)) return DType::Bool;
  return DType::Complex128;
}

Tensor wrapped_number(const Scalar& number) {
  // Never part of a graph, and on the CPU whatever the default device is.
  Tensor t = scalar_tensor(number, TensorOptions(number.dtype()).device(kCPU));
  t->bits |= tensor_bit::kWrappedNumber;
  return t;
}

// ---- accessors

static const Tensor undefined_tensor;

const Tensor& Arguments::tensor_slow(PyObject* o) {
  if (!o) return undefined_tensor;
  if (is_tensor(o)) return unwrap(o);
  if (!numbers_) numbers_ = std::make_unique<Tensor[]>(kMaxParams);
  Tensor& slot = numbers_[static_cast<size_t>(num_numbers_++)];
  slot = wrapped_number(scalar_from_object(o));
  return slot;
}

Scalar Arguments::scalar(int i) const { return values_[i] ? scalar_from_object(values_[i]) : param(i).default_scalar; }
int64_t Arguments::integer(int i) const { return values_[i] ? int_from_object(values_[i]) : param(i).default_int; }
double Arguments::number(int i) const {
  return values_[i] ? double_from_object(values_[i]) : param(i).default_scalar.to_double();
}

std::string_view Arguments::text(int i) const {
  if (!values_[i]) return param(i).default_string;
  Py_ssize_t size;
  const char* s = PyUnicode_AsUTF8AndSize(values_[i], &size);
  if (!s) throw PythonError();
  return {s, static_cast<size_t>(size)};
}

DType Arguments::dtype(int i) const {
  return values_[i] ? dtype_from_object(values_[i]) : static_cast<DType>(param(i).default_int);
}

DType Arguments::any_dtype(int i) const {
  PyObject* o = values_[i];
  const DType quantized = o && is_dtype(o) ? quantized_dtype_of_object(o) : DType::Undefined;
  return quantized != DType::Undefined ? quantized : dtype(i);
}

int64_t Arguments::element(int i, PyObject* item, Py_ssize_t position) const {
  if (!is_size_like(item)) {
    const char* got = Py_TYPE(item)->tp_name;
    PyErr_Format(
        PyExc_TypeError,
        "%s(): argument '%U' failed to unpack the object at pos %zd with error \"type must be tuple of ints,but "
        "got %s\"",
        parser_->name(), param(i).name, position + 1, got);
    throw PythonError();
  }
  return int_from_object(item);
}

DimVector Arguments::ints(int i) const {
  PyObject* o = values_[i];
  DimVector values;
  if (!o) {
    values.assign(param(i).default_ints);
    return values;
  }
  auto append = [&](PyObject* item, Py_ssize_t position) {
    int64_t value;
    values.push_back(small_int(item, value) ? value : element(i, item, position));
  };
  if (i == varargs_index_) {
    for (Py_ssize_t k = 0; k < num_varargs_; ++k) append(varargs_[k], k);
  } else if (PyTuple_Check(o) || PyList_Check(o)) {
    for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k) append(PySequence_Fast_GET_ITEM(o, k), k);
  } else {
    values.resize(param(i).list_size, int_from_object(o));
  }
  return values;
}

std::vector<double> Arguments::numbers(int i) const {
  std::vector<double> values;
  PyObject* o = values_[i];
  if (!o) return values;
  if (!PyTuple_Check(o) && !PyList_Check(o)) return {double_from_object(o)};
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
    values.push_back(double_from_object(PySequence_Fast_GET_ITEM(o, k)));
  return values;
}

Bools Arguments::flags(int i) const {
  Bools values;
  PyObject* o = values_[i];
  Py_ssize_t n = o ? PySequence_Fast_GET_SIZE(o) : 0;
  MICA_CHECK(static_cast<size_t>(n) <= Bools::kMax, "a list of at most ", Bools::kMax, " bools was expected, got ", n);
  for (Py_ssize_t k = 0; k < n; ++k) values.push_back(truth(PySequence_Fast_GET_ITEM(o, k)));
  return values;
}

std::vector<Scalar> Arguments::scalars(int i) const {
  std::vector<Scalar> values;
  PyObject* o = values_[i];
  if (!o) return values;
  if (!PyTuple_Check(o) && !PyList_Check(o)) return {scalar_from_object(o)};
  for (Py_ssize_t k = 0; k < PySequence_Fast_GET_SIZE(o); ++k)
    values.push_back(scalar_from_object(PySequence_Fast_GET_ITEM(o, k)));
  return values;
}

std::vector<Tensor> Arguments::tensors(int i) const {
  std::vector<Tensor> values;
  PyObject* o = values_[i];
  if (!o) return values;
  Py_ssize_t n = PySequence_Fast_GET_SIZE(o);
  values.reserve(static_cast<size_t>(n));
  for (Py_ssize_t k = 0; k < n; ++k) {
    PyObject* item = PySequence_Fast_GET_ITEM(o, k);
    values.push_back(item == Py_None ? Tensor() : unwrap(item));
  }
  return values;
}

TensorOptions Arguments::options(int i) const {
  const TensorOptions o = TensorOptions()
                              .dtype(optional_dtype(i))
                              .layout(optional_layout(i + 1))
                              .device(optional_device(i + 2))
                              .requires_grad(flag(i + 4));
  return has(i + 3) ? o.pinned_memory(flag(i + 3)) : o;
}

}  // namespace mica::python
