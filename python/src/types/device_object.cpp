// torch.device: a value; `with device:` makes it the default for new tensors.
#include <optional>
#include <vector>

#include "arguments/parser.h"
#include "core/default_device.h"
#include "mica/backend.h"
#include "mica/error.h"
#include "types/objects.h"

namespace mica::python {

PyTypeObject* device_type = nullptr;

static Device& device_of(PyObject* o) { return reinterpret_cast<DeviceObject*>(o)->device; }

PyObject* device_object(Device device) {
  // A device is immutable, so the usual one is made once.
  static PyObject* cpu = nullptr;
  if (device == kCPU && cpu) return Py_NewRef(cpu);
  auto* o = PyObject_New(DeviceObject, device_type);
  if (!o) return nullptr;
  o->device = device;
  if (device == kCPU) cpu = Py_NewRef(reinterpret_cast<PyObject*>(o));
  return reinterpret_cast<PyObject*>(o);
}

static int8_t checked_index(int64_t index) {
  MICA_CHECK(index >= 0, "Device index must not be negative");
  MICA_CHECK(index < 128, "Device index must be less than 128, got ", index);
  return static_cast<int8_t>(index);
}

static Device device_from_index(PyObject* o) {
  long index = PyLong_AsLong(o);
  if (index == -1 && PyErr_Occurred()) throw PythonError();
  return Device(accelerator().value_or(DeviceType::CUDA), checked_index(index));
}

// Device strings are nearly always literals, so the same few objects come again and again.
static Device device_from_string(PyObject* o) {
  static constexpr size_t kSlots = 16;
  static struct {
    PyObject* text;
    Device device;
  } cache[kSlots];
  auto& slot = cache[(reinterpret_cast<uintptr_t>(o) >> 4) % kSlots];
  if (slot.text == o) return slot.device;
  Py_ssize_t length;
  const char* text = PyUnicode_AsUTF8AndSize(o, &length);
  if (!text) throw PythonError();
  Device device(std::string_view(text, static_cast<size_t>(length)));
  Py_XSETREF(slot.text, Py_NewRef(o));
  slot.device = device;
  return device;
}

bool is_device_like(PyObject* o) { return is_device(o) || PyUnicode_Check(o) || (PyLong_Check(o) && !PyBool_Check(o)); }

static Device device_as_named(PyObject* o) {
  if (is_device(o)) return device_of(o);
  if (PyUnicode_Check(o)) return device_from_string(o);
  return device_from_index(o);
}

// "cpu:0" is the same device as "cpu": there is one host, whatever its number. The meta device is no place at all.
Device device_from_object(PyObject* o) {
  const Device device = device_as_named(o);
  return device.is_cpu() || device.is_meta() ? Device(device.type()) : device;
}

static PyObject* device_new(PyTypeObject*, PyObject* args, PyObject* kwargs) try {
  static constexpr SignatureText texts[] = {{kFunction, "Device device"}, {kFunction, "str type, int? index=-1"}};
  static constinit Parser parser("device", texts);
  Arguments a;
  switch (parser.parse(a, args, kwargs)) {
    case 0:
      return is_device(a.object(0)) ? Py_NewRef(a.object(0)) : device_object(device_as_named(a.object(0)));
    case 1: {
      const Device device{a.text(0)};
      if (!a.has(1)) return device_object(device);
      MICA_CHECK(device.index() < 0,
                 "type (string) must not include an index because index was passed explicitly: ", device.str());
      return device_object(Device(device.type(), checked_index(a.integer(1))));
    }
    default:
      return a.result;
  }
} catch (...) {
  return raise_current_exception();
}

static PyObject* device_repr(PyObject* self) {
  Device d = device_of(self);
  std::string type(device_type_name(d.type()));
  if (d.index() < 0) return PyUnicode_FromFormat("device(type='%s')", type.c_str());
  return PyUnicode_FromFormat("device(type='%s', index=%d)", type.c_str(), d.index());
}
static PyObject* device_str(PyObject* self) { return PyUnicode_FromString(device_of(self).str().c_str()); }
static Py_hash_t device_hash(PyObject* self) {
  Device d = device_of(self);
  return static_cast<int>(d.type()) * 256 + d.index() + 2;
}
static PyObject* device_compare(PyObject* a, PyObject* b, int op) {
  if (!is_device(a) || !is_device(b) || (op != Py_EQ && op != Py_NE)) Py_RETURN_NOTIMPLEMENTED;
  return PyBool_FromLong((device_of(a) == device_of(b)) == (op == Py_EQ));
}
static PyObject* get_type(PyObject* self, void*) {
  std::string_view name = device_type_name(device_of(self).type());
  return PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
}
static PyObject* get_index(PyObject* self, void*) {
  if (device_of(self).index() < 0) Py_RETURN_NONE;
  return PyLong_FromLong(device_of(self).index());
}

static PyObject* device_reduce(PyObject* self, PyObject*) {
  Owned module(PyImport_ImportModule("mica._C"));
  if (!module) return nullptr;
  Owned restore(PyObject_GetAttrString(module.get(), "_device"));
  if (!restore) return nullptr;
  return Py_BuildValue("O(s)", restore.get(), device_of(self).str().c_str());
}
static PyObject* device_by_name(PyObject*, PyObject* text) {
  return PyObject_CallOneArg(reinterpret_cast<PyObject*>(device_type), text);
}

static thread_local std::vector<std::optional<Device>> entered;  // the devices to restore, innermost last

static PyObject* device_enter(PyObject* self, PyObject*) {
  entered.push_back(chosen_device());
  set_default_device(device_from_object(self));
  return Py_NewRef(self);
}
static PyObject* device_exit(PyObject*, PyObject*) {
  if (!entered.empty()) {
    choose_device(entered.back());
    entered.pop_back();
  }
  Py_RETURN_NONE;
}

bool add_device(PyObject* module) {
  static PyGetSetDef attributes[] = {
      {"type", get_type, nullptr, nullptr, nullptr}, {"index", get_index, nullptr, nullptr, nullptr}, {}};
  static PyMethodDef methods[] = {{"__enter__", device_enter, METH_NOARGS, nullptr},
                                  {"__exit__", device_exit, METH_VARARGS, nullptr},
                                  {"__reduce__", device_reduce, METH_NOARGS, nullptr},
                                  {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(device_new)},
                                {Py_tp_repr, reinterpret_cast<void*>(device_repr)},
                                {Py_tp_str, reinterpret_cast<void*>(device_str)},
                                {Py_tp_hash, reinterpret_cast<void*>(device_hash)},
                                {Py_tp_richcompare, reinterpret_cast<void*>(device_compare)},
                                {Py_tp_getset, attributes},
                                {Py_tp_methods, methods},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch.device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
                             slots};
  device_type = add_type(module, &spec);
  static PyMethodDef restore = {"_device", device_by_name, METH_O, "The device of a name such as 'cuda:0'."};
  Owned module_name(PyModule_GetNameObject(module));
  Owned function(PyCFunction_NewEx(&restore, nullptr, module_name.get()));
  return device_type && function && PyModule_AddObjectRef(module, "_device", function.get()) == 0;
}

}  // namespace mica::python
