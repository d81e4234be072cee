// Weights of few bits (mica/weight_only.h): torch's functions for packed 4-bit weights, and those that mica.load_gguf
// calls.
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

// _pack_blocks(type, bytes, rows, columns) -> (bytes, numbers, scales, group)
PyObject* pack_blocks_entry(PyObject*, PyObject* args) try {
  const char* type;
  PyObject* bytes;
  long long rows, columns;
  if (!PyArg_ParseTuple(args, "sOLL:_pack_blocks", &type, &bytes, &rows, &columns)) return nullptr;
  const BlockWeight weight = pack_blocks(type, tensor_argument("_pack_blocks", bytes), rows, columns);
  return Py_BuildValue("(NNNL)", wrap(weight.bytes), wrap(weight.numbers), wrap(weight.scales),
                       static_cast<long long>(weight.group));
} catch (...) {
  return raise_current_exception();
}

// The weight that follows the first argument of these: type, bytes, numbers, scales, group, rows, columns.
struct WeightArguments {
  const char* type;
  PyObject *first, *bytes, *numbers, *scales;
  long long group, rows, columns;

  bool parse(const char* function, PyObject* args) {
    return PyArg_ParseTuple(args, function, &first, &type, &bytes, &numbers, &scales, &group, &rows, &columns);
  }

  BlockWeight weight(const char* function) const {
    return {type,
            tensor_argument(function, bytes),
            tensor_argument(function, numbers),
            tensor_argument(function, scales),
            rows,
            columns,
            group};
  }
};

PyObject* block_linear_entry(PyObject*, PyObject* args) try {
  WeightArguments given;
  if (!given.parse("OsOOOLLL:_block_linear", args)) return nullptr;
  return wrap(block_linear(tensor_argument("_block_linear", given.first), given.weight("_block_linear")));
} catch (...) {
  return raise_current_exception();
}

PyObject* block_rows_entry(PyObject*, PyObject* args) try {
  WeightArguments given;
  if (!given.parse("OsOOOLLL:_block_rows", args)) return nullptr;
  return wrap(block_rows(given.weight("_block_rows"), tensor_argument("_block_rows", given.first)));
} catch (...) {
  return raise_current_exception();
}

}  // namespace

bool add_weight_only_functions(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_convert_weight_to_int4pack_for_cpu", convert_weight_to_int4pack, METH_VARARGS, nullptr},
      {"_weight_int4pack_mm_for_cpu", weight_int4pack_mm, METH_VARARGS, nullptr},
      {"_pack_blocks", pack_blocks_entry, METH_VARARGS, nullptr},
      {"_block_linear", block_linear_entry, METH_VARARGS, nullptr},
      {"_block_rows", block_rows_entry, METH_VARARGS, nullptr},
      {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
