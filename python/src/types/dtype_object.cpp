// torch.dtype: one object per element type.
#include <cstring>
#include <iterator>

#include "types/objects.h"

namespace mica::python {

PyTypeObject* dtype_type = nullptr;
static PyObject* dtype_objects[kNumDTypes];

PyTypeObject* add_type(PyObject* module, PyType_Spec* spec, PyObject* bases) {
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpecWithBases(spec, bases));
  if (!type) return nullptr;
  const char* dot = std::strrchr(spec->name, '.');
  if (PyModule_AddObjectRef(module, dot ? dot + 1 : spec->name, reinterpret_cast<PyObject*>(type)) < 0) return nullptr;
  return type;
}

PyObject* dtype_object(DType dtype) {
  if (dtype == DType::Undefined) Py_RETURN_NONE;
  return Py_NewRef(dtype_objects[static_cast<int>(dtype)]);
}

static DType dtype_of(PyObject* self) { return dtype_of_object(self); }
static const char* placeholder_of(PyObject* self) { return reinterpret_cast<DTypeObject*>(self)->placeholder; }
static const char* name_of(PyObject* self) {
  const char* placeholder = placeholder_of(self);
  return placeholder ? placeholder : name(dtype_of(self));
}

// Dtypes of quantized tensors, which are integers with a quantizer to the engine.
static constexpr const char* kPlaceholders[] = {"quint8", "qint8", "qint32"};
static constexpr DType kQuantizedIntegers[] = {DType::UInt8, DType::Int8, DType::Int32};
static PyObject* placeholder_objects[std::size(kPlaceholders)];

DType quantized_dtype_of_object(PyObject* o) {
  for (size_t i = 0; i < std::size(kQuantizedIntegers); ++i)
    if (o == placeholder_objects[i]) return kQuantizedIntegers[i];
  const DType dtype = is_dtype(o) ? dtype_of(o) : DType::Undefined;
  return is_packed_quantized(dtype) ? dtype : DType::Undefined;
}

PyObject* quantized_dtype_object(DType integers) {
  for (size_t i = 0; i < std::size(kQuantizedIntegers); ++i)
    if (integers == kQuantizedIntegers[i]) return Py_NewRef(placeholder_objects[i]);
  return dtype_object(integers);
}

void refuse_placeholder(PyObject* dtype) {
  fail(ErrorKind::NotImplemented, cat("torch.", name_of(dtype),
                                      " is the dtype of quantized tensors only: quantize_per_tensor and "
                                      "quantize_per_channel make them"));
}

static PyObject* dtype_repr(PyObject* self) { return PyUnicode_FromFormat("torch.%s", name_of(self)); }
static PyObject* get_is_floating_point(PyObject* self, void*) { return PyBool_FromLong(is_floating(dtype_of(self))); }
static PyObject* get_is_complex(PyObject* self, void*) { return PyBool_FromLong(is_complex(dtype_of(self))); }
static PyObject* get_is_signed(PyObject* self, void*) {
  const bool quantized = quantized_dtype_of_object(self) != DType::Undefined;
  if (quantized || is_bits(dtype_of(self))) {
    PyErr_SetString(PyExc_RuntimeError,
                    quantized ? "isSignedType not supported for quantized types" : "Bits types are undefined");
    return nullptr;
  }
  return PyBool_FromLong(info(dtype_of(self)).is_signed);
}
static PyObject* get_itemsize(PyObject* self, void*) {
  const DType integers = quantized_dtype_of_object(self);
  if (integers != DType::Undefined) return PyLong_FromLongLong(element_size(integers));
  return PyLong_FromLongLong(placeholder_of(self) ? 1 : element_size(dtype_of(self)));
}

static PyObject* dtype_to_complex(PyObject* self, PyObject*) try {
  if (placeholder_of(self)) refuse_placeholder(self);
  DType t = dtype_of(self);
  return dtype_object(is_complex(t) ? t : to_complex(t));
} catch (...) {
  return raise_current_exception();
}
static PyObject* dtype_to_real(PyObject* self, PyObject*) {
  return placeholder_of(self) ? Py_NewRef(self) : dtype_object(to_real(dtype_of(self)));
}

// Pickles as a call of mica._C._dtype, which needs no module called torch.
static PyObject* dtype_reduce(PyObject* self, PyObject*) {
  Owned module(PyImport_ImportModule("mica._C"));
  if (!module) return nullptr;
  Owned restore(PyObject_GetAttrString(module.get(), "_dtype"));
  if (!restore) return nullptr;
  return Py_BuildValue("O(s)", restore.get(), name_of(self));
}
static PyObject* dtype_copy(PyObject* self, PyObject*) { return Py_NewRef(self); }

static PyObject* dtype_by_name(PyObject*, PyObject* text) {
  const char* wanted = PyUnicode_AsUTF8(text);
  if (!wanted) return nullptr;
  for (PyObject* o : dtype_objects)
    if (!std::strcmp(name(dtype_of(o)), wanted)) return Py_NewRef(o);
  for (PyObject* o : placeholder_objects)
    if (!std::strcmp(placeholder_of(o), wanted)) return Py_NewRef(o);
  return PyErr_Format(PyExc_ValueError, "no dtype is called '%s'", wanted);
}

bool add_dtypes(PyObject* module) {
  static PyGetSetDef attributes[] = {{"is_floating_point", get_is_floating_point, nullptr, nullptr, nullptr},
                                     {"is_complex", get_is_complex, nullptr, nullptr, nullptr},
                                     {"is_signed", get_is_signed, nullptr, nullptr, nullptr},
                                     {"itemsize", get_itemsize, nullptr, "The bytes of one element.", nullptr},
                                     {}};
  static PyMethodDef methods[] = {
      {"to_complex", dtype_to_complex, METH_NOARGS, nullptr}, {"to_real", dtype_to_real, METH_NOARGS, nullptr},
      {"__reduce__", dtype_reduce, METH_NOARGS, nullptr},     {"__copy__", dtype_copy, METH_NOARGS, nullptr},
      {"__deepcopy__", dtype_copy, METH_O, nullptr},          {}};
  static PyType_Slot slots[] = {{Py_tp_repr, reinterpret_cast<void*>(dtype_repr)},
                                {Py_tp_getset, attributes},
                                {Py_tp_methods, methods},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch.dtype", sizeof(DTypeObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, slots};
  dtype_type = add_type(module, &spec);
  if (!dtype_type) return false;
  for (int i = 0; i < kNumDTypes; ++i) {
    auto* o = PyObject_New(DTypeObject, dtype_type);
    if (!o) return false;
    o->dtype = static_cast<DType>(i);
    o->placeholder = nullptr;
    dtype_objects[i] = reinterpret_cast<PyObject*>(o);
    if (PyModule_AddObjectRef(module, name(o->dtype), dtype_objects[i]) < 0) return false;
  }
  for (size_t i = 0; i < std::size(kPlaceholders); ++i) {
    auto* o = PyObject_New(DTypeObject, dtype_type);
    if (!o) return false;
    o->dtype = DType::Undefined;
    o->placeholder = kPlaceholders[i];
    placeholder_objects[i] = reinterpret_cast<PyObject*>(o);
    if (PyModule_AddObjectRef(module, kPlaceholders[i], placeholder_objects[i]) < 0) return false;
  }
  if (PyModule_AddObjectRef(module, "bit", dtype_objects[static_cast<int>(DType::UInt1)]) < 0) return false;
  static constexpr struct {
    const char* name;
    DType dtype;
  } kAliases[] = {{"float", DType::Float32},    {"double", DType::Float64},     {"half", DType::Float16},
                  {"long", DType::Int64},       {"int", DType::Int32},          {"short", DType::Int16},
                  {"cfloat", DType::Complex64}, {"cdouble", DType::Complex128}, {"chalf", DType::Complex32}};
  for (auto& alias : kAliases)
    if (PyModule_AddObjectRef(module, alias.name, dtype_objects[static_cast<int>(alias.dtype)]) < 0) return false;
  static PyMethodDef restore = {"_dtype", dtype_by_name, METH_O, "The dtype of a name such as 'float32'."};
  Owned module_name(PyModule_GetNameObject(module));
  Owned function(PyCFunction_NewEx(&restore, nullptr, module_name.get()));
  return function && PyModule_AddObjectRef(module, "_dtype", function.get()) == 0;
}

}  // namespace mica::python
