// The only place where the extension knows tensors: it finds the memory of a plain tensor without Python.
#include "distributed/python/plain_tensor.h"

#include "mica/python_api.h"

namespace mica::distributed::python {
namespace {

PyTypeObject* plain_type = nullptr;

}  // namespace

bool plain_tensor(PyObject* object, Bytes& memory, DType& dtype, std::vector<int64_t>& shape) {
  const Tensor* found = mica::python::extension_api().tensor(object);
  // A subclass may mean something else by its memory.
  if (!found || Py_TYPE(object) != plain_type) return false;
  const Tensor& x = *found;
  if (!x.defined() || x.device().type() != DeviceType::CPU || x.layout() != Layout::Strided || !x.is_contiguous() ||
      x.is_conj() || x.is_neg()) {
    return false;
  }
  dtype = x.dtype();
  if (dtype > DType::UInt64 || (dtype >= DType::Complex32 && dtype <= DType::Complex128)) return false;
  memory = {static_cast<std::byte*>(x.data_ptr()), static_cast<size_t>(x.nbytes())};
  shape.assign(x.sizes().begin(), x.sizes().end());
  return true;
}

PyObject* set_plain_type(PyObject*, PyObject* type) {
  if (!PyType_Check(type)) return PyErr_Format(PyExc_TypeError, "expected a class");
  plain_type = reinterpret_cast<PyTypeObject*>(Py_NewRef(type));
  Py_RETURN_NONE;
}

}  // namespace mica::distributed::python
