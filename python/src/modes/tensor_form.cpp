#include "modes/tensor_form.h"

#include <cstring>

#include "operations/entry.h"
#include "tensor/tensor_object.h"

namespace mica::python {

TensorForm::TensorForm(const Tensor& t) {
  facts_[size_++] = static_cast<int64_t>(t.dtype()) | static_cast<int64_t>(t.layout()) << 8 |
                    static_cast<int64_t>(t.device().type()) << 16 | static_cast<int64_t>(t.requires_grad()) << 24 |
                    static_cast<int64_t>(t.impl()->bits) << 32;
  facts_[size_++] = t.device().index();
  facts_[size_++] = t.dim();
  for (const int64_t size : t.sizes()) facts_[size_++] = size;
  for (const int64_t stride : t.strides()) facts_[size_++] = stride;
}

bool has_form(const Tensor& t, std::string_view form) {
  return t.defined() && t.dim() <= kMostDims && TensorForm(t).bytes() == form;
}

bool has_attributes(PyObject* tensor) {
  PyObject* dict = reinterpret_cast<TensorObject*>(tensor)->dict;
  return dict && PyDict_GET_SIZE(dict) > 0;
}

namespace {

// The facts that a kernel gets of a tensor, and of its gradient: everything but the values. For memory that the host
// reads, also how often it was changed.
size_t facts_of(const Tensor& t, int64_t* facts) {
  const TensorImpl* impl = t.impl();
  size_t n = 0;
  facts[n++] = static_cast<int64_t>(reinterpret_cast<uintptr_t>(t.view_of().data));
  facts[n++] = static_cast<int64_t>(t.dtype()) | static_cast<int64_t>(t.layout()) << 8 |
               static_cast<int64_t>(t.device().type()) << 16 | static_cast<int64_t>(t.requires_grad()) << 24 |
               static_cast<int64_t>(impl->bits) << 32;
  facts[n++] = t.device().index();
  const Tensor grad = impl->requires_grad_leaf ? t.grad() : Tensor();
  facts[n++] = grad.defined() ? static_cast<int64_t>(reinterpret_cast<uintptr_t>(grad.impl()->view.data)) : -1;
  facts[n++] = t.is_cpu() ? static_cast<int64_t>(t.version()) : -1;
  facts[n++] = t.dim();
  for (int64_t d = 0; d < t.dim(); ++d) facts[n++] = t.sizes()[static_cast<size_t>(d)];
  for (int64_t d = 0; d < t.dim(); ++d) facts[n++] = t.strides()[static_cast<size_t>(d)];
  return n * sizeof(int64_t);
}
constexpr size_t kMostFacts = 6 + 2 * kMostDims;

}  // namespace

bool has_facts(const Tensor& t, std::string_view before) {
  if (t.dim() > kMostDims) return false;
  int64_t facts[kMostFacts];
  const size_t size = facts_of(t, facts);
  return size == before.size() && std::memcmp(facts, before.data(), size) == 0;
}

static PyObject* tensor_facts(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor) || unwrap(tensor).dim() > kMostDims)
    return PyErr_Format(PyExc_TypeError, "_tensor_facts() takes a tensor of at most 64 dimensions");
  int64_t facts[kMostFacts];
  const size_t size = facts_of(unwrap(tensor), facts);
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(facts), static_cast<Py_ssize_t>(size));
} catch (...) {
  return raise_current_exception();
}

static PyObject* tensor_form(PyObject*, PyObject* tensor) try {
  if (!is_tensor(tensor) || unwrap(tensor).dim() > kMostDims)
    return PyErr_Format(PyExc_TypeError, "_tensor_form() takes a tensor of at most 64 dimensions");
  const TensorForm form(unwrap(tensor));
  return PyBytes_FromStringAndSize(form.bytes().data(), static_cast<Py_ssize_t>(form.bytes().size()));
} catch (...) {
  return raise_current_exception();
}

// How often the tensor's memory was changed. It works for inference tensors too, which do not tell Python.
static PyObject* change_count(PyObject*, PyObject* tensor) {
  if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "_change_count() takes a tensor");
  return PyLong_FromUnsignedLong(unwrap(tensor).version());
}

static PyObject* count_change(PyObject*, PyObject* tensor) {
  if (!is_tensor(tensor)) return PyErr_Format(PyExc_TypeError, "_count_change() takes a tensor");
  mark_changed(unwrap(tensor));
  Py_RETURN_NONE;
}

bool add_tensor_forms(PyObject* module) {
  static PyMethodDef functions[] = {
      {"_tensor_facts", tensor_facts, METH_O, "All that a kernel is given of a tensor but its values, as bytes."},
      {"_tensor_form", tensor_form, METH_O, "What a tensor is but for values, address and history, as bytes."},
      {"_change_count", change_count, METH_O, nullptr},
      {"_count_change", count_change, METH_O, "Notes a change that no operation has counted."},
      {}};
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
