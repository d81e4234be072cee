// repr() of a tensor, and the options of printing.
#include "arguments/torch_function.h"
#include "interop/foreign_memory.h"
#include "mica/core/recording.h"
#include "mica/print.h"
#include "operations/entry.h"

namespace mica::python {

// "tensor" for Tensor itself, the name of the class for subclasses. A class that prints like a plain tensor (Parameter)
// says so in an attribute of its own, which its subclasses do not inherit.
static std::string printed_name(PyTypeObject* type) {
  if (type == tensor_type) return "tensor";
  PyObject* own = PyDict_GetItemString(type->tp_dict, "_repr_name");
  Owned name(own ? Py_NewRef(own) : PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__name__"));
  const char* text = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
  if (!text) throw PythonError();
  return text;
}

// Set while a level of forward derivatives is open: a function that returns the value and the tangent's text of a dual
// tensor, or None.
static PyObject* dual_parts = nullptr;

static PyObject* set_dual_parts(PyObject*, PyObject* function) {
  PyObject* before = dual_parts;
  dual_parts = function == Py_None ? nullptr : Py_NewRef(function);
  Py_XDECREF(before);
  Py_RETURN_NONE;
}

// The text of a dual tensor; null, without an exception, where the tensor is none.
static PyObject* dual_repr(PyObject* self) {
  Owned function = Owned::borrow(dual_parts);
  Owned parts(checked(PyObject_CallOneArg(function.get(), self)));
  if (parts.get() == Py_None) return nullptr;
  PyObject *value, *tangent;
  if (!PyArg_ParseTuple(parts.get(), "OU", &value, &tangent)) throw PythonError();
  const char* text = PyUnicode_AsUTF8(tangent);
  if (!text) throw PythonError();
  return to_python(print(unwrap(value), printed_name(Py_TYPE(self)), std::nullopt, text));
}

// Whether an object that is not of the type Parameter was marked as one.
static bool is_marked_parameter(PyObject* self) {
  PyObject* dict = reinterpret_cast<TensorObject*>(self)->dict;
  PyObject* mark = dict ? PyDict_GetItemString(dict, "_is_param") : nullptr;
  return mark && PyObject_IsTrue(mark) == 1;
}

static PyObject* plain_repr(PyObject* self, std::optional<std::string_view> contents) {
  if (!contents && dual_parts && unwrap(self).requires_grad()) [[unlikely]] {
    if (PyObject* text = dual_repr(self)) return text;
  }
  recording::ask_for_values("__repr__");
  std::string text = print(unwrap(self), printed_name(Py_TYPE(self)), contents);
  return to_python(is_marked_parameter(self) ? cat("Parameter(", text, ")") : text);
}

PyObject* tensor_repr(PyObject* self) try {
  if (!is_exact_tensor(self) && overrides_torch_function(self)) {
    Owned repr(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "__repr__"));
    return repr ? call_torch_function(repr.get(), &self, 1, &self, 1) : nullptr;
  }
  if (PyObject* answer = nullptr; is_answered(self, "__repr__", answer)) return answer;
  return plain_repr(self, std::nullopt);
} catch (...) {
  return raise_current_exception();
}

// Tensor.__repr__(self, *, tensor_contents=None): a subclass may say what stands between the parentheses.
static PyObject* repr_with_contents(PyObject* self, PyObject* args, PyObject* kwargs) try {
  static const char* const names[] = {"tensor_contents", nullptr};
  PyObject* contents = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$O:__repr__", const_cast<char**>(names), &contents)) return nullptr;
  if (contents == Py_None) return tensor_repr(self);
  Owned words(checked(PyObject_Str(contents)));
  const char* text = PyUnicode_AsUTF8(words.get());
  if (!text) throw PythonError();
  return plain_repr(self, text);
} catch (...) {
  return raise_current_exception();
}

static PyObject* get_print_options(PyObject*, PyObject*) {
  const PrintOptions options = print_options();
  Owned sci_mode(options.sci_mode ? PyBool_FromLong(*options.sci_mode) : Py_NewRef(Py_None));
  Owned threshold(options.threshold == PrintOptions::kUnlimited ? PyFloat_FromDouble(Py_HUGE_VAL)
                                                                : PyLong_FromLongLong(options.threshold));
  if (!threshold) return nullptr;
  return Py_BuildValue("{s:L,s:O,s:L,s:L,s:O}", "precision", static_cast<long long>(options.precision), "threshold",
                       threshold.get(), "edgeitems", static_cast<long long>(options.edgeitems), "linewidth",
                       static_cast<long long>(options.linewidth), "sci_mode", sci_mode.get());
}

// A whole number, also one given as a float; an infinite one stands for no limit.
static int64_t option_from_object(PyObject* o) {
  if (!PyFloat_Check(o)) return int_from_object(o);
  const double value = PyFloat_AS_DOUBLE(o);
  return value < 9e18 ? static_cast<int64_t>(value) : PrintOptions::kUnlimited;
}

static PyObject* set_print_options(PyObject*, PyObject* args) try {
  PyObject *precision, *threshold, *edgeitems, *linewidth, *sci_mode;
  if (!PyArg_UnpackTuple(args, "_set_print_options", 5, 5, &precision, &threshold, &edgeitems, &linewidth, &sci_mode))
    return nullptr;
  PrintOptions options;
  options.precision = option_from_object(precision);
  options.threshold = option_from_object(threshold);
  options.edgeitems = option_from_object(edgeitems);
  options.linewidth = option_from_object(linewidth);
  if (sci_mode != Py_None) options.sci_mode = PyObject_IsTrue(sci_mode) != 0;
  mica::set_print_options(options);
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

bool add_printing(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_get_print_options", get_print_options, METH_NOARGS, "The options of printing, as a dict."},
      {"_set_print_options", set_print_options, METH_VARARGS,
       "_set_print_options(precision, threshold, edgeitems, linewidth, sci_mode)"},
      {"_set_dual_parts", set_dual_parts, METH_O, "Who knows the parts of dual tensors; None: there are none."},
      {}};
  static PyMethodDef methods[] = {{"__repr__", as_cfunction(repr_with_contents), METH_VARARGS | METH_KEYWORDS, nullptr},
                                  {}};
  return PyModule_AddFunctions(module, functions) == 0 && add_tensor_methods(methods);
}

}  // namespace mica::python
