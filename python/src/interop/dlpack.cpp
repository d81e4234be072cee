// DLPack: tensors handed to and taken from other libraries in the process, without a copy.
#include "interop/dlpack.h"

#include "arguments/torch_function.h"
#include "core/exported_storage.h"
#include "interop/dlpack_import.h"
#include "interop/foreign_memory.h"
#include "mica/backend.h"
#include "operations/entry.h"

namespace mica::python {

using namespace dlpack;

// ---- devices

static std::optional<DLDevice> known_device(Device device) {
  if (device.is_cpu()) return DLDevice{kDLCPU, 0};
  const int32_t number = device.is_meta() ? 0 : backend(device.type()).dlpack_type;
  if (number == 0) return std::nullopt;
  return DLDevice{number, with_index(device).index()};
}
static DLDevice dlpack_device_of(Device device) {
  const std::optional<DLDevice> known = known_device(device);
  MICA_CHECK_KIND(known, Buffer, "Cannot pack tensors on ", device);
  return *known;
}

// ---- streams: a consumer names the stream on which it will use the memory, and its work has to wait for ours

constexpr long kDefaultStream = 1, kNoOrder = -1;

static void wait_on_stream(const Tensor& x, PyObject* consumer) {
  if (x.is_cpu() || x.is_meta()) return;
  const long long number = consumer == Py_None ? kDefaultStream : PyLong_AsLongLong(consumer);
  if (number == -1 && PyErr_Occurred()) throw PythonError();
  if (number == kNoOrder) return;
  const Device device = x.device();
  const Backend& b = backend(device.type());
  if (!b.current_stream || !b.new_event || !b.record_event || !b.wait_event || !b.free_event)
    return b.synchronize(device.index());
  MICA_CHECK_KIND(number > 0, Value, "unsupported stream: ", number);
  const Stream current = b.current_stream(device.index());
  const Stream other{number == kDefaultStream ? nullptr : reinterpret_cast<void*>(static_cast<uintptr_t>(number)),
                     device};
  if (other == current) return;
  const Event event = b.new_event(device.index(), false);
  b.record_event(event, current);
  b.wait_event(other, event);
  b.free_event(event);
}

// The number by which the exporter learns our stream, for a device that has streams; otherwise none.
static Owned stream_number(Device device) {
  if (device.is_cpu() || !backend_available(device.type())) return {};
  const Backend& b = backend(device.type());
  if (!b.current_stream) return {};
  void* handle = b.current_stream(with_index(device).index()).handle;
  return Owned(checked(handle ? PyLong_FromVoidPtr(handle) : PyLong_FromLong(kDefaultStream)));
}

// ---- export

// What a capsule points to: the structure, and the tensor whose sizes and strides it names.
template <class Managed>
struct Exported {
  Managed managed{};
  Tensor tensor;
  explicit Exported(const Tensor& x) : tensor(x) {
    DLTensor& t = managed.dl_tensor;
    t.data = x.numel() ? x.data_ptr() : nullptr;
    t.device = dlpack_device_of(x.device());
    t.ndim = static_cast<int32_t>(x.dim());
    t.dtype = data_type_of(x.dtype());
    t.shape = const_cast<int64_t*>(x.sizes().data());
    t.strides = const_cast<int64_t*>(x.strides().data());
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { delete static_cast<Exported*>(self->manager_ctx); };
  }
};

static constexpr const char* kName = "dltensor";
static constexpr const char* kVersionedName = "dltensor_versioned";

template <class Managed>
static void delete_unused(PyObject* capsule, const char* name) {
  // A consumer has renamed the capsule and calls the deleter itself.
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter) managed->deleter(managed);
}

static PyObject* export_capsule(const Tensor& x, bool versioned, bool copied) {
  keep_in_place(*x.storage());
  // An alias of its own: sizes and strides must not change under the consumer.
  Tensor alias =
      Tensor::adopt(TensorImpl::create(x.storage(), x.dtype(), x.device(), x.sizes(), x.strides(), x.storage_offset()));
  if (!versioned) {
    auto exported = std::make_unique<Exported<DLManagedTensor>>(alias);
    PyObject* capsule = checked(PyCapsule_New(&exported->managed, kName,
                                              [](PyObject* unused) { delete_unused<DLManagedTensor>(unused, kName); }));
    exported.release();
    return capsule;
  }
  auto exported = std::make_unique<Exported<DLManagedTensorVersioned>>(alias);
  exported->managed.version = {kMajorVersion, kMinorVersion};
  exported->managed.flags = copied ? kFlagIsCopied : 0;
  PyObject* capsule = checked(PyCapsule_New(&exported->managed, kVersionedName, [](PyObject* unused) {
    delete_unused<DLManagedTensorVersioned>(unused, kVersionedName);
  }));
  exported.release();
  return capsule;
}

static std::optional<bool> optional_flag(PyObject* o) {
  if (o == Py_None) return std::nullopt;
  return PyObject_IsTrue(o) != 0;
}

// The tensor on the device that a (type, index) pair names, copied if asked to.
static Tensor placed(const Tensor& x, PyObject* dl_device, std::optional<bool> copy) {
  Device target = x.device();
  if (dl_device != Py_None) {
    int type, index;
    if (!PyArg_ParseTuple(dl_device, "ii;dl_device must be a tuple of two integers", &type, &index))
      throw PythonError();
    target = device_of(DLDevice{type, index});
  }
  const bool moves = target != x.device();
  MICA_CHECK_KIND(!moves || copy != false, Value, "cannot move tensor from ", x.device(), " to ", target,
                  " without copying");
  if (!moves && copy != true) return x;
  NoGradGuard no_history;
  return mica::to(x, TensorOptions(target), false, true);
}

static PyObject* to_capsule(const Tensor& x, bool versioned, PyObject* dl_device, PyObject* copy) {
  MICA_CHECK_KIND(!x.is_quantized(), Buffer, "QUInt/QInt types are not supported by dlpack");
  MICA_CHECK_KIND(x.layout() == Layout::Strided, Buffer, "Can't export tensors with layout other than torch.strided");
  MICA_CHECK_KIND(!x.requires_grad(), Buffer, "Can't export tensors that require gradient, use tensor.detach()");
  MICA_CHECK_KIND(!x.is_conj(), Buffer, "Can't export tensors with the conjugate bit set");
  MICA_CHECK_KIND(!x.is_neg(), Buffer, "Can't export tensors with the negative bit set, use tensor.resolve_neg()");
  dlpack_device_of(x.device());
  const Tensor exported = placed(x, dl_device, optional_flag(copy));
  return export_capsule(exported, versioned, exported.storage().get() != x.storage().get());
}

// The answer of the active modes or of the tensor's class, which get the keywords as they came. Null without an error
// where there is none.
static PyObject* answer_for_capsule(PyObject* self, PyObject* kwargs) {
  if (!may_be_asked(self)) return nullptr;
  Owned engine(PyImport_ImportModule("mica._C"));
  Owned asked(engine ? PyObject_CallMethod(engine.get(), "_asked_about_values", "O", self) : nullptr);
  if (!asked || asked.get() != Py_True) return nullptr;
  Owned method(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), "__dlpack__"));
  Owned handle(PyObject_GetAttrString(engine.get(), "_handle_torch_function"));
  Owned arguments(method && handle ? Py_BuildValue("(O(O)O)", method.get(), self, self) : nullptr);
  return arguments ? PyObject_Call(handle.get(), arguments.get(), kwargs) : nullptr;
}

static PyObject* dlpack_method(PyObject* self, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"stream", "max_version", "dl_device", "copy", nullptr};
  PyObject *stream = Py_None, *max_version = Py_None, *dl_device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", const_cast<char**>(names), &stream, &max_version,
                                   &dl_device, &copy))
    return nullptr;
  if (PyObject* answer = answer_for_capsule(self, kwargs); answer || PyErr_Occurred()) return answer;
  const Tensor& x = unwrap(self);
  if (stream != Py_None && !PyLong_CheckExact(stream))
    return PyErr_Format(PyExc_TypeError, "stream must be ``int`` or ``none``");
  if (stream != Py_None && x.is_cpu() && PyLong_AsLong(stream) != -1)
    return PyErr_Format(PyExc_AssertionError, "stream should be None on cpu.");
  bool versioned = false;
  if (max_version != Py_None) {
    int major, minor;
    if (!PyArg_ParseTuple(max_version, "ii;max_version must be a tuple of two integers", &major, &minor))
      return nullptr;
    versioned = major >= 1;
  }
  wait_on_stream(x, stream);
  return to_capsule(x, versioned, dl_device, copy);
} catch (...) {
  return raise_current_exception();
}

static PyObject* dlpack_device(PyObject* self, PyObject*) try {
  if (PyObject* answer = nullptr; is_answered(self, "__dlpack_device__", answer)) return answer;
  const Device device = unwrap(self).device();
  const std::optional<DLDevice> known = known_device(device);
  MICA_CHECK_KIND(known, Value, "Unknown device type ", device_type_name(device.type()), " for Dlpack");
  return Py_BuildValue("(ii)", known->device_type, known->device_id);
} catch (...) {
  return raise_current_exception();
}

static PyObject* to_dlpack(PyObject*, PyObject* o) try {
  if (!is_tensor(o))
    return PyErr_Format(PyExc_TypeError, "to_dlpack(): argument 'tensor' must be Tensor, not %s", Py_TYPE(o)->tp_name);
  return to_capsule(unwrap(o), false, Py_None, Py_None);
} catch (...) {
  return raise_current_exception();
}

// ---- import

template <class Managed>
static void release_managed(void* context, void*, size_t) {
  auto* managed = static_cast<Managed*>(context);
  if (managed->deleter) managed->deleter(managed);
}

static void check_version(const DLManagedTensor&) {}
static void check_version(const DLManagedTensorVersioned& m) {
  MICA_CHECK_KIND(m.version.major <= kMajorVersion, Buffer, "Unsupported DLPack version ", m.version.major, ".",
                  m.version.minor, ": at most ", kMajorVersion, ".x can be read");
}

// A capsule is consumed once: its new name says that the tensor made from it owns the memory now.
template <class Managed>
static Tensor consume(PyObject* capsule, const char* name, const char* used_name) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (!managed) throw PythonError();
  check_version(*managed);
  Tensor x = dlpack::tensor_over(managed->dl_tensor, release_managed<Managed>, managed);
  if (PyCapsule_SetName(capsule, used_name) < 0) throw PythonError();
  return x;
}

static Tensor tensor_from_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kVersionedName))
    return consume<DLManagedTensorVersioned>(capsule, kVersionedName, "used_dltensor_versioned");
  MICA_CHECK(PyCapsule_IsValid(capsule, kName),
             "from_dlpack received an invalid capsule. Note that DLTensor capsules can be consumed only once, so you "
             "might have already constructed a tensor from it once.");
  return consume<DLManagedTensor>(capsule, kName, "used_dltensor");
}

bool has_dlpack(PyObject* o) {
  if (is_tensor(o) || PyList_CheckExact(o) || PyTuple_CheckExact(o) || PyFloat_CheckExact(o) || PyLong_CheckExact(o))
    return false;
  return PyObject_HasAttrString(o, "__dlpack__");
}

// Asks the exporter for a capsule. One that does not know versions is asked again without them.
static Owned capsule_of(PyObject* exporter, PyObject* dl_device, std::optional<bool> copy, PyObject* stream) {
  Owned method(checked(PyObject_GetAttrString(exporter, "__dlpack__")));
  Owned kwargs(checked(Py_BuildValue("{s:(ii)}", "max_version", 1, 0))), none(PyTuple_New(0));
  if (copy) PyDict_SetItemString(kwargs.get(), "copy", *copy ? Py_True : Py_False);
  if (dl_device) PyDict_SetItemString(kwargs.get(), "dl_device", dl_device);
  if (stream) PyDict_SetItemString(kwargs.get(), "stream", stream);
  Owned capsule(PyObject_Call(method.get(), none.get(), kwargs.get()));
  if (capsule || !PyErr_ExceptionMatches(PyExc_TypeError)) return Owned(checked(capsule.release()));
  PyErr_Clear();
  PyDict_DelItemString(kwargs.get(), "max_version");
  return Owned(checked(PyObject_Call(method.get(), none.get(), kwargs.get())));
}

Tensor tensor_from_dlpack(PyObject* source, std::optional<Device> device, std::optional<bool> copy) {
  if (PyCapsule_CheckExact(source) || !PyObject_HasAttrString(source, "__dlpack__")) {
    MICA_CHECK(!device && !copy, "a bare capsule comes with no choice of device or copy");
    return tensor_from_capsule(source);
  }
  Owned where(checked(PyObject_CallMethod(source, "__dlpack_device__", nullptr)));
  DLDevice present{};
  if (!PyArg_ParseTuple(where.get(), "ii", &present.device_type, &present.device_id)) throw PythonError();
  Owned wanted;
  if (device) {
    const DLDevice target = dlpack_device_of(*device);
    if (target.device_type != present.device_type || target.device_id != present.device_id)
      wanted = Owned(Py_BuildValue("(ii)", target.device_type, target.device_id));
  }
  Owned stream;
  if (const auto type = device_type_of_dlpack(present.device_type)) stream = stream_number(Device(*type));
  Owned capsule = capsule_of(source, wanted.get(), copy, stream.get());
  return tensor_from_capsule(capsule.get());
}

static PyObject* from_dlpack(PyObject*, PyObject* args, PyObject* kwargs) try {
  static const char* names[] = {"ext_tensor", "device", "copy", nullptr};
  PyObject *source, *device = Py_None, *copy = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OO:from_dlpack", const_cast<char**>(names), &source, &device,
                                   &copy))
    return nullptr;
  return wrap(tensor_from_dlpack(source, device == Py_None ? std::nullopt : std::optional(device_from_object(device)),
                                 optional_flag(copy)));
} catch (...) {
  return raise_current_exception();
}

bool add_dlpack(PyObject* module) {
  static PyMethodDef methods[] = {
      {"__dlpack__", as_cfunction(dlpack_method), METH_VARARGS | METH_KEYWORDS, "A DLPack capsule of the tensor."},
      {"__dlpack_device__", dlpack_device, METH_NOARGS, "The device as DLPack counts it: its type and index."},
      {}};
  static PyMethodDef functions[] = {
      {"to_dlpack", to_dlpack, METH_O, "A DLPack capsule of a tensor, to be consumed once."},
      {"from_dlpack", as_cfunction(from_dlpack), METH_VARARGS | METH_KEYWORDS,
       "A tensor over the memory of an object that exports itself through DLPack."},
      {}};
  return add_tensor_methods(methods) && PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
