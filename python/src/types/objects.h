// The small value types of the package: dtype, device, layout, memory_format, Size, Generator.
#pragma once

#include "mica/core/array_ref.h"
#include "mica/core/options.h"
#include "mica/device.h"
#include "mica/dtype.h"
#include "object.h"

namespace mica::python {

struct DTypeObject {
  PyObject_HEAD DType dtype;
  const char* placeholder;  // the name of a dtype that the engine does not have; dtype is Undefined then
};
struct DeviceObject {
  PyObject_HEAD Device device;
};
struct LayoutObject {
  PyObject_HEAD Layout layout;
};
struct MemoryFormatObject {
  PyObject_HEAD MemoryFormat format;
};

extern PyTypeObject* dtype_type;
extern PyTypeObject* device_type;
extern PyTypeObject* layout_type;
extern PyTypeObject* memory_format_type;
extern PyTypeObject* size_type;

inline bool is_dtype(PyObject* o) { return Py_TYPE(o) == dtype_type; }
inline bool is_device(PyObject* o) { return Py_TYPE(o) == device_type; }
inline bool is_layout(PyObject* o) { return Py_TYPE(o) == layout_type; }
inline bool is_memory_format(PyObject* o) { return Py_TYPE(o) == memory_format_type; }

// Undefined for a placeholder; dtype_from_object raises for one.
inline DType dtype_of_object(PyObject* o) { return reinterpret_cast<DTypeObject*>(o)->dtype; }
inline Layout layout_of_object(PyObject* o) { return reinterpret_cast<LayoutObject*>(o)->layout; }
inline MemoryFormat memory_format_of_object(PyObject* o) { return reinterpret_cast<MemoryFormatObject*>(o)->format; }

// New references; dtypes, layouts and memory formats are singletons.
PyObject* dtype_object(DType dtype);
[[noreturn]] void refuse_placeholder(PyObject* dtype);
PyObject* device_object(Device device);
PyObject* layout_object(Layout layout);
// The integer dtype for torch.quint8 and its kind, which stand for quantized tensors; undefined for other dtypes.
DType quantized_dtype_of_object(PyObject* o);
PyObject* quantized_dtype_object(DType integers);
PyObject* size_object(IntArrayRef sizes);

bool is_device_like(PyObject* o);        // a device, a string or an index
Device device_from_object(PyObject* o);  // throws torch's error for a string that names no device

bool add_dtypes(PyObject* module);
bool add_device(PyObject* module);
bool add_layouts(PyObject* module);
bool add_size(PyObject* module);
bool add_type_limits(PyObject* module);  // finfo, iinfo
bool add_generator(PyObject* module);

// A type made from `spec`, added to `module` under its short name; null after a Python error.
PyTypeObject* add_type(PyObject* module, PyType_Spec* spec, PyObject* bases = nullptr);

}  // namespace mica::python
