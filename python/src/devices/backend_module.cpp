#include "devices/backend_module.h"

#include "exceptions.h"
#include "mica/allocator.h"
#include "mica/backend.h"
#include "types/objects.h"

namespace mica::python {

// Reads the argument as a device with an index. Returns false after a Python error.
static bool indexed_device(PyObject* o, Device& device) {
  if (!is_device_like(o)) {
    PyErr_Format(PyExc_TypeError, "expected a device, not %s", Py_TYPE(o)->tp_name);
    return false;
  }
  device = with_index(device_from_object(o));
  if (device.is_cpu() || device.is_meta()) {
    PyErr_Format(PyExc_ValueError, "expected a device of a backend, but got: %s", device.str().c_str());
    return false;
  }
  return true;
}

static PyObject* open_backend(PyObject*, PyObject* path) try {
  PyObject* encoded = nullptr;
  if (!PyUnicode_FSConverter(path, &encoded)) return nullptr;
  Owned owner(encoded);
  const DeviceType type = mica::open_backend(PyBytes_AS_STRING(encoded));
  const std::string_view name = device_type_name(type);
  return PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
} catch (...) {
  return raise_current_exception();
}

static PyObject* device_count(PyObject*, PyObject* o) try {
  if (!is_device_like(o)) return PyErr_Format(PyExc_TypeError, "expected a device, not %s", Py_TYPE(o)->tp_name);
  return PyLong_FromLong(mica::device_count(device_from_object(o).type()));
} catch (...) {
  return raise_current_exception();
}

static PyObject* accelerator(PyObject*, PyObject*) try {
  const std::optional<DeviceType> type = mica::accelerator();
  if (!type) Py_RETURN_NONE;
  return device_object(Device(*type));
} catch (...) {
  return raise_current_exception();
}

static PyObject* current_device(PyObject*, PyObject* o) try {
  if (!is_device_like(o)) return PyErr_Format(PyExc_TypeError, "expected a device, not %s", Py_TYPE(o)->tp_name);
  return PyLong_FromLong(with_index(Device(device_from_object(o).type())).index());
} catch (...) {
  return raise_current_exception();
}

static PyObject* set_device(PyObject*, PyObject* o) try {
  Device d;
  if (!indexed_device(o, d)) return nullptr;
  backend(d.type()).set_device(d.index());
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* synchronize(PyObject*, PyObject* o) try {
  Device d;
  if (!indexed_device(o, d)) return nullptr;
  const Backend& b = backend(d.type());
  Unlocked unlocked(true);
  b.synchronize(d.index());
  unlocked.lock();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* memory_stats(PyObject*, PyObject* o) try {
  Device d;
  if (!indexed_device(o, d)) return nullptr;
  const MemoryStats s = MICA_HOOK(backend(d.type()), memory_stats)(d.index());
  return Py_BuildValue("{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L}", "allocated", s.allocated, "peak_allocated",
                       s.peak_allocated, "reserved", s.reserved, "peak_reserved", s.peak_reserved, "allocations",
                       s.allocations, "device_allocations", s.device_allocations, "free_memory", s.free_memory,
                       "total_memory", s.total_memory);
} catch (...) {
  return raise_current_exception();
}

static PyObject* reset_peak_memory_stats(PyObject*, PyObject* o) try {
  Device d;
  if (!indexed_device(o, d)) return nullptr;
  MICA_HOOK(backend(d.type()), reset_peak_memory_stats)(d.index());
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* empty_cache(PyObject*, PyObject* o) try {
  Device d;
  if (!indexed_device(o, d)) return nullptr;
  MICA_HOOK(backend(d.type()), empty_cache)();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* empty_cpu_cache(PyObject*, PyObject*) try {
  Unlocked unlocked(true);
  cpu_trim();
  unlocked.lock();
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyObject* device_name(PyObject*, PyObject* o) try {
  Device d;
  if (!indexed_device(o, d)) return nullptr;
  return PyUnicode_FromString(MICA_HOOK(backend(d.type()), device_name)(d.index()));
} catch (...) {
  return raise_current_exception();
}

static PyObject* seed_devices(PyObject*, PyObject* seed) try {
  const unsigned long long value = PyLong_AsUnsignedLongLong(seed);
  if (PyErr_Occurred()) return nullptr;
  manual_seed(value);
  Py_RETURN_NONE;
} catch (...) {
  return raise_current_exception();
}

static PyMethodDef functions[] = {
    {"_open_backend", open_backend, METH_O, "Opens a backend's library; returns the name of its device type."},
    {"_device_count", device_count, METH_O, "How many devices of this type there are; 0 without a backend."},
    {"_accelerator", accelerator, METH_NOARGS, "The device type that computes beside the CPU, as a device; or None."},
    {"_current_device", current_device, METH_O, nullptr},
    {"_set_device", set_device, METH_O, nullptr},
    {"_synchronize", synchronize, METH_O, "Waits for all work of the device."},
    {"_memory_stats", memory_stats, METH_O, nullptr},
    {"_reset_peak_memory_stats", reset_peak_memory_stats, METH_O, nullptr},
    {"_empty_cache", empty_cache, METH_O, nullptr},
    {"_empty_cpu_cache", empty_cpu_cache, METH_NOARGS, nullptr},
    {"_device_name", device_name, METH_O, nullptr},
    {"_seed_devices", seed_devices, METH_O, "Seeds the default generator of every device."},
    {}};

bool add_backends(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0 && add_streams(module); }

}  // namespace mica::python
