// The steps of optimizers for mica.optim: parameter groups and states are Python dictionaries in torch's layout, and
// C++ computes with them.
#pragma once

#include "mica/optim/number.h"
#include "tensor/tensor_object.h"

namespace mica::python {

// A parameter group, or any dictionary of options.
class OptionDict {
 public:
  explicit OptionDict(PyObject* dict) : dict_(dict) {
    MICA_CHECK_KIND(PyDict_Check(dict), Type, "param_group must be a dict, but got ", Py_TYPE(dict)->tp_name);
  }
  PyObject* find(const char* name) const;  // borrowed; null if there is none
  PyObject* at(const char* name) const;    // borrowed; throws Python's KeyError
  bool has(const char* name) const { return find(name) != nullptr; }
  double real(const char* name) const;
  int64_t integer(const char* name) const;
  bool flag(const char* name) const;  // false if there is none
  optim::Number number(const char* name) const;
  PyObject* dict() const { return dict_; }

 private:
  PyObject* dict_;
};

optim::Number number_from_object(PyObject* o);
double real_from_object(PyObject* o);

PyObject* lbfgs_step(PyObject* module, PyObject* const* args, Py_ssize_t nargs);  // optim_lbfgs.cpp

bool add_optim(PyObject* module);

}  // namespace mica::python
