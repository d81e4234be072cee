// Tensor's methods that ask about a tensor rather than compute.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "arguments/torch_function.h"
#include "core/absent_memory.h"
#include "graph/tensor_autograd.h"
#include "operations/by_hand.h"

namespace mica::python {

static PyObject* int_tuple(IntArrayRef values) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  for (size_t i = 0; tuple && i < values.size(); ++i)
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(values[i]));
  return tuple;
}

MICA_METHOD(parsed_size) {
  static constexpr SignatureText texts[] = {{kMethod, "Tensor self, int? dim=None"}};
  static constinit Parser parser("size", texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  return a.has(1) ? to_python(a.tensor(0).size(a.integer(1))) : size_object(a.tensor(0).sizes());
}
MICA_ENTRY_END

static PyObject* size(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (nargs == 0 && !kwnames && is_exact_tensor(self)) return size_object(unwrap(self).sizes());
  return parsed_size(self, args, nargs, kwnames);
}

MICA_METHOD(stride) {
  static constexpr SignatureText texts[] = {{kMethod, "Tensor self, int? dim=None"}};
  static constinit Parser parser("stride", texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  // A COO tensor has strides of zero here, as in torch.
  if (a.tensor(0).is_sparse()) {
    const DimVector zeros(static_cast<size_t>(a.tensor(0).dim()), 0);
    return a.has(1) ? to_python(int64_t{0}) : int_tuple(zeros);
  }
  require_strided(a.tensor(0), "strides");
  return a.has(1) ? to_python(a.tensor(0).stride(a.integer(1))) : int_tuple(a.tensor(0).strides());
}
MICA_ENTRY_END

MICA_METHOD(is_contiguous) {
  static constexpr SignatureText texts[] = {{kMethod, "Tensor self, *, MemoryFormat memory_format=contiguous_format"}};
  static constinit Parser parser("is_contiguous", texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  MemoryFormat format = a.memory_format(1);
  if (a.tensor(0).is_sparse()) Py_RETURN_FALSE;
  MICA_CHECK(a.tensor(0).layout() == Layout::Strided || a.tensor(0).layout() == Layout::Jagged,
             "Sparse CSR tensors do not have is_contiguous");
  require_strided(a.tensor(0), "contiguity");
  // preserve_format names no format, so torch answers for the plain one.
  if (format == MemoryFormat::Preserve) format = MemoryFormat::Contiguous;
  return to_python(a.tensor(0).is_contiguous(format));
}
MICA_ENTRY_END

static PyObject* dim(PyObject* self, PyObject*) { return PyLong_FromLongLong(unwrap(self).dim()); }
static PyObject* numel(PyObject* self, PyObject*) { return PyLong_FromLongLong(unwrap(self).numel()); }
static PyObject* element_size(PyObject* self, PyObject*) { return PyLong_FromLongLong(unwrap(self).element_size()); }
static PyObject* storage_offset(PyObject* self, PyObject*) try {
  require_strided(unwrap(self), "storage offset");
  return PyLong_FromLongLong(unwrap(self).storage_offset());
} catch (...) {
  return raise_current_exception();
}
static PyObject* data_ptr(PyObject* self, PyObject*) try {
  require_strided(unwrap(self), "data pointer");
  const Tensor& x = unwrap(self);
  const bool is_empty = x.numel() == 0 || (x->storage && (x->storage->nbytes() == 0 || is_absent(*x->storage)));
  return PyLong_FromVoidPtr(is_empty ? nullptr : x.data_ptr());
} catch (...) {
  return raise_current_exception();
}
static PyObject* use_count(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLong(unwrap(self).impl()->use_count());
}
static PyObject* get_device(PyObject* self, PyObject*) {
  Device d = unwrap(self).device();
  return PyLong_FromLong(d.is_cpu() || d.is_meta() ? -1 : std::max<int>(d.index(), 0));
}
static PyObject* is_floating_point(PyObject* self, PyObject*) {
  return PyBool_FromLong(unwrap(self).is_floating_point());
}
static PyObject* is_complex(PyObject* self, PyObject*) { return PyBool_FromLong(unwrap(self).is_complex()); }
static PyObject* is_signed(PyObject* self, PyObject*) { return PyBool_FromLong(unwrap(self).is_signed()); }
static PyObject* is_conj(PyObject* self, PyObject*) { return PyBool_FromLong(unwrap(self).is_conj()); }
static PyObject* is_neg(PyObject* self, PyObject*) { return PyBool_FromLong(unwrap(self).is_neg()); }
static PyObject* is_inference(PyObject* self, PyObject*) { return PyBool_FromLong(unwrap(self).is_inference()); }
static PyObject* is_view(PyObject* self, PyObject*) { return PyBool_FromLong(unwrap(self).is_view()); }
static PyObject* never(PyObject*, PyObject*) { Py_RETURN_FALSE; }

MICA_METHOD(is_same_size) {
  static constexpr SignatureText texts[] = {{kMethod, "Tensor self, Tensor other"}};
  static constinit Parser parser("is_same_size", texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  return to_python(a.tensor(0).sizes() == a.tensor(1).sizes());
}
MICA_ENTRY_END

MICA_METHOD(is_set_to) {
  static constexpr SignatureText texts[] = {{kMethod, "Tensor self, Tensor tensor"}};
  static constinit Parser parser("is_set_to", texts);
  Arguments a;
  if (parser.parse(a, self, args, nargs, kwnames) < 0) return a.result;
  const Tensor &x = a.tensor(0), &y = a.tensor(1);
  return to_python(x.storage() == y.storage() && x.storage_offset() == y.storage_offset() && x.sizes() == y.sizes() &&
                   x.strides() == y.strides());
}
MICA_ENTRY_END

// The dimensions from the outermost in memory to the innermost.
static PyObject* dim_order(PyObject* self, PyObject*) try {
  const Tensor& x = unwrap(self);
  require_strided(x, "strides");
  DimVector order(static_cast<size_t>(x.dim()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return x.strides()[static_cast<size_t>(a)] > x.strides()[static_cast<size_t>(b)];
  });
  return int_tuple(order);
} catch (...) {
  return raise_current_exception();
}

// ---- subclasses

static bool check_subclass(PyObject* cls) {
  if (!PyType_Check(cls)) {
    PyErr_Format(PyExc_TypeError, "cls must be a type (got %s)", Py_TYPE(cls)->tp_name);
    return false;
  }
  if (PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(cls), tensor_type)) return true;
  PyErr_Format(PyExc_TypeError,
               "Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure "
               "your class inherits from Tensor. (got %s)",
               reinterpret_cast<PyTypeObject*>(cls)->tp_name);
  return false;
}

static PyObject* as_subclass(PyObject* self, PyObject* cls) try {
  if (!check_subclass(cls) || !fulfil_for_class(self)) return nullptr;
  return wrap_as(reinterpret_cast<PyTypeObject*>(cls), mica::alias(unwrap(self)));
} catch (...) {
  return raise_current_exception();
}

// Tensor._make_subclass(cls, data, require_grad=False): an object of cls that shares data's memory but not its history.
static PyObject* make_subclass(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"cls", "data", "require_grad", nullptr};
  PyObject *cls, *data;
  int require_grad = 0;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p:_make_subclass", const_cast<char**>(names), &cls, &data,
                                   &require_grad))
    return nullptr;
  if (!check_subclass(cls)) return nullptr;
  if (!is_tensor(data))
    return PyErr_Format(PyExc_TypeError, "_make_subclass(): argument 'data' (position 2) must be Tensor, not %s",
                        Py_TYPE(data)->tp_name);
  if (!fulfil_for_class(data)) return nullptr;
  Tensor t;
  {
    NoGradGuard bare;
    t = mica::detach(unwrap(data));
  }
  if (require_grad) t.requires_grad_(true);
  return wrap_as(reinterpret_cast<PyTypeObject*>(cls), std::move(t));
} catch (...) {
  return raise_current_exception();
}

// ---- protocols

static PyObject* reversed(PyObject* self, PyObject*) {
  if (PyObject* answer = nullptr; is_answered(self, "__reversed__", answer)) return answer;
  return unwrap(self).dim() == 0 ? Py_NewRef(self) : PyObject_CallMethod(self, "flip", "i", 0);
}

static PyObject* format(PyObject* self, PyObject* spec) {
  if (PyObject* answer = nullptr; is_answered(self, "__format__", answer, &spec, 1)) return answer;
  if (unwrap(self).dim() == 0 && is_exact_tensor(self) && !unwrap(self).device().is_meta()) {
    Owned number(PyObject_CallMethod(self, "item", nullptr));
    return number ? PyObject_Format(number.get(), spec) : nullptr;
  }
  return PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyBaseObject_Type), "__format__", "OO", self, spec);
}

static PyObject* to_complex(PyObject* self, PyObject*) try {
  if (PyObject* answer = nullptr; is_answered(self, "__complex__", answer)) return answer;
  MICA_CHECK_KIND(unwrap(self).numel() == 1, Value, "only one element tensors can be converted to Python scalars");
  warn_of_number(unwrap(self));
  complex128 z = unwrap(self).item().to_complex();
  return PyComplex_FromDoubles(z.real(), z.imag());
} catch (...) {
  return raise_current_exception();
}

PyMethodDef tensor_methods[] = {
    {"size", as_cfunction(size), kFast, "The sizes, or the size of one dimension."},
    {"stride", as_cfunction(stride), kFast, "The strides in elements, or the stride of one dimension."},
    {"is_contiguous", as_cfunction(is_contiguous), kFast, "Whether the elements lie in memory in row-major order."},
    {"dim", dim, METH_NOARGS, "The number of dimensions."},
    {"ndimension", dim, METH_NOARGS, "The number of dimensions."},
    {"numel", numel, METH_NOARGS, "The number of elements."},
    {"nelement", numel, METH_NOARGS, "The number of elements."},
    {"element_size", element_size, METH_NOARGS, "The bytes of one element."},
    {"storage_offset", storage_offset, METH_NOARGS, "Where in its storage the tensor begins, in elements."},
    {"data_ptr", data_ptr, METH_NOARGS, "The address of the first element."},
    {"_use_count", use_count, METH_NOARGS, nullptr},
    {"get_device", get_device, METH_NOARGS, "The device index, -1 on the CPU."},
    {"is_floating_point", is_floating_point, METH_NOARGS, "Whether the dtype is a floating-point one."},
    {"is_complex", is_complex, METH_NOARGS, "Whether the dtype is a complex one."},
    {"is_signed", is_signed, METH_NOARGS, "Whether the dtype has negative numbers."},
    {"is_conj", is_conj, METH_NOARGS, "Whether the tensor is a lazily conjugated view."},
    {"is_neg", is_neg, METH_NOARGS, "Whether the tensor is a lazily negated view."},
    {"is_inference", is_inference, METH_NOARGS, "Whether the tensor was made under inference_mode."},
    {"is_pinned", never, METH_VARARGS, nullptr},
    {"is_shared", never, METH_NOARGS, nullptr},
    {"_is_view", is_view, METH_NOARGS, nullptr},
    {"is_same_size", as_cfunction(is_same_size), kFast, nullptr},
    {"is_set_to", as_cfunction(is_set_to), kFast, "Whether both are the same view of the same storage."},
    {"dim_order", dim_order, METH_NOARGS, "The dimensions from the outermost in memory to the innermost."},
    {"as_subclass", as_subclass, METH_O, "The tensor as an object of a subclass, sharing memory and history."},
    {"_make_subclass", as_cfunction(make_subclass), METH_VARARGS | METH_KEYWORDS | METH_STATIC, nullptr},
    {"__reversed__", reversed, METH_NOARGS, nullptr},
    {"__format__", format, METH_O, nullptr},
    {"__complex__", to_complex, METH_NOARGS, nullptr},
    {}};

// ---- methods that a TorchFunctionMode, or a class with a __torch_function__, is asked about

// These methods return what the tensor knows, and ask nobody until a program first enters a mode or makes a class with
// overrides. Then their rows in the table get functions that ask. Other programs do not pay for it.
struct Asked {
  const char* row;
  const char* method;  // the method that the mode gets: of two names for one thing, torch's own
  PyCFunction plain;
};
static constexpr Asked kAsked[] = {
    {"dim", "dim", dim},
    {"ndimension", "dim", dim},
    {"numel", "numel", numel},
    {"nelement", "numel", numel},
    {"element_size", "element_size", element_size},
    {"storage_offset", "storage_offset", storage_offset},
    {"data_ptr", "data_ptr", data_ptr},
    {"get_device", "get_device", get_device},
    {"is_floating_point", "is_floating_point", is_floating_point},
    {"is_complex", "is_complex", is_complex},
    {"is_signed", "is_signed", is_signed},
    {"is_conj", "is_conj", is_conj},
    {"is_neg", "is_neg", is_neg},
    {"is_inference", "is_inference", is_inference},
    {"dim_order", "dim_order", dim_order},
    {"_is_view", "_is_view", is_view},
};

template <size_t i>
static PyObject* asking(PyObject* self, PyObject* nothing) {
  if (PyObject* answer = nullptr; is_answered(self, kAsked[i].method, answer)) return answer;
  return kAsked[i].plain(self, nothing);
}
static PyObject* asking_size(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  const bool asks = thread_modes & mode_bit::kFunctionMode;
  return (asks ? parsed_size : size)(self, args, nargs, kwnames);
}

template <size_t... i>
static constexpr std::array<PyCFunction, sizeof...(i)> asking_functions(std::index_sequence<i...>) {
  return {asking<i>...};
}

void let_methods_ask() {
  static bool asking = false;
  if (std::exchange(asking, true)) return;
  static constexpr auto functions = asking_functions(std::make_index_sequence<std::size(kAsked)>());
  for (PyMethodDef* row = tensor_methods; row->ml_name; ++row) {
    if (!std::strcmp(row->ml_name, "size")) row->ml_meth = as_cfunction(asking_size);
    for (size_t i = 0; i < std::size(kAsked); ++i)
      if (!std::strcmp(row->ml_name, kAsked[i].row)) row->ml_meth = functions[i];
  }
}

}  // namespace mica::python
