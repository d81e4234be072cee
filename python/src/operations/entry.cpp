// Registers the generated entries, and makes the objects that they return.
#include "operations/entry.h"

#include "mica/values.h"
#include "operations/function_object.h"

#include <structmember.h>

#include <cstring>
#include <string>
#include <string_view>

namespace mica::python {

// ---- results

PyObject* to_python(const Scalar& s) {
  if (s.is_bool()) return PyBool_FromLong(s.to_bool());
  if (s.is_floating()) return PyFloat_FromDouble(s.to_double());
  if (s.is_complex()) {
    complex128 z = s.to_complex();
    return PyComplex_FromDoubles(z.real(), z.imag());
  }
  if (s.dtype() == DType::UInt64) return PyLong_FromUnsignedLongLong(s.to<uint64_t>());
  return PyLong_FromLongLong(s.to_int());
}

PyObject* to_python(const std::string& s) {
  return PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()));
}

PyObject* to_python(std::vector<Tensor> list) { return tuple_of(list.data(), list.size(), nullptr); }

PyObject* tuple_of(Tensor* tensors, size_t count, ReturnType* type) {
  Owned tuple;
  if (type) {
    PyTypeObject* named = type->get();
    if (!named) return nullptr;
    tuple = Owned(PyStructSequence_New(named));
  } else {
    tuple = Owned(PyTuple_New(static_cast<Py_ssize_t>(count)));
  }
  if (!tuple) return nullptr;
  for (size_t i = 0; i < count; ++i) {
    PyObject* item = wrap(std::move(tensors[i]));
    if (!item) return nullptr;
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), item);
  }
  return tuple.release();
}

PyObject* new_result(const TensorOptions& options, Tensor result) {
  return wrap(made_with(std::move(result), options));
}

void fill_out(const Tensor& out, const TensorOptions& options, FunctionRef<void()> fill) {
  MICA_CHECK(!options.has_dtype() || options.dtype() == out.dtype(), "dtype ", info(options.dtype()).legacy,
             " does not match dtype of out parameter (", info(out.dtype()).legacy, ")");
  MICA_CHECK(!options.has_layout() || options.layout() == out.layout(),
             "the layout does not match layout of out parameter (Strided)");
  MICA_CHECK(!options.has_device() || options.device().type() == out.device().type(), "device type ",
             device_type_name(options.device().type()), " does not match device type of out parameter (",
             device_type_name(out.device().type()), ")");
  fill();
  if (options.requires_grad()) out.requires_grad_(true);
}

int64_t count_of(IntArrayRef sizes) {
  int64_t count = 1;
  for (int64_t extent : sizes)
    if (__builtin_mul_overflow(count, extent, &count)) return 0;
  return count;
}

// "torch.return_types.sort(\nvalues=tensor(...),\nindices=tensor(...))"
static PyObject* named_tuple_repr(PyObject* self) {
  std::string text = cat(Py_TYPE(self)->tp_name, "(\n");
  PyMemberDef* members = Py_TYPE(self)->tp_members;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self); ++i) {
    Owned item(PyObject_Repr(PyTuple_GET_ITEM(self, i)));
    const char* value = item ? PyUnicode_AsUTF8(item.get()) : nullptr;
    if (!value) return nullptr;
    text += cat(i ? ",\n" : "", members[i].name, "=", value);
  }
  return to_python(text + ")");
}

PyTypeObject* ReturnType::get() {
  if (type) return type;
  std::string full_name = cat("torch.return_types.", name);
  PyStructSequence_Field described[kMaxFields + 1] = {};
  int count = 0;
  for (; fields[count]; ++count) described[count].name = fields[count];
  // The name must outlive the type, and the type lives for ever.
  PyStructSequence_Desc description = {strdup(full_name.c_str()), nullptr, described, count};
  PyTypeObject* made = PyStructSequence_NewType(&description);
  if (!made) return nullptr;
  made->tp_repr = named_tuple_repr;
  return type = made;
}

static PyObject* return_type(PyObject*, PyObject* wanted) {
  const char* name = PyUnicode_AsUTF8(wanted);
  if (!name) return nullptr;
  for (size_t f = 0; f < kNumFamilies; ++f)
    for (size_t i = 0; i < kFamilies[f]->num_return_types; ++i)
      if (!std::strcmp(kFamilies[f]->return_types[i]->name, name))
        return Py_XNewRef(reinterpret_cast<PyObject*>(kFamilies[f]->return_types[i]->get()));
  return PyErr_Format(PyExc_AttributeError, "module 'torch.return_types' has no attribute '%s'", name);
}

// ---- registration

// "nn.functional" -> the namespace object mica._C._nn_functional, made on demand.
static PyObject* namespace_of(PyObject* module, const char* space) {
  if (!*space) return module;
  std::string attribute = "_";
  for (const char* c = space; *c; ++c) attribute += *c == '.' ? '_' : *c;
  PyObject* dict = PyModule_GetDict(module);
  if (PyObject* known = PyDict_GetItemString(dict, attribute.c_str())) return known;
  Owned made(PyModule_New(cat("mica.", space).c_str()));
  if (!made || PyDict_SetItemString(dict, attribute.c_str(), made.get()) < 0) return nullptr;
  return PyDict_GetItemString(dict, attribute.c_str());
}

// The name that torch has for a function, and that of its module, which programs print and pickle.
struct Called {
  std::string name, module;
  bool like_python;  // torch writes it in Python, so programs may handle it like a Python function
};

static Called called(const Entry& entry) {
  const std::string_view space = entry.space, name = entry.definition.ml_name;
  for (std::string_view family : {"fft", "linalg", "special"})
    if (space == family) return {cat(family, "_", name), cat("mica._C._", family), false};
  if (space == "nn.functional")
    for (std::string_view known : {"avg_pool2d", "avg_pool3d", "elu_", "gelu", "hardtanh_", "leaky_relu_", "linear",
                                   "one_hot", "scaled_dot_product_attention", "softplus", "softshrink"})
      if (name == known) return {std::string(name), "mica._C._nn", false};
  if (space == "nn.functional" && name == "logsigmoid") return {"log_sigmoid", "mica._C._nn", false};
  const bool like_python = space == "nn.functional" || space == "nn.init";
  if (space.empty())
    for (std::string_view known : {"cdist", "norm", "stft", "unravel_index"})
      if (name == known) return {std::string(name), "mica.functional", false};
  return {std::string(name), space.empty() ? "mica" : cat("mica.", space), like_python};
}

// self is null, by which an entry tells a function call from a method call.
static PyObject* new_builtin(Entry& entry, const Called& as, PyObject* module_name) {
  PyMethodDef* definition = &entry.definition;
  if (as.name != definition->ml_name)  // never freed: it lives as long as the function
    definition =
        new PyMethodDef{strdup(as.name.c_str()), definition->ml_meth, definition->ml_flags, definition->ml_doc};
  return PyCFunction_NewEx(definition, nullptr, module_name);
}

static bool add_entry(PyObject* module, Entry& entry) {
  if (entry.forms & kFunction) {
    PyObject* space = namespace_of(module, entry.space);
    if (!space) return false;
    const Called as = called(entry);
    Owned module_name(PyUnicode_FromString(as.module.c_str()));
    if (!module_name) return false;
    Owned function(as.like_python ? new_function(entry, module_name.get()) : new_builtin(entry, as, module_name.get()));
    if (!function || PyDict_SetItemString(PyModule_GetDict(space), entry.definition.ml_name, function.get()) < 0)
      return false;
  }
  if (entry.forms & kMethod) {
    PyTypeObject* base = tensor_type->tp_base;  // TensorBase
    Owned method(PyDescr_NewMethod(base, &entry.definition));
    // A method that is written by hand wins.
    if (!method || !PyDict_SetDefault(base->tp_dict, PyDescr_NAME(method.get()), method.get())) return false;
  }
  return true;
}

bool add_entries(PyObject* module) {
  if (!add_function_type(module)) return false;
  for (size_t f = 0; f < kNumFamilies; ++f)
    for (size_t i = 0; i < kFamilies[f]->num_entries; ++i)
      if (!add_entry(module, kFamilies[f]->entries[i])) return false;
  PyType_Modified(tensor_type->tp_base);
  static PyMethodDef by_name = {"_return_type", return_type, METH_O, "The named tuple type that an operation returns."};
  Owned function(PyCFunction_NewEx(&by_name, nullptr, nullptr));
  return function && PyModule_AddObjectRef(module, "_return_type", function.get()) == 0;
}

}  // namespace mica::python
