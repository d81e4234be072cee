// torch's names for products with packed 4-bit weights: mica/weight_only.h.
#include "operations/weight_only_functions.h"

#include "mica/weight_only.h"
#include "operations/entry.h"

namespace mica::python {

namespace {

const Tensor& tensor_argument(const char* function, PyObject* o) {
  MICA_CHECK_KIND(is_tensor(o), Type, function, "(): a tensor was expected, not ", Py_TYPE(o)->tp_name);
  return unwrap(o);
}

PyObject* convert_weight_to_int4pack(PyObject*, PyObject* args) try {
  PyObject* weight;
  long long inner_tiles;  // an order of the packed numbers on other devices
  if (!PyArg_ParseTuple(args, "OL:_convert_weight_to_int4pack_for_cpu", &weight, &inner_tiles)) return nullptr;
  return wrap(int4_pack(tensor_argument("_convert_weight_to_int4pack_for_cpu", weight)));
} catch (...) {
  return raise_current_exception();
}

PyObject* weight_int4pack_mm(PyObject*, PyObject* args) try {
  constexpr const char* kName = "_weight_int4pack_mm_for_cpu";
  PyObject *self, *packed, *scales_and_zeros;
  long long group;
  if (!PyArg_ParseTuple(args, "OOLO:_weight_int4pack_mm_for_cpu", &self, &packed, &group, &scales_and_zeros))
    return nullptr;
  return wrap(int4_mm(tensor_argument(kName, self), tensor_argument(kName, packed), group,
                      tensor_argument(kName, scales_and_zeros)));
} catch (...) {
  return raise_current_exception();
}

}  // namespace

bool add_weight_only_functions(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_convert_weight_to_int4pack_for_cpu", convert_weight_to_int4pack, METH_VARARGS, nullptr},
      {"_weight_int4pack_mm_for_cpu", weight_int4pack_mm, METH_VARARGS, nullptr},
      {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
