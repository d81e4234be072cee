// What a Python extension module in C++ needs of mica._C, to take and to return tensors: a table of functions that the
// module hands out in a capsule. torch_headers/torch/python.h builds pybind11's conversions on it.
#pragma once

#include <Python.h>

#include <exception>

#include "mica/core/options.h"
#include "mica/core/scalar.h"
#include "mica/error.h"
#include "mica/generator.h"
#include "mica/tensor.h"

namespace mica::python {

// Functions that read an object return false, or null, where it is of another kind, and leave no Python error. Those
// that make an object return a new reference, or null with a Python error set. All want the interpreter's lock.
struct ExtensionApi {
  static constexpr uint32_t kVersion = 2;
  static constexpr const char* kCapsule = "mica._C._extension_api";

  uint32_t version;
  const Tensor* (*tensor)(PyObject* object);  // valid as long as the object is
  bool (*dtype)(PyObject* object, DType* dtype);
  bool (*device)(PyObject* object, Device* device);
  bool (*layout)(PyObject* object, Layout* layout);
  bool (*memory_format)(PyObject* object, MemoryFormat* format);
  bool (*number)(PyObject* object, Scalar* number);
  const Generator* (*generator)(PyObject* object);

  PyObject* (*tensor_object)(const Tensor& tensor);  // None for an undefined tensor
  PyObject* (*dtype_object)(DType dtype);
  PyObject* (*device_object)(Device device);
  PyObject* (*layout_object)(Layout layout);
  PyObject* (*number_object)(const Scalar& number);
  PyObject* (*size_object)(IntArrayRef sizes);

  // Turns an error of the engine, or a Python error on its way through it, into Python's error; returns false for any
  // other. The error is passed as an object: the module and mica may each have a C++ runtime, which knows only its own
  // exceptions.
  bool (*set_error)(const std::exception& error);
};

// The table of the imported mica. Throws where none is imported, or one of another version.
inline const ExtensionApi& extension_api() {
  static const ExtensionApi* const api = [] {
    const auto* found = static_cast<const ExtensionApi*>(PyCapsule_Import(ExtensionApi::kCapsule, 0));
    if (!found) PyErr_Clear();
    MICA_CHECK(found, "this extension was compiled for mica: import mica (or its torch) before it");
    MICA_CHECK(found->version == ExtensionApi::kVersion, "this extension was compiled for another version of mica; ",
               "compile it again");
    return found;
  }();
  return *api;
}

}  // namespace mica::python
