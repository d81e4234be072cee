// The functions of nn.init that compute numbers instead of tensors.
#include "mica/init.h"
#include "tensor/tensor_object.h"
#include "training/module_object.h"

namespace mica::python {

// _calculate_gain(nonlinearity, slope or None)
static PyObject* gain(PyObject*, PyObject* args) try {
  const char* nonlinearity;
  PyObject* param;
  if (!PyArg_ParseTuple(args, "sO", &nonlinearity, &param)) return nullptr;
  if (param == Py_None) return PyFloat_FromDouble(calculate_gain(nonlinearity));
  const double slope = PyFloat_AsDouble(param);
  if (slope == -1.0 && PyErr_Occurred()) return nullptr;
  return PyFloat_FromDouble(calculate_gain(nonlinearity, slope));
} catch (...) {
  return raise_current_exception();
}

// _calculate_fans(tensor) -> (fan_in, fan_out)
static PyObject* fans(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor))
    return PyErr_Format(PyExc_TypeError, "expected a Tensor, but got %s", Py_TYPE(tensor)->tp_name);
  const Fans found = calculate_fans(unwrap(tensor));
  return Py_BuildValue("LL", static_cast<long long>(found.in), static_cast<long long>(found.out));
} catch (...) {
  return raise_current_exception();
}

bool add_init_functions(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_calculate_gain", gain, METH_VARARGS, nullptr}, {"_calculate_fans", fans, METH_O, nullptr}, {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
