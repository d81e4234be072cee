// torch.finfo and torch.iinfo: the numeric limits of a dtype.
#include <cfloat>
#include <cstdio>
#include <limits>

#include "mica/error.h"
#include "types/objects.h"

namespace mica::python {

struct FloatLimits {
  DType dtype;
  double eps, max, smallest_normal, resolution;
  double min() const { return dtype == DType::Float8_e8m0fnu ? smallest_normal : -max; }
};
static constexpr FloatLimits kFloatLimits[] = {
    {DType::Float64, DBL_EPSILON, DBL_MAX, DBL_MIN, 1e-15},  {DType::Float32, FLT_EPSILON, FLT_MAX, FLT_MIN, 1e-6},
    {DType::Float16, 0x1p-10, 65504.0, 0x1p-14, 1e-3},       {DType::BFloat16, 0x1p-7, 0x1.fep127, 0x1p-126, 1e-2},
    {DType::Float8_e5m2, 0x1p-2, 57344.0, 0x1p-14, 1.0},     {DType::Float8_e4m3fn, 0x1p-3, 448.0, 0x1p-6, 1.0},
    {DType::Float8_e5m2fnuz, 0x1p-3, 57344.0, 0x1p-15, 1.0}, {DType::Float8_e4m3fnuz, 0x1p-3, 240.0, 0x1p-7, 1.0},
    {DType::Float8_e8m0fnu, 1.0, 0x1p127, 0x1p-127, 1.0},
};

struct FloatInfoObject {
  PyObject_HEAD const FloatLimits* limits;
};
struct IntInfoObject {
  PyObject_HEAD DType dtype;
};
static PyTypeObject *finfo_type, *iinfo_type;

static const FloatLimits& limits_of(PyObject* o) { return *reinterpret_cast<FloatInfoObject*>(o)->limits; }
static DType integer_of(PyObject* o) { return reinterpret_cast<IntInfoObject*>(o)->dtype; }

static PyObject* parse_dtype(PyObject* args, PyObject* kwargs, const char* function) {
  static const char* names[] = {"type", nullptr};
  PyObject* dtype = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", const_cast<char**>(names), &dtype)) return nullptr;
  if (!dtype) return dtype_object(default_dtype());
  if (!is_dtype(dtype))
    return PyErr_Format(PyExc_TypeError, "%s(): argument 'type' (position 1) must be torch.dtype, not %s", function,
                        Py_TYPE(dtype)->tp_name);
  return Py_NewRef(dtype);
}

static PyObject* finfo_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  Owned given(parse_dtype(args, kwargs, "finfo"));
  if (!given) return nullptr;
  DType dtype = to_real(dtype_of_object(given.get()));
  if (dtype == DType::Float4_e2m1fn_x2) {
    PyErr_SetString(PyExc_NotImplementedError, "\"epsilon\" not implemented for 'Float4_e2m1fn_x2'");
    return nullptr;
  }
  for (const FloatLimits& limits : kFloatLimits) {
    if (limits.dtype != dtype) continue;
    auto* o = PyObject_New(FloatInfoObject, finfo_type);
    if (o) o->limits = &limits;
    return reinterpret_cast<PyObject*>(o);
  }
  PyErr_SetString(PyExc_TypeError,
                  "torch.finfo() requires a floating point input type. Use torch.iinfo to handle 'torch.finfo'");
  return nullptr;
}

static PyObject* iinfo_new(PyTypeObject*, PyObject* args, PyObject* kwargs) {
  Owned given(parse_dtype(args, kwargs, "iinfo"));
  if (!given) return nullptr;
  DType dtype = dtype_of_object(given.get());
  if (dtype == DType::Bool) {
    PyErr_SetString(PyExc_TypeError, "torch.bool is not supported by torch.iinfo");
    return nullptr;
  }
  if (!is_integral(dtype)) {
    PyErr_SetString(PyExc_TypeError,
                    "torch.iinfo() requires an integer input type. Use torch.finfo to handle 'torch.iinfo'");
    return nullptr;
  }
  auto* o = PyObject_New(IntInfoObject, iinfo_type);
  if (o) o->dtype = dtype;
  return reinterpret_cast<PyObject*>(o);
}

static PyObject* finfo_get_eps(PyObject* self, void*) { return PyFloat_FromDouble(limits_of(self).eps); }
static PyObject* finfo_get_max(PyObject* self, void*) { return PyFloat_FromDouble(limits_of(self).max); }
static PyObject* finfo_get_min(PyObject* self, void*) { return PyFloat_FromDouble(limits_of(self).min()); }
static PyObject* finfo_get_tiny(PyObject* self, void*) { return PyFloat_FromDouble(limits_of(self).smallest_normal); }
static PyObject* finfo_get_resolution(PyObject* self, void*) { return PyFloat_FromDouble(limits_of(self).resolution); }
static PyObject* finfo_get_bits(PyObject* self, void*) {
  return PyLong_FromLongLong(8 * element_size(limits_of(self).dtype));
}
static PyObject* finfo_get_dtype(PyObject* self, void*) { return PyUnicode_FromString(name(limits_of(self).dtype)); }
static PyObject* finfo_compare(PyObject* a, PyObject* b, int op) {
  if (Py_TYPE(b) != finfo_type || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((&limits_of(a) == &limits_of(b)) == (op == Py_EQ));
}
static PyObject* finfo_repr(PyObject* self) {
  const FloatLimits& l = limits_of(self);
  char text[256];
  std::snprintf(text, sizeof text,
                "finfo(resolution=%g, min=%g, max=%g, eps=%g, smallest_normal=%g, tiny=%g, dtype=%s)", l.resolution,
                l.min(), l.max, l.eps, l.smallest_normal, l.smallest_normal, name(l.dtype));
  return PyUnicode_FromString(text);
}

static PyObject* iinfo_get_bits(PyObject* self, void*) {
  return PyLong_FromLongLong(8 * element_size(integer_of(self)));
}
static PyObject* iinfo_get_max(PyObject* self, void*) {
  int bits = static_cast<int>(8 * element_size(integer_of(self))) - info(integer_of(self)).is_signed;
  return PyLong_FromUnsignedLongLong(~uint64_t{0} >> (64 - bits));
}
static PyObject* iinfo_get_min(PyObject* self, void*) {
  if (!info(integer_of(self)).is_signed) return PyLong_FromLong(0);
  return PyLong_FromLongLong(std::numeric_limits<int64_t>::min() >> (64 - 8 * element_size(integer_of(self))));
}
static PyObject* iinfo_get_dtype(PyObject* self, void*) { return PyUnicode_FromString(name(integer_of(self))); }
static PyObject* iinfo_compare(PyObject* a, PyObject* b, int op) {
  if (Py_TYPE(b) != iinfo_type || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((integer_of(a) == integer_of(b)) == (op == Py_EQ));
}
static PyObject* iinfo_repr(PyObject* self) {
  Owned min(iinfo_get_min(self, nullptr)), max(iinfo_get_max(self, nullptr));
  return PyUnicode_FromFormat("iinfo(min=%S, max=%S, dtype=%s)", min.get(), max.get(), name(integer_of(self)));
}

bool add_type_limits(PyObject* module) {
  static PyGetSetDef float_attributes[] = {{"bits", finfo_get_bits, nullptr, nullptr, nullptr},
                                           {"eps", finfo_get_eps, nullptr, nullptr, nullptr},
                                           {"max", finfo_get_max, nullptr, nullptr, nullptr},
                                           {"min", finfo_get_min, nullptr, nullptr, nullptr},
                                           {"tiny", finfo_get_tiny, nullptr, nullptr, nullptr},
                                           {"smallest_normal", finfo_get_tiny, nullptr, nullptr, nullptr},
                                           {"resolution", finfo_get_resolution, nullptr, nullptr, nullptr},
                                           {"dtype", finfo_get_dtype, nullptr, nullptr, nullptr},
                                           {}};
  static PyGetSetDef int_attributes[] = {{"bits", iinfo_get_bits, nullptr, nullptr, nullptr},
                                         {"max", iinfo_get_max, nullptr, nullptr, nullptr},
                                         {"min", iinfo_get_min, nullptr, nullptr, nullptr},
                                         {"dtype", iinfo_get_dtype, nullptr, nullptr, nullptr},
                                         {}};
  static PyType_Slot float_slots[] = {{Py_tp_new, reinterpret_cast<void*>(finfo_new)},
                                      {Py_tp_repr, reinterpret_cast<void*>(finfo_repr)},
                                      {Py_tp_richcompare, reinterpret_cast<void*>(finfo_compare)},
                                      {Py_tp_getset, float_attributes},
                                      {0, nullptr}};
  static PyType_Slot int_slots[] = {{Py_tp_new, reinterpret_cast<void*>(iinfo_new)},
                                    {Py_tp_repr, reinterpret_cast<void*>(iinfo_repr)},
                                    {Py_tp_richcompare, reinterpret_cast<void*>(iinfo_compare)},
                                    {Py_tp_getset, int_attributes},
                                    {0, nullptr}};
  constexpr auto kFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE;
  static PyType_Spec float_spec = {"torch.finfo", sizeof(FloatInfoObject), 0, kFlags, float_slots};
  static PyType_Spec int_spec = {"torch.iinfo", sizeof(IntInfoObject), 0, kFlags, int_slots};
  finfo_type = add_type(module, &float_spec);
  iinfo_type = add_type(module, &int_spec);
  return finfo_type && iinfo_type;
}

}  // namespace mica::python
