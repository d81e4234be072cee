#include "types/generator_object.h"

#include <cstring>

#include "exceptions.h"
#include "mica/backend.h"
#include "mica/ops.h"
#include "tensor/tensor_object.h"
#include "types/objects.h"

namespace mica::python {

PyTypeObject* generator_type = nullptr;

static Generator& generator_of(PyObject* o) { return reinterpret_cast<GeneratorObject*>(o)->generator; }

uint64_t seed_from_object(PyObject* o) {
  Owned number(checked(PyNumber_Index(o)));
  uint64_t value = PyLong_AsUnsignedLongLong(number.get());
  if (value == ~uint64_t{0} && PyErr_Occurred()) {
    PyErr_Clear();
    int64_t negative = PyLong_AsLongLong(number.get());
    if (negative == -1 && PyErr_Occurred()) {
      PyErr_Clear();
      fail(ErrorKind::Value, "Overflow when unpacking long long");
    }
    return static_cast<uint64_t>(negative);
  }
  return value;
}

static PyObject* make(PyTypeObject* type, Generator generator, Device device = kCPU) {
  PyObject* o = type->tp_alloc(type, 0);
  if (!o) return nullptr;
  new (&generator_of(o)) Generator(std::move(generator));
  reinterpret_cast<GeneratorObject*>(o)->device = device;
  return o;
}
static Device device_of_generator(PyObject* o) { return reinterpret_cast<GeneratorObject*>(o)->device; }

static PyObject* generator_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"device", nullptr};
  PyObject* device = nullptr;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:Generator", const_cast<char**>(names), &device)) return nullptr;
  if (device && device != Py_None) {
    if (!is_device_like(device))
      return PyErr_Format(PyExc_TypeError, "Generator(): argument 'device' (position 1) must be torch.device, not %s",
                          Py_TYPE(device)->tp_name);
    Device d = device_from_object(device);
    if (!d.is_cpu()) {
      MICA_CHECK(!d.is_meta(), "Device type meta is not supported for torch.Generator() api.");
      d = with_index(d);
      return make(type, MICA_HOOK(backend(d.type()), new_generator)(d.index(), Generator::kDefaultSeed), d);
    }
  }
  return make(type, Generator(Generator::kDefaultSeed));
} catch (...) {
  return raise_current_exception();
}

static void generator_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  generator_of(self).~Generator();
  type->tp_free(self);
  Py_DECREF(type);
}

static PyObject* manual_seed(PyObject* self, PyObject* seed) try {
  generator_of(self).manual_seed(seed_from_object(seed));
  return Py_NewRef(self);
} catch (...) {
  return raise_current_exception();
}
static PyObject* seed(PyObject* self, PyObject*) try {
  return PyLong_FromUnsignedLongLong(generator_of(self).seed());
} catch (...) {
  return raise_current_exception();
}
static PyObject* initial_seed(PyObject* self, PyObject*) {
  return PyLong_FromUnsignedLongLong(generator_of(self).initial_seed());
}
static PyObject* get_state(PyObject* self, PyObject*) try {
  std::vector<uint8_t> bytes = generator_of(self).get_state();
  const TensorOptions options = TensorOptions(DType::UInt8).device(kCPU);  // whatever the default device is
  Tensor state = empty(IntArrayRef(static_cast<int64_t>(bytes.size())), options);
  std::memcpy(state.data_ptr(), bytes.data(), bytes.size());
  return wrap(std::move(state));
} catch (...) {
  return raise_current_exception();
}
static PyObject* set_state(PyObject* self, PyObject* state) try {
  if (!is_tensor(state))
    return PyErr_Format(PyExc_TypeError, "expected a torch.ByteTensor, but got %s", Py_TYPE(state)->tp_name);
  const Tensor& t = unwrap(state);
  MICA_CHECK_KIND(t.dtype() == DType::UInt8 && t.is_cpu(), Type, "RNG state must be a torch.ByteTensor");
  MICA_CHECK_KIND(t.is_contiguous(), Type, "RNG state must be contiguous");
  generator_of(self).set_state(static_cast<const uint8_t*>(t.data_ptr()), static_cast<size_t>(t.numel()));
  return Py_NewRef(self);
} catch (...) {
  return raise_current_exception();
}
static PyObject* get_offset(PyObject* self, PyObject*) try {
  return PyLong_FromUnsignedLongLong(generator_of(self).get_offset());
} catch (...) {
  return raise_current_exception();
}
static PyObject* set_offset(PyObject* self, PyObject* offset) try {
  generator_of(self).set_offset(seed_from_object(offset));
  return Py_NewRef(self);
} catch (...) {
  return raise_current_exception();
}
static PyObject* clone_state(PyObject* self, PyObject*) try {
  return make(Py_TYPE(self), generator_of(self).clone(), device_of_generator(self));
} catch (...) {
  return raise_current_exception();
}
static PyObject* reduce(PyObject* self, PyObject*) {
  Owned module(PyImport_ImportModule("mica._C"));
  Owned restore(module ? PyObject_GetAttrString(module.get(), "_generator") : nullptr);
  Owned seed(initial_seed(self, nullptr)), state(restore && seed ? get_state(self, nullptr) : nullptr);
  return state ? Py_BuildValue("O(OO)", restore.get(), seed.get(), state.get()) : nullptr;
}
static PyObject* generator_of_state(PyObject*, PyObject* args) {
  PyObject *seed, *state;
  if (!PyArg_ParseTuple(args, "OO:_generator", &seed, &state)) return nullptr;
  Owned generator(make(generator_type, Generator(Generator::kDefaultSeed)));
  Owned seeded(generator ? manual_seed(generator.get(), seed) : nullptr);
  return seeded ? set_state(generator.get(), state) : nullptr;
}
// Only GPUs have states that a captured graph shares.
static PyObject* graphsafe_get_state(PyObject*, PyObject*) {
  PyErr_SetString(PyExc_NotImplementedError, "graphsafe_get_state is not supported in this Generator");
  return nullptr;
}
static PyObject* graphsafe_set_state(PyObject*, PyObject*) {
  PyErr_SetString(PyExc_NotImplementedError, "graphsafe_set_state is not supported in this Generator");
  return nullptr;
}
static PyObject* get_generator_device(PyObject* self, void*) { return device_object(device_of_generator(self)); }

// The generator of a device for calls that name none.
static PyObject* default_generator_of(PyObject*, PyObject* device) try {
  if (!is_device_like(device))
    return PyErr_Format(PyExc_TypeError, "expected a device, not %s", Py_TYPE(device)->tp_name);
  const Device d = with_index(device_from_object(device));
  return make(generator_type, default_generator(d), d);
} catch (...) {
  return raise_current_exception();
}

bool add_generator(PyObject* module) {
  static PyMethodDef methods[] = {
      {"manual_seed", manual_seed, METH_O, "Starts the stream of this seed; returns the generator."},
      {"seed", seed, METH_NOARGS, "Seeds from the system's entropy; returns the seed."},
      {"initial_seed", initial_seed, METH_NOARGS, "The seed that the stream began with."},
      {"get_state", get_state, METH_NOARGS, "The whole state, as a ByteTensor."},
      {"set_state", set_state, METH_O, "Takes over a state that get_state() returned."},
      {"get_offset", get_offset, METH_NOARGS, nullptr},
      {"set_offset", set_offset, METH_O, nullptr},
      {"clone_state", clone_state, METH_NOARGS, "A generator of its own in the same state."},
      {"graphsafe_get_state", graphsafe_get_state, METH_NOARGS, "Refused: a state shared with a captured graph."},
      {"graphsafe_set_state", graphsafe_set_state, METH_O, "Refused: a state shared with a captured graph."},
      {"__reduce__", reduce, METH_NOARGS, nullptr},
      {}};
  static PyGetSetDef attributes[] = {{"device", get_generator_device, nullptr, nullptr, nullptr}, {}};
  static PyType_Slot slots[] = {{Py_tp_new, reinterpret_cast<void*>(generator_new)},
                                {Py_tp_dealloc, reinterpret_cast<void*>(generator_dealloc)},
                                {Py_tp_methods, methods},
                                {Py_tp_getset, attributes},
                                {0, nullptr}};
  static PyType_Spec spec = {"torch._C.Generator", sizeof(GeneratorObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                             slots};
  static PyMethodDef functions[] = {{"_generator", generator_of_state, METH_VARARGS, nullptr},
                                    {"_default_generator", default_generator_of, METH_O, nullptr},
                                    {}};
  generator_type = add_type(module, &spec);
  if (!generator_type || PyModule_AddFunctions(module, functions) < 0) return false;
  Owned shared(make(generator_type, default_generator()));
  return shared && PyModule_AddObjectRef(module, "default_generator", shared.get()) == 0;
}

}  // namespace mica::python
