// Operations whose arguments the package reads in Python (mica/functional.py), and operations with an argument that
// decides what is returned.
#include "arguments/torch_function.h"
#include "interop/foreign_memory.h"
#include "operations/by_hand.h"

namespace mica::python {

// The self of a module's function is the module, not an argument.
#define MICA_PARSE(name, ...)                               \
  static constexpr SignatureText texts[] = {{__VA_ARGS__}}; \
  static constinit Parser parser(name, texts);              \
  Arguments a;                                              \
  if (parser.parse(a, nullptr, args, nargs, kwnames) < 0) return a.result

MICA_FUNCTION(einsum) {
  MICA_PARSE("_einsum", kFunction, "str equation, Tensor[] tensors");
  const std::string_view equation = a.text(0);
  const std::vector<Tensor> tensors = a.tensors(1);
  MICA_RETURN(mica::einsum(equation, tensors));
}
MICA_ENTRY_END

MICA_FUNCTION(tensordot) {
  MICA_PARSE("_tensordot", kFunction, "Tensor self, Tensor other, int[] dims_self, int[] dims_other");
  const Tensor &x = a.tensor(0), &y = a.tensor(1);
  const DimVector dims_x = a.ints(2), dims_y = a.ints(3);
  MICA_RETURN(mica::tensordot(x, y, dims_x, dims_y));
}
MICA_ENTRY_END

MICA_FUNCTION(meshgrid) {
  MICA_PARSE("_meshgrid", kFunction, "Tensor[] tensors, *, str indexing='ij'");
  const std::vector<Tensor> tensors = a.tensors(0);
  const std::string_view indexing = a.text(1);
  MICA_RETURN(mica::meshgrid(tensors, indexing));
}
MICA_ENTRY_END

MICA_FUNCTION(block_diag) {
  MICA_PARSE("_block_diag", kFunction, "Tensor[] tensors");
  const std::vector<Tensor> tensors = a.tensors(0);
  MICA_RETURN(mica::block_diag(tensors));
}
MICA_ENTRY_END

MICA_FUNCTION(broadcast_tensors) {
  MICA_PARSE("_broadcast_tensors", kFunction, "Tensor[] tensors");
  const std::vector<Tensor> tensors = a.tensors(0);
  MICA_RETURN(mica::broadcast_tensors(tensors));
}
MICA_ENTRY_END

MICA_FUNCTION(cartesian_prod) {
  MICA_PARSE("_cartesian_prod", kFunction, "Tensor[] tensors");
  const std::vector<Tensor> tensors = a.tensors(0);
  MICA_RETURN(mica::cartesian_prod(tensors));
}
MICA_ENTRY_END

MICA_FUNCTION(chain_matmul) {
  MICA_PARSE("_chain_matmul", kFunction, "Tensor[] matrices");
  const std::vector<Tensor> matrices = a.tensors(0);
  MICA_RETURN(mica::chain_matmul(matrices));
}
MICA_ENTRY_END

template <Tensor (*function)(const Tensor&)>
MICA_FUNCTION(at_least) {
  MICA_PARSE("_atleast", kFunction, "Tensor self");
  MICA_RETURN(function(a.tensor(0)));
}
MICA_ENTRY_END

// ---- unique

MICA_FUNCTION(unique) {
  MICA_PARSE("_unique2", kFunction,
             "Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False");
  const Tensor& x = a.tensor(0);
  const bool sorted = a.flag(1), inverse = a.flag(2), counts = a.flag(3);
  MICA_RETURN(mica::_unique2(x, sorted, inverse, counts));
}
MICA_ENTRY_END

MICA_FUNCTION(unique_dim) {
  MICA_PARSE("_unique_dim", kFunction,
             "Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False");
  const Tensor& x = a.tensor(0);
  const int64_t dim = a.integer(1);
  const bool sorted = a.flag(2), inverse = a.flag(3), counts = a.flag(4);
  MICA_RETURN(mica::unique_dim(x, dim, sorted, inverse, counts));
}
MICA_ENTRY_END

MICA_FUNCTION(unique_consecutive) {
  MICA_PARSE("_unique_consecutive", kFunction,
             "Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None");
  const Tensor& x = a.tensor(0);
  const auto dim = a.optional_integer(3);
  const bool inverse = a.flag(1), counts = a.flag(2);
  MICA_RETURN(mica::unique_consecutive(x, inverse, counts, dim));
}
MICA_ENTRY_END

// ---- histogramdd

MICA_FUNCTION(histogramdd) {
  static constexpr SignatureText texts[] = {
      {kFunction, "Tensor self, Tensor[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False"},
      {kFunction, "Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False"}};
  static constinit Parser parser("_histogramdd", texts);
  Arguments a;
  const int which = parser.parse(a, nullptr, args, nargs, kwnames);
  if (which < 0) return a.result;
  const Tensor x = a.tensor(0), weight = a.has(3) ? a.tensor(3) : Tensor();
  std::vector<double> limits;
  if (a.has(2)) limits = a.numbers(2);
  const std::optional<ArrayRef<double>> range =
      a.has(2) ? std::optional(ArrayRef<double>(limits.data(), limits.size())) : std::nullopt;
  auto [hist, edges] = which == 0 ? mica::histogramdd(x, a.tensors(1), range, weight, a.flag(4))
                                  : mica::histogramdd(x, a.ints(1), range, weight, a.flag(4));
  Owned counts(checked(wrap(std::move(hist)))), bins(checked(to_python(std::move(edges))));
  static ReturnType named = {"histogramdd", {"hist", "bin_edges"}};
  PyTypeObject* type = named.get();
  Owned result(type ? PyStructSequence_New(type) : nullptr);
  if (!result) return nullptr;
  PyStructSequence_SetItem(result.get(), 0, counts.release());
  PyStructSequence_SetItem(result.get(), 1, bins.release());
  return result.release();
}
MICA_ENTRY_END

// ---- nonzero, result_type

MICA_FUNCTION(nonzero) {
  static constexpr SignatureText texts[] = {{kBoth, "Tensor self, *, bool as_tuple=False, Tensor out=None"}};
  static constinit Parser parser("nonzero", texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  const Tensor& x = a.tensor(0);
  MICA_CHECK(!a.flag(1) || !a.has(2), "nonzero does not support the out kwarg when as_tuple is True");
  if (a.flag(1)) MICA_RETURN(mica::nonzero_numpy(x));
  if (!a.has(2)) MICA_RETURN(mica::nonzero(x));
  const Tensor& out = a.tensor(2);
  MICA_RETURN_ARGUMENT(2, mica::nonzero_out(out, x));
}
MICA_ENTRY_END

MICA_FUNCTION(result_type) {
  static constexpr SignatureText texts[] = {{kFunction, "Tensor tensor, Tensor other"},
                                            {kFunction, "Tensor tensor, Scalar other"},
                                            {kFunction, "Scalar scalar, Tensor tensor"},
                                            {kFunction, "Scalar scalar1, Scalar scalar2"}};
  static constinit Parser parser("result_type", texts);
  Arguments a;
  switch (parser.parse(a, nullptr, args, nargs, kwnames)) {
    case 0:
      return to_python(mica::result_type(a.tensor(0), a.tensor(1)));
    case 1:
      return to_python(mica::result_type(a.tensor(0), a.scalar(1)));
    case 2:
      return to_python(mica::result_type(a.tensor(1), a.scalar(0)));
    case 3:
      return to_python(mica::result_type(wrapped_number(a.scalar(0)), a.scalar(1)));
    default:
      return a.result;
  }
}
MICA_ENTRY_END

// ---- methods that are functions too

// torch.numel(x) for x.numel(), and so on. The function's self is the method's name.
static PyObject* call_method(PyObject* name, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const Py_ssize_t named = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (nargs + named == 0) {
    return PyErr_Format(PyExc_TypeError, "%U() missing 1 required positional arguments: \"input\"", name);
  }
  if (nargs + named > 1) {
    return PyErr_Format(PyExc_TypeError, "%U() takes 1 positional argument but %zd were given", name, nargs + named);
  }
  if (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, 0), "input") != 0) {
    return PyErr_Format(PyExc_TypeError, "%U() got an unexpected keyword argument '%U'", name,
                        PyTuple_GET_ITEM(kwnames, 0));
  }
  PyObject* input = args[0];
  if (is_tensor(input)) return PyObject_CallMethodNoArgs(input, name);
  if (overrides_torch_function(input)) {
    Owned module(PyImport_ImportModule("mica._C"));
    Owned function(module ? PyObject_GetAttr(module.get(), name) : nullptr);
    return function ? call_torch_function(function.get(), &input, 1, &input, 1) : nullptr;
  }
  return PyErr_Format(PyExc_TypeError, "%U(): argument 'input' (position 1) must be Tensor, not %s", name,
                      Py_TYPE(input)->tp_name);
}

static bool add_methods_as_functions(PyObject* module) {
  static PyMethodDef definitions[] = {
      {"numel", as_cfunction(call_method), kEntryFlags, "The number of elements."},
      {"get_device", as_cfunction(call_method), kEntryFlags, "The device index, -1 on the CPU."},
      {"detach_", as_cfunction(call_method), kEntryFlags, "Takes a tensor out of its graph, in place."},
      {"is_floating_point", as_cfunction(call_method), kEntryFlags, "Whether the dtype is a floating-point one."},
      {"is_complex", as_cfunction(call_method), kEntryFlags, "Whether the dtype is a complex one."},
      {"is_signed", as_cfunction(call_method), kEntryFlags, "Whether the dtype has negative numbers."},
      {"is_conj", as_cfunction(call_method), kEntryFlags, "Whether the tensor is a lazily conjugated view."},
      {"is_neg", as_cfunction(call_method), kEntryFlags, "Whether the tensor is a lazily negated view."},
      {"is_inference", as_cfunction(call_method), kEntryFlags, "Whether the tensor was made under inference_mode."},
      {"is_distributed", as_cfunction(call_method), kEntryFlags, "False: a tensor lies in one process."},
      {"is_nonzero", as_cfunction(call_method), kEntryFlags, "Whether the single element is not zero."},
  };
  Owned home(PyUnicode_InternFromString("mica"));
  for (PyMethodDef& definition : definitions) {
    Owned name(PyUnicode_InternFromString(definition.ml_name));
    Owned function(name && home ? PyCFunction_NewEx(&definition, name.get(), home.get()) : nullptr);
    if (!function || PyModule_AddObjectRef(module, definition.ml_name, function.get()) < 0) return false;
  }
  return true;
}

bool add_functional(PyObject* module) {
  static PyMethodDef functions[] = {{"_einsum", as_cfunction(einsum), kEntryFlags, nullptr},
                                    {"_tensordot", as_cfunction(tensordot), kEntryFlags, nullptr},
                                    {"_meshgrid", as_cfunction(meshgrid), kEntryFlags, nullptr},
                                    {"_block_diag", as_cfunction(block_diag), kEntryFlags, nullptr},
                                    {"_broadcast_tensors", as_cfunction(broadcast_tensors), kEntryFlags, nullptr},
                                    {"_cartesian_prod", as_cfunction(cartesian_prod), kEntryFlags, nullptr},
                                    {"_chain_matmul", as_cfunction(chain_matmul), kEntryFlags, nullptr},
                                    {"_atleast_1d", as_cfunction(at_least<mica::atleast_1d>), kEntryFlags, nullptr},
                                    {"_atleast_2d", as_cfunction(at_least<mica::atleast_2d>), kEntryFlags, nullptr},
                                    {"_atleast_3d", as_cfunction(at_least<mica::atleast_3d>), kEntryFlags, nullptr},
                                    {"_unique2", as_cfunction(unique), kEntryFlags, nullptr},
                                    {"_unique_dim", as_cfunction(unique_dim), kEntryFlags, nullptr},
                                    {"_unique_consecutive", as_cfunction(unique_consecutive), kEntryFlags, nullptr},
                                    {"_histogramdd", as_cfunction(histogramdd), kEntryFlags, nullptr},
                                    {"result_type", as_cfunction(result_type), kEntryFlags,
                                     "The dtype that an operation on the two would compute in."},
                                    {}};
  static PyMethodDef methods[] = {{"nonzero", as_cfunction(nonzero), kEntryFlags,
                                   "The indices of the elements that are not zero: a row for each, or with as_tuple a "
                                   "tensor for each dimension."},
                                  {}};
  // The function takes the place of the generated one when the package is imported.
  Owned home(PyUnicode_InternFromString("mica"));
  Owned function(home ? PyCFunction_NewEx(methods, nullptr, home.get()) : nullptr);
  return function && PyModule_AddObjectRef(module, "_nonzero", function.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0 && add_tensor_methods(methods) &&
         add_methods_as_functions(module);
}

}  // namespace mica::python
