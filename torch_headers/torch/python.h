// What crosses between C++ and Python in an extension: pybind11's conversions of tensors and of the values that go with
// them, and the way of an exception. pybind11 comes from PyPI or Debian.
#pragma once

#include "mica/python_api.h"
#include "torch/types.h"

#include <pybind11/pybind11.h>
#include <pybind11/complex.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace torch::detail {

inline pybind11::handle object_or_throw(PyObject* object) {
  if (!object) throw pybind11::error_already_set();
  return object;
}

// Errors of the engine arrive in Python as those of its own functions do: IndexError, ValueError, ...
inline const bool errors_are_translated = [] {
  const pybind11::gil_scoped_acquire lock;
  pybind11::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const std::exception& e) {
      if (!mica::python::extension_api().set_error(e)) throw;  // pybind11 knows the standard library's
    }
  });
  return true;
}();

}  // namespace torch::detail

namespace pybind11::detail {

template <>
struct type_caster<mica::Tensor> {
  PYBIND11_TYPE_CASTER(mica::Tensor, const_name("torch.Tensor"));
  bool load(handle source, bool) {
    const mica::Tensor* found = mica::python::extension_api().tensor(source.ptr());
    if (found) value = *found;
    return found != nullptr;
  }
  static handle cast(const mica::Tensor& t, return_value_policy, handle) {
    return torch::detail::object_or_throw(mica::python::extension_api().tensor_object(t));
  }
};

template <>
struct type_caster<mica::DType> {
  PYBIND11_TYPE_CASTER(mica::DType, const_name("torch.dtype"));
  bool load(handle source, bool) { return mica::python::extension_api().dtype(source.ptr(), &value); }
  static handle cast(mica::DType t, return_value_policy, handle) {
    return torch::detail::object_or_throw(mica::python::extension_api().dtype_object(t));
  }
};

template <>
struct type_caster<mica::Device> {
  PYBIND11_TYPE_CASTER(mica::Device, const_name("torch.device"));
  bool load(handle source, bool) { return mica::python::extension_api().device(source.ptr(), &value); }
  static handle cast(mica::Device d, return_value_policy, handle) {
    return torch::detail::object_or_throw(mica::python::extension_api().device_object(d));
  }
};

template <>
struct type_caster<mica::Layout> {
  PYBIND11_TYPE_CASTER(mica::Layout, const_name("torch.layout"));
  bool load(handle source, bool) { return mica::python::extension_api().layout(source.ptr(), &value); }
  static handle cast(mica::Layout l, return_value_policy, handle) {
    return torch::detail::object_or_throw(mica::python::extension_api().layout_object(l));
  }
};

template <>
struct type_caster<mica::MemoryFormat> {
  PYBIND11_TYPE_CASTER(mica::MemoryFormat, const_name("torch.memory_format"));
  bool load(handle source, bool) { return mica::python::extension_api().memory_format(source.ptr(), &value); }
};

template <>
struct type_caster<mica::Scalar> {
  PYBIND11_TYPE_CASTER(mica::Scalar, const_name("Union[Number, bool]"));
  bool load(handle source, bool) {
    if (const mica::Tensor* t = mica::python::extension_api().tensor(source.ptr()); t && t->dim() == 0) {
      value = t->item();
      return true;
    }
    return mica::python::extension_api().number(source.ptr(), &value);
  }
  static handle cast(const mica::Scalar& s, return_value_policy, handle) {
    return torch::detail::object_or_throw(mica::python::extension_api().number_object(s));
  }
};

template <>
struct type_caster<mica::Generator> {
  PYBIND11_TYPE_CASTER(mica::Generator, const_name("torch.Generator"));
  bool load(handle source, bool) {
    const mica::Generator* found = mica::python::extension_api().generator(source.ptr());
    if (found) value = *found;
    return found != nullptr;
  }
};

// A list of integers is kept here for the time of the call.
template <>
struct type_caster<mica::IntArrayRef> {
  PYBIND11_TYPE_CASTER(mica::IntArrayRef, const_name("List[int]"));
  bool load(handle source, bool convert) {
    make_caster<std::vector<int64_t>> list;
    if (!list.load(source, convert)) return false;
    kept_ = cast_op<std::vector<int64_t>&&>(std::move(list));
    value = kept_;
    return true;
  }
  static handle cast(mica::IntArrayRef sizes, return_value_policy, handle) {
    return torch::detail::object_or_throw(mica::python::extension_api().size_object(sizes));
  }

 private:
  std::vector<int64_t> kept_;
};

template <>
struct type_caster<mica::TensorList> {
  PYBIND11_TYPE_CASTER(mica::TensorList, const_name("List[torch.Tensor]"));
  bool load(handle source, bool convert) {
    make_caster<std::vector<mica::Tensor>> list;
    if (!list.load(source, convert)) return false;
    kept_ = cast_op<std::vector<mica::Tensor>&&>(std::move(list));
    value = kept_;
    return true;
  }

 private:
  std::vector<mica::Tensor> kept_;
};

}  // namespace pybind11::detail
