// Names of dimensions between Python and the engine.
#include "tensor/names.h"

#include <algorithm>

#include "interop/foreign_memory.h"
#include "mica/names.h"
#include "operations/entry.h"

namespace mica::python {

PyObject* names_object(const std::vector<std::string>& names) {
  Owned tuple(checked(PyTuple_New(static_cast<Py_ssize_t>(names.size()))));
  for (size_t i = 0; i < names.size(); ++i) {
    PyObject* name = names[i].empty() ? Py_NewRef(Py_None) : checked(to_python(names[i]));
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), name);
  }
  return tuple.release();
}

static std::string name_from_object(PyObject* o) {
  if (o == Py_None) return "";
  if (o == Py_Ellipsis) return "...";
  MICA_CHECK_KIND(PyUnicode_Check(o), Type, "expected None or string for Dimname but got ", Py_TYPE(o)->tp_name);
  const char* text = PyUnicode_AsUTF8(o);
  if (!text) throw PythonError();
  MICA_CHECK(*text,
             "Invalid name: a valid identifier contains only digits, alphabetical characters, and/or underscore "
             "and starts with a non-digit. got: ''.");
  return text;
}

std::vector<std::string> names_from_object(PyObject* sequence) {
  MICA_CHECK_KIND(!PyUnicode_Check(sequence), Type, "names: expected a tuple or list of names but got a str");
  Owned list(PySequence_Fast(sequence, "names: expected a tuple or list of names"));
  if (!list) throw PythonError();
  std::vector<std::string> names;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.get()); ++i)
    names.push_back(name_from_object(PySequence_Fast_GET_ITEM(list.get(), i)));
  return names;
}

// ---- methods

// x.rename('N', 'C'), x.rename(['N', 'C']) or x.rename(None)
static std::vector<std::string> names_from_arguments(PyObject* args) {
  if (PyTuple_GET_SIZE(args) == 1) {
    PyObject* only = PyTuple_GET_ITEM(args, 0);
    if (PyList_Check(only) || PyTuple_Check(only)) return names_from_object(only);
  }
  return names_from_object(args);
}

// x.rename(old='new')
static std::vector<std::string> names_from_map(const Tensor& x, PyObject* map) {
  std::vector<std::string> names = x.names();
  PyObject *from, *to;
  Py_ssize_t at = 0;
  while (PyDict_Next(map, &at, &from, &to)) {
    const std::string old_name = name_from_object(from);
    const auto found = std::find(names.begin(), names.end(), old_name);
    MICA_CHECK(found != names.end(), "Tried to rename dim '", old_name, "' to dim ", name_from_object(to), " in Tensor",
               names::to_text(x.names()), " but dim '", old_name, "' does not exist.");
    *found = name_from_object(to);
  }
  return names;
}

static std::vector<std::string> new_names(const Tensor& x, PyObject* args, PyObject* kwargs, const char* method) {
  const bool map = kwargs && PyDict_GET_SIZE(kwargs) > 0;
  MICA_CHECK(!map || PyTuple_GET_SIZE(args) == 0, method,
             "(): takes either positional args or keyword args, not both.");
  if (map) return names_from_map(x, kwargs);
  MICA_CHECK(PyTuple_GET_SIZE(args) > 0, method, "(): expected names, or None to drop them");
  if (PyTuple_GET_SIZE(args) == 1 && PyTuple_GET_ITEM(args, 0) == Py_None && x.dim() != 1) return {};
  std::vector<std::string> names = names_from_arguments(args);
  // An ellipsis keeps the names in between.
  const auto gap = std::find(names.begin(), names.end(), "...");
  if (gap == names.end()) return names;
  const std::vector<std::string> own = x.names();
  const size_t before = static_cast<size_t>(gap - names.begin()), after = names.size() - before - 1;
  MICA_CHECK(own.size() >= before + after, "Number of names (", before + after,
             ") and number of dimensions in tensor (", own.size(), ") do not match.");
  const auto place = names.erase(gap);
  names.insert(place, own.begin() + static_cast<ptrdiff_t>(before), own.end() - static_cast<ptrdiff_t>(after));
  return names;
}

static PyObject* rename(PyObject* self, PyObject* args, PyObject* kwargs) try {
  const Tensor& x = unwrap(self);
  return wrap(x.rename(new_names(x, args, kwargs, "rename")));
} catch (...) {
  return raise_current_exception();
}
static PyObject* rename_in_place(PyObject* self, PyObject* args, PyObject* kwargs) try {
  const Tensor& x = unwrap(self);
  x.rename_(new_names(x, args, kwargs, "rename_"));
  return Py_NewRef(self);
} catch (...) {
  return raise_current_exception();
}
static PyObject* refine_names(PyObject* self, PyObject* args) try {
  return wrap(unwrap(self).refine_names(names_from_arguments(args)));
} catch (...) {
  return raise_current_exception();
}
static PyObject* align_to(PyObject* self, PyObject* args) try {
  return wrap(unwrap(self).align_to(names_from_arguments(args)));
} catch (...) {
  return raise_current_exception();
}
static PyObject* align_as(PyObject* self, PyObject* other) try {
  MICA_CHECK_KIND(is_tensor(other), Type, "align_as(): argument 'other' must be Tensor, not ", Py_TYPE(other)->tp_name);
  return wrap(unwrap(self).align_as(unwrap(other)));
} catch (...) {
  return raise_current_exception();
}
static PyObject* has_names(PyObject* self, PyObject*) { return PyBool_FromLong(unwrap(self).has_names()); }
static PyObject* name_position(PyObject* self, PyObject* name) try {
  return PyLong_FromLongLong(names::position(unwrap(self), name_from_object(name)));
} catch (...) {
  return raise_current_exception();
}

// ---- dimensions by name in calls of operations

static bool mentions_name(PyObject* o) {
  if (PyUnicode_Check(o)) return true;
  if (!PyList_Check(o) && !PyTuple_Check(o)) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i)
    if (PyUnicode_Check(PySequence_Fast_GET_ITEM(o, i))) return true;
  return false;
}

bool call_by_names(const char* name, PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames,
                   PyObject*& result) {
  const Py_ssize_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  bool wanted = false;
  for (Py_ssize_t i = 0; i < nargs + keywords; ++i) wanted = wanted || mentions_name(args[i]);
  for (Py_ssize_t i = 0; i < keywords; ++i)
    wanted = wanted || PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), "names") == 0;
  if (!wanted) return false;
  Owned module(checked(PyImport_ImportModule("mica._functions.dimension_names")));
  Owned positional(checked(PyTuple_New(nargs + (self != nullptr)))), named(checked(PyDict_New()));
  if (self) PyTuple_SET_ITEM(positional.get(), 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(positional.get(), i + (self != nullptr), Py_NewRef(args[i]));
  for (Py_ssize_t i = 0; i < keywords; ++i)
    if (PyDict_SetItem(named.get(), PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) < 0) throw PythonError();
  Owned answer(PyObject_CallMethod(module.get(), "call", "siOO", name, self != nullptr, positional.get(), named.get()));
  if (!answer) {
    result = nullptr;
    return true;
  }
  if (answer.get() == Py_NotImplemented) return false;
  result = answer.release();
  return true;
}

bool add_names(PyObject*) {
  static PyMethodDef methods[] = {
      {"rename", as_cfunction(rename), METH_VARARGS | METH_KEYWORDS,
       "A view with other names of dimensions; None drops them."},
      {"rename_", as_cfunction(rename_in_place), METH_VARARGS | METH_KEYWORDS, "Renames the dimensions in place."},
      {"refine_names", refine_names, METH_VARARGS, "A view in which unnamed dimensions have names."},
      {"align_to", align_to, METH_VARARGS,
       "A view with its dimensions in the order of the names; new ones have size 1."},
      {"align_as", align_as, METH_O, "A view with its dimensions in the order of another tensor's names."},
      {"has_names", has_names, METH_NOARGS, "Whether a dimension of the tensor has a name."},
      {"_name_position", name_position, METH_O, nullptr},
      {}};
  return add_tensor_methods(methods);
}

}  // namespace mica::python
