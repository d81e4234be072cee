// Second names of functions that are functions of their own in torch: there torch.special.expit is not torch.sigmoid.
#include "operations/aliases.h"

#include <array>
#include <utility>

#include "arguments/torch_function.h"
#include "operations/entry.h"

namespace mica::python {

namespace {

struct Alias {
  const char* name;      // of the function in torch._C._special
  const char* original;  // in torch
  PyObject* target = nullptr;
  PyObject* function = nullptr;
};

Alias aliases[] = {
    {"special_digamma", "digamma"},
    {"special_erf", "erf"},
    {"special_erfc", "erfc"},
    {"special_erfinv", "erfinv"},
    {"special_exp2", "exp2"},
    {"special_expit", "sigmoid"},
    {"special_expm1", "expm1"},
    {"special_gammainc", "igamma"},
    {"special_gammaincc", "igammac"},
    {"special_gammaln", "lgamma"},
    {"special_i0", "i0"},
    {"special_log1p", "log1p"},
    {"special_log_softmax", "log_softmax"},
    {"special_logit", "logit"},
    {"special_logsumexp", "logsumexp"},
    {"special_multigammaln", "mvlgamma"},
    {"special_polygamma", "polygamma"},
    {"special_psi", "digamma"},
    {"special_round", "round"},
    {"special_sinc", "sinc"},
    {"special_softmax", "softmax"},
    {"special_xlogy", "xlogy"},
};
constexpr size_t kCount = std::size(aliases);

// An object that is not a tensor and has a __torch_function__ sees this function. Tensors of other classes see the
// original.
template <size_t I>
PyObject* call_alias(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const Alias& alias = aliases[I];
  for (Py_ssize_t i = 0; i < nargs; ++i) {
    PyObject* asked = args[i];
    if (is_tensor(asked) || PyFloat_CheckExact(asked) || PyLong_CheckExact(asked) || !overrides_torch_function(asked))
      continue;
    if (!kwnames || PyTuple_GET_SIZE(kwnames) == 0) return call_torch_function(alias.function, &asked, 1, args, nargs);
  }
  return PyObject_Vectorcall(alias.target, args, static_cast<size_t>(nargs), kwnames);
}

template <size_t... I>
std::array<EntryFunction*, kCount> callers(std::index_sequence<I...>) {
  return {call_alias<I>...};
}

}  // namespace

bool add_aliases(PyObject* module) {
  static PyMethodDef definitions[kCount];
  const auto functions = callers(std::make_index_sequence<kCount>());
  Owned home(PyUnicode_InternFromString("mica._C._special"));
  Owned space(PyObject_GetAttrString(module, "_special"));
  if (!home || !space) return false;
  for (size_t i = 0; i < kCount; ++i) {
    Alias& alias = aliases[i];
    alias.target = PyObject_GetAttrString(module, alias.original);
    if (!alias.target || !PyCFunction_Check(alias.target)) return false;
    const char* doc = reinterpret_cast<PyCFunctionObject*>(alias.target)->m_ml->ml_doc;
    definitions[i] = {alias.name, as_cfunction(functions[i]), kEntryFlags, doc};
    alias.function = PyCFunction_NewEx(&definitions[i], nullptr, home.get());
    const char* own = alias.name + sizeof("special_") - 1;
    if (!alias.function || PyDict_SetItemString(PyModule_GetDict(space.get()), own, alias.function) < 0) return false;
  }
  return true;
}

}  // namespace mica::python
