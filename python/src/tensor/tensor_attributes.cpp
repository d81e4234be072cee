// Tensor's attributes.
#include "arguments/torch_function.h"
#include "autograd/metadata.h"
#include "graph/node_object.h"
#include "mica/warning.h"
#include "operations/entry.h"
#include "tensor/names.h"

namespace mica::python {

using Getter = PyObject* (*)(const Tensor& x);
using Setter = void (*)(const Tensor& x, PyObject* value);  // null: delete

struct Attribute {
  const char* name;
  Getter get;
  Setter set = nullptr;
  bool is_view = false;  // whether the value is a tensor with the elements of this one
};

// Whether a mode, or a subclass that overrides __torch_function__, is asked for the attribute: as Tensor.shape.__get__
// or __set__.
static bool asks_others(PyObject* self, const Attribute& attribute) {
  if (thread_modes & mode_bit::kFunctionMode) [[unlikely]]
    return torch_function_wanted(0);
  return !is_exact_tensor(self) &&
         (attributes_overridden(self) || (attribute.is_view && overrides_torch_dispatch(self)));
}

static PyObject* ask_others(PyObject* self, const Attribute& attribute, const char* access, PyObject* value) {
  Owned descriptor(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), attribute.name));
  Owned function(descriptor ? PyObject_GetAttrString(descriptor.get(), access) : nullptr);
  if (!function) return nullptr;
  PyObject* args[] = {self, value};
  return call_torch_function(function.get(), &self, overrides_torch_function(self) ? 1 : 0, args, value ? 2 : 1);
}

static PyObject* get_attribute(PyObject* self, void* closure) try {
  const Attribute& attribute = *static_cast<Attribute*>(closure);
  if (asks_others(self, attribute)) return ask_others(self, attribute, "__get__", nullptr);
  return attribute.get(unwrap(self));
} catch (...) {
  return raise_current_exception();
}

static int set_attribute(PyObject* self, PyObject* value, void* closure) try {
  const Attribute& attribute = *static_cast<Attribute*>(closure);
  if (value && asks_others(self, attribute)) {
    Owned answer(ask_others(self, attribute, "__set__", value));
    return answer ? 0 : -1;
  }
  attribute.set(unwrap(self), value);
  return 0;
} catch (...) {
  return raise_current_exception_int();
}

// ---- getters

static PyObject* get_shape(const Tensor& x) { return size_object(x.sizes()); }
static PyObject* get_dtype(const Tensor& x) {
  if (x.is_quantized()) [[unlikely]]
    return quantized_dtype_object(x.dtype());
  return dtype_object(x.dtype());
}
static PyObject* get_device(const Tensor& x) { return device_object(x.device()); }
static PyObject* get_layout(const Tensor& x) { return layout_object(x.layout()); }
static PyObject* get_ndim(const Tensor& x) { return PyLong_FromLongLong(x.dim()); }
static PyObject* get_itemsize(const Tensor& x) { return PyLong_FromLongLong(x.element_size()); }
static PyObject* get_nbytes(const Tensor& x) { return PyLong_FromLongLong(x.nbytes()); }
static PyObject* get_is_cpu(const Tensor& x) { return PyBool_FromLong(x.is_cpu()); }
static PyObject* get_is_cuda(const Tensor& x) { return PyBool_FromLong(x.is_cuda()); }
static PyObject* get_is_meta(const Tensor& x) { return PyBool_FromLong(x.is_meta()); }
static PyObject* get_is_sparse(const Tensor& x) { return PyBool_FromLong(x.is_sparse()); }
static PyObject* get_is_sparse_csr(const Tensor& x) { return PyBool_FromLong(x.is_sparse_csr()); }
static PyObject* get_is_quantized(const Tensor& x) { return PyBool_FromLong(x.is_quantized()); }
static PyObject* get_false(const Tensor&) { Py_RETURN_FALSE; }
static PyObject* get_none(const Tensor&) { Py_RETURN_NONE; }
static PyObject* get_version(const Tensor& x) {
  MICA_CHECK(!x.is_inference(), "Inference tensors do not track version counter.");
  return PyLong_FromUnsignedLong(x.version());
}
static PyObject* get_base(const Tensor& x) { return x.is_view() ? wrap(x.base()) : Py_NewRef(Py_None); }
static PyObject* get_output_nr(const Tensor& x) { return PyLong_FromLongLong(x.output_nr()); }
static PyObject* get_is_leaf(const Tensor& x) { return PyBool_FromLong(x.is_leaf()); }
static PyObject* get_retains_grad(const Tensor& x) { return PyBool_FromLong(x.retains_grad()); }
static PyObject* get_grad_fn(const Tensor& x) { return node_object(x.grad_fn()); }
static PyObject* get_array_priority(const Tensor&) { return PyLong_FromLong(1000); }
static PyObject* get_cdata(const Tensor& x) { return PyLong_FromVoidPtr(x.impl()); }

// ---- names of dimensions

static PyObject* get_names(const Tensor& x) { return names_object(x.names()); }
static void set_names(const Tensor& x, PyObject* value) {
  MICA_CHECK(value, "the names of a tensor cannot be deleted; x.rename_(None) takes them off");
  x.rename_(value == Py_None ? std::vector<std::string>() : names_from_object(value));
}

// ---- transposes

static Tensor reversed_dims(const Tensor& x) {
  DimVector dims(static_cast<size_t>(x.dim()));
  for (size_t i = 0; i < dims.size(); ++i) dims[i] = static_cast<int64_t>(dims.size() - 1 - i);
  return mica::permute(x, dims);
}
static PyObject* get_T(const Tensor& x) {
  if (x.dim() == 2) return wrap(mica::permute(x, {1, 0}));
  if (x.dim() == 0)
    MICA_WARN_ONCE("Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases.");
  else
    MICA_WARN_ONCE(
        "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw "
        "an error in a future release. Consider `x.mT` to transpose batches of matrices or "
        "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor.");
  return wrap(reversed_dims(x));
}
static Tensor matrix_transpose(const Tensor& x, const char* name) {
  MICA_CHECK(x.dim() >= 2, "tensor.", name, " is only supported on matrices or batches of matrices. Got ", x.dim(),
             "-D tensor.");
  return mica::transpose(x, -2, -1);
}
static PyObject* get_mT(const Tensor& x) { return wrap(x.dim() == 0 ? mica::mT(x) : matrix_transpose(x, "mT")); }
static PyObject* get_mH(const Tensor& x) {
  return wrap(x.dim() == 0 ? mica::mH(x) : mica::conj(matrix_transpose(x, "mH")));
}
static PyObject* get_H(const Tensor& x) {
  MICA_CHECK(x.dim() == 2 || x.dim() == 0, "tensor.H is only supported on matrices (2-D tensors). Got ", x.dim(),
             "-D tensor.", x.dim() > 2 ? " For batches of matrices, consider using tensor.mH" : "");
  if (x.dim() == 0) MICA_WARN_ONCE("Tensor.H is deprecated on 0-D tensors. Consider using x.conj().");
  return wrap(x.dim() == 0 ? mica::conj(x) : mica::conj(mica::transpose(x, 0, 1)));
}

// ---- real and imaginary part

static PyObject* get_real(const Tensor& x) { return wrap(mica::real(x)); }
static PyObject* get_imag(const Tensor& x) { return wrap(mica::imag(x)); }
static void copy_from(const Tensor& target, PyObject* value) {
  if (!value) fail(ErrorKind::Type, "a part of a tensor cannot be deleted");
  if (is_tensor(value)) {
    mica::copy_(target, unwrap(value));
  } else {
    mica::fill_(target, scalar_from_object(value));
  }
}
static void set_real(const Tensor& x, PyObject* value) { copy_from(mica::real(x), value); }
static void set_imag(const Tensor& x, PyObject* value) { copy_from(mica::imag(x), value); }

// ---- autograd

static PyObject* get_requires_grad(const Tensor& x) { return PyBool_FromLong(x.requires_grad()); }
static void set_requires_grad(const Tensor& x, PyObject* value) {
  MICA_CHECK(value && PyBool_Check(value), "requires_grad must be a bool");
  x.requires_grad_(value == Py_True);
}
static PyObject* get_grad(const Tensor& x) {
  const Tensor gradient = x.grad();
  if (!gradient.defined() && !x.is_leaf() && !x.retains_grad()) [[unlikely]]
    warn(
        "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
        "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf "
        "Tensor, use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure "
        "you access the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 for more information.");
  return wrap(gradient);
}
static void set_grad(const Tensor& x, PyObject* value) {
  if (!value || value == Py_None) return x.set_grad(Tensor());
  MICA_CHECK_KIND(is_tensor(value), Type, "assigned grad expected to be a Tensor or None but got grad of type ",
                  Py_TYPE(value)->tp_name);
  MICA_CHECK(unwrap(value).impl() != x.impl(), "can't assign Variable as its own grad");
  x.set_grad(unwrap(value));
}
static PyObject* get_grad_dtype(const Tensor& x) {
  MICA_CHECK(x.is_leaf(), "grad_dtype can only be accessed on leaf tensors.");
  const DType dtype = grad_dtype(x);
  return dtype == kAnyDType ? Py_NewRef(Py_None) : dtype_object(dtype);
}
static void set_grad_dtype_from(const Tensor& x, PyObject* value) {
  MICA_CHECK(value, "grad_dtype cannot be deleted; None lets gradients keep their dtype");
  MICA_CHECK(value == Py_None || is_dtype(value), "grad_dtype must be a torch.dtype or None, but got ",
             Py_TYPE(value)->tp_name);
  MICA_CHECK(x.is_leaf(), "grad_dtype can only be set on leaf tensors.");
  set_grad_dtype(x, value == Py_None ? kAnyDType : dtype_from_object(value));
}
static void set_grad_fn(const Tensor& x, PyObject* value) {
  MICA_CHECK(value, "Deletion of _grad_fn not allowed. Detach tensor instead!");
  MICA_CHECK(value == Py_None, "_grad_fn can be only set to None");
  autograd::detach_in_place(x);
}
static PyObject* get_data(const Tensor& x) { return wrap(x.tensor_data()); }
static void set_data(const Tensor& x, PyObject* value) {
  MICA_CHECK(value, "Deleting tensor data is not allowed. Delete tensor instead!");
  MICA_CHECK_KIND(is_tensor(value), Type, "Variable data has to be a tensor, but got ", Py_TYPE(value)->tp_name);
  autograd::set_data(x, unwrap(value));
}

// ---- the table

static Attribute kAttributes[] = {
    {"shape", get_shape},
    {"dtype", get_dtype},
    {"device", get_device},
    {"layout", get_layout},
    {"ndim", get_ndim},
    {"itemsize", get_itemsize},
    {"nbytes", get_nbytes},
    {"requires_grad", get_requires_grad, set_requires_grad},
    {"grad", get_grad, set_grad},
    {"_grad", get_grad, set_grad},
    {"grad_dtype", get_grad_dtype, set_grad_dtype_from},
    {"grad_fn", get_grad_fn},
    {"_grad_fn", get_grad_fn, set_grad_fn},
    {"is_leaf", get_is_leaf},
    {"retains_grad", get_retains_grad},
    {"output_nr", get_output_nr},
    {"data", get_data, set_data, true},
    {"_version", get_version},
    {"_base", get_base},
    {"T", get_T, nullptr, true},
    {"mT", get_mT, nullptr, true},
    {"H", get_H, nullptr, true},
    {"mH", get_mH, nullptr, true},
    {"real", get_real, set_real, true},
    {"imag", get_imag, set_imag, true},
    {"is_cpu", get_is_cpu},
    {"is_cuda", get_is_cuda},
    {"is_meta", get_is_meta},
    {"is_sparse", get_is_sparse},
    {"is_sparse_csr", get_is_sparse_csr},
    {"is_quantized", get_is_quantized},
    {"names", get_names, set_names},
    {"is_nested", get_false},
    {"is_mkldnn", get_false},
    {"is_mps", get_false},
    {"is_xpu", get_false},
    {"is_xla", get_false},
    {"is_ipu", get_false},
    {"is_mtia", get_false},
    {"is_maia", get_false},
    {"is_vulkan", get_false},
    {"name", get_none},
    {"_backward_hooks", get_none},
    {"_post_accumulate_grad_hooks", get_none},
    {"__array_priority__", get_array_priority},
    {"_cdata", get_cdata},
};
static constexpr size_t kNumAttributes = std::size(kAttributes);

PyGetSetDef tensor_attributes[kNumAttributes + 2];

// The table from which the type is made, with one getter and setter for all.
[[maybe_unused]] static const bool filled = [] {
  for (size_t i = 0; i < kNumAttributes; ++i) {
    Attribute& a = kAttributes[i];
    tensor_attributes[i] = {a.name, get_attribute, a.set ? set_attribute : nullptr, nullptr, &a};
  }
  tensor_attributes[kNumAttributes] = {"__dict__", tensor_get_dict, PyObject_GenericSetDict, nullptr, nullptr};
  return true;
}();

}  // namespace mica::python
