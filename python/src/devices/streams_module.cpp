// Streams, events, graphs and pinned memory of backends, as functions of plain numbers, from which python/mica/cuda
// makes classes. A handle is an address; 0 is the default stream.
#include "devices/backend_module.h"
#include "exceptions.h"
#include "mica/backend.h"
#include "mica/backend/cuda_extension.h"
#include "mica/ops.h"
#include "mica/values.h"
#include "tensor/tensor_object.h"
#include "types/objects.h"

namespace mica::python {

namespace {

Device device_argument(PyObject* o) {
  MICA_CHECK_KIND(is_device_like(o), Type, "expected a device, not ", Py_TYPE(o)->tp_name);
  const Device device = with_index(device_from_object(o));
  MICA_CHECK_KIND(!device.is_cpu() && !device.is_meta(), Value, "expected a device of a backend, but got: ", device);
  return device;
}
void* handle_argument(PyObject* o) {
  void* handle = PyLong_AsVoidPtr(o);
  if (!handle && PyErr_Occurred()) throw PythonError();
  return handle;
}
Stream stream_argument(PyObject* device, PyObject* handle) {
  const Device d = device_argument(device);
  return {handle_argument(handle), d};
}

// A function of `count` arguments, whose exceptions become Python's.
#define MICA_STREAM_FUNCTION(name, count)                                                           \
  PyObject* name##_body(PyObject* const* args);                                                     \
  PyObject* name(PyObject*, PyObject* const* args, Py_ssize_t nargs) try {                          \
    MICA_CHECK_KIND(nargs == (count), Type, #name "() takes ", (count), " arguments, got ", nargs); \
    return name##_body(args);                                                                       \
  } catch (...) {                                                                                   \
    return raise_current_exception();                                                               \
  }                                                                                                 \
  PyObject* name##_body([[maybe_unused]] PyObject* const* args)

MICA_STREAM_FUNCTION(current_stream, 1) {
  const Device d = device_argument(args[0]);
  return PyLong_FromVoidPtr(MICA_HOOK(backend(d.type()), current_stream)(d.index()).handle);
}
MICA_STREAM_FUNCTION(set_stream, 2) {
  const Stream s = stream_argument(args[0], args[1]);
  MICA_HOOK(backend(s.device.type()), set_stream)(s);
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(new_stream, 2) {
  const Device d = device_argument(args[0]);
  const long priority = PyLong_AsLong(args[1]);
  if (priority == -1 && PyErr_Occurred()) return nullptr;
  return PyLong_FromVoidPtr(MICA_HOOK(backend(d.type()), new_stream)(d.index(), static_cast<int>(priority)).handle);
}
MICA_STREAM_FUNCTION(stream_done, 2) {
  const Stream s = stream_argument(args[0], args[1]);
  return PyBool_FromLong(MICA_HOOK(backend(s.device.type()), stream_done)(s));
}
MICA_STREAM_FUNCTION(synchronize_stream, 2) {
  const Stream s = stream_argument(args[0], args[1]);
  auto* hook = MICA_HOOK(backend(s.device.type()), synchronize_stream);
  Unlocked unlocked(true);
  hook(s);
  unlocked.lock();
  Py_RETURN_NONE;
}

MICA_STREAM_FUNCTION(new_event, 2) {
  const Device d = device_argument(args[0]);
  const int timing = PyObject_IsTrue(args[1]);
  if (timing < 0) return nullptr;
  return PyLong_FromVoidPtr(MICA_HOOK(backend(d.type()), new_event)(d.index(), timing).handle);
}
MICA_STREAM_FUNCTION(free_event, 2) {
  const Device d = device_argument(args[0]);
  MICA_HOOK(backend(d.type()), free_event)({handle_argument(args[1])});
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(record_event, 3) {
  const Stream s = stream_argument(args[0], args[2]);
  MICA_HOOK(backend(s.device.type()), record_event)({handle_argument(args[1])}, s);
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(wait_event, 3) {
  const Stream s = stream_argument(args[0], args[2]);
  MICA_HOOK(backend(s.device.type()), wait_event)(s, {handle_argument(args[1])});
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(event_done, 2) {
  const Device d = device_argument(args[0]);
  return PyBool_FromLong(MICA_HOOK(backend(d.type()), event_done)({handle_argument(args[1])}));
}
MICA_STREAM_FUNCTION(synchronize_event, 2) {
  const Device d = device_argument(args[0]);
  const Event event{handle_argument(args[1])};
  auto* hook = MICA_HOOK(backend(d.type()), synchronize_event);
  Unlocked unlocked(true);
  hook(event);
  unlocked.lock();
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(elapsed_ms, 3) {
  const Device d = device_argument(args[0]);
  return PyFloat_FromDouble(
      MICA_HOOK(backend(d.type()), elapsed_ms)({handle_argument(args[1])}, {handle_argument(args[2])}));
}

// ---- memory

const Tensor& tensor_argument(PyObject* o) {
  MICA_CHECK_KIND(is_tensor(o), Type, "expected a tensor, not ", Py_TYPE(o)->tp_name);
  return unwrap(o);
}
MICA_STREAM_FUNCTION(record_stream, 3) {
  const Tensor& t = tensor_argument(args[0]);
  const Stream s = stream_argument(args[1], args[2]);
  MICA_CHECK(t.device().type() == s.device.type(), "record_stream: the tensor is on ", t.device(),
             " and the stream is of ", s.device);
  if (t.numel() > 0 && t.storage()) MICA_HOOK(backend(s.device.type()), use_on_stream)(t.storage()->data(), s);
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(is_pinned, 1) { return PyBool_FromLong(mica::is_pinned(tensor_argument(args[0]))); }
MICA_STREAM_FUNCTION(pin_memory, 1) { return wrap(mica::pin_memory(tensor_argument(args[0]))); }

// ---- what only CUDA can do

template <class F>
F* extension(Device device, const char* name) {
  const Backend& b = backend(device.type());
  void* found = b.extension ? b.extension(name) : nullptr;
  MICA_CHECK_KIND(found, NotImplemented, "the backend '", b.name, "' has no extension '", name, "'");
  return reinterpret_cast<F*>(found);
}
Device cuda() { return with_index(Device(DeviceType::CUDA)); }
const GraphApi& graphs() { return *extension<const GraphApi>(cuda(), "graphs"); }

MICA_STREAM_FUNCTION(graph_begin, 3) {
  const char* mode = PyUnicode_AsUTF8(args[1]);
  const unsigned long long pool = PyLong_AsUnsignedLongLong(args[2]);
  if (!mode || PyErr_Occurred()) return nullptr;
  return PyLong_FromVoidPtr(graphs().begin(device_argument(args[0]).index(), mode, static_cast<uintptr_t>(pool)));
}
MICA_STREAM_FUNCTION(graph_end, 1) {
  graphs().end(handle_argument(args[0]));
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(graph_replay, 1) {
  graphs().replay(handle_argument(args[0]));
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(graph_free, 1) {
  graphs().free(handle_argument(args[0]));
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(graph_is_capturing, 1) {
  return PyBool_FromLong(graphs().is_capturing(device_argument(args[0]).index()));
}
MICA_STREAM_FUNCTION(semi_structured_product, 5) {
  const Tensor &out = tensor_argument(args[0]), &kept = tensor_argument(args[1]), &places = tensor_argument(args[2]),
               &dense = tensor_argument(args[3]);
  const Tensor bias = args[4] == Py_None ? Tensor() : tensor_argument(args[4]);
  for (const Tensor* t : {&kept, &places, &dense, &bias})
    MICA_CHECK(!t->defined() || t->device() == out.device(),
               "Expected all tensors to be on the same device, but found at least two devices, ", out.device(), " and ",
               t->device(), "!");
  const auto* api = extension<const SemiStructuredApi>(out.device(), "semi_structured");
  api->product(out.view_of(), kept.view_of(), places.view_of(), dense.view_of(),
               bias.defined() ? bias.view_of() : TensorView{});
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(device_properties, 1) {
  const Device d = device_argument(args[0]);
  DeviceFacts f;
  extension<DeviceFactsFunction>(d, "device_properties")(d.index(), &f);
  return Py_BuildValue(
      "{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:L,s:L,s:L,s:L,s:L,s:O,s:O,s:y#}", "name", f.name, "major", f.major, "minor",
      f.minor, "multi_processor_count", f.multiprocessors, "max_threads_per_multi_processor",
      f.threads_per_multiprocessor, "warp_size", f.warp_size, "regs_per_multiprocessor", f.registers_per_multiprocessor,
      "total_memory", static_cast<long long>(f.total_memory), "L2_cache_size", static_cast<long long>(f.l2_bytes),
      "shared_memory_per_multiprocessor", static_cast<long long>(f.shared_per_multiprocessor),
      "shared_memory_per_block", static_cast<long long>(f.shared_per_block), "shared_memory_per_block_optin",
      static_cast<long long>(f.shared_per_block_optin), "is_integrated", f.integrated ? Py_True : Py_False,
      "is_multi_gpu_board", f.multi_gpu_board ? Py_True : Py_False, "uuid_bytes", reinterpret_cast<const char*>(f.uuid),
      static_cast<Py_ssize_t>(sizeof f.uuid));
}
MICA_STREAM_FUNCTION(set_backend_flag, 3) {
  const Device d = device_argument(args[0]);
  const char* name = PyUnicode_AsUTF8(args[1]);
  const int value = PyObject_IsTrue(args[2]);
  if (!name || value < 0) return nullptr;
  extension<SetFlagFunction>(d, "set_flag")(name, value);
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(cudnn_available, 0) {
  if (!backend_available(DeviceType::CUDA)) Py_RETURN_FALSE;
  return PyBool_FromLong(extension<AvailableFunction>(cuda(), "cudnn_available")());
}
MICA_STREAM_FUNCTION(cudnn_version, 0) {
  if (!backend_available(DeviceType::CUDA)) Py_RETURN_NONE;
  const int64_t version = extension<VersionFunction>(cuda(), "cudnn_version")();
  if (version == 0) Py_RETURN_NONE;
  return PyLong_FromLongLong(version);
}
MICA_STREAM_FUNCTION(set_memory_limit, 2) {
  const Device d = device_argument(args[0]);
  const long long bytes = PyLong_AsLongLong(args[1]);
  if (bytes == -1 && PyErr_Occurred()) return nullptr;
  extension<SetMemoryLimitFunction>(d, "set_memory_limit")(bytes, d.index());
  Py_RETURN_NONE;
}
MICA_STREAM_FUNCTION(can_access_peer, 2) {
  const Device d = device_argument(args[0]), peer = device_argument(args[1]);
  return PyBool_FromLong(extension<CanAccessPeerFunction>(d, "can_access_peer")(d.index(), peer.index()));
}
MICA_STREAM_FUNCTION(backend_query, 3) {
  const Device d = device_argument(args[0]);
  const char* what = PyUnicode_AsUTF8(args[1]);
  const char* argument = what ? PyUnicode_AsUTF8(args[2]) : nullptr;
  if (!argument) return nullptr;
  auto* query = extension<QueryFunction>(d, "query");
  Unlocked unlocked(true);
  const std::string answer = query(what, argument, d.index());
  unlocked.lock();
  return PyUnicode_DecodeUTF8(answer.data(), static_cast<Py_ssize_t>(answer.size()), "replace");
}
#undef MICA_STREAM_FUNCTION

}  // namespace

bool add_streams(PyObject* module) {
#define MICA_ENTRY(name) \
  { "_" #name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(name)), METH_FASTCALL, nullptr }
  static PyMethodDef functions[] = {MICA_ENTRY(current_stream),
                                    MICA_ENTRY(set_stream),
                                    MICA_ENTRY(new_stream),
                                    MICA_ENTRY(stream_done),
                                    MICA_ENTRY(synchronize_stream),
                                    MICA_ENTRY(new_event),
                                    MICA_ENTRY(free_event),
                                    MICA_ENTRY(record_event),
                                    MICA_ENTRY(wait_event),
                                    MICA_ENTRY(event_done),
                                    MICA_ENTRY(synchronize_event),
                                    MICA_ENTRY(elapsed_ms),
                                    MICA_ENTRY(record_stream),
                                    MICA_ENTRY(is_pinned),
                                    MICA_ENTRY(pin_memory),
                                    MICA_ENTRY(graph_begin),
                                    MICA_ENTRY(graph_end),
                                    MICA_ENTRY(graph_replay),
                                    MICA_ENTRY(graph_free),
                                    MICA_ENTRY(graph_is_capturing),
                                    MICA_ENTRY(semi_structured_product),
                                    MICA_ENTRY(device_properties),
                                    MICA_ENTRY(set_backend_flag),
                                    MICA_ENTRY(cudnn_available),
                                    MICA_ENTRY(set_memory_limit),
                                    MICA_ENTRY(can_access_peer),
                                    MICA_ENTRY(backend_query),
                                    MICA_ENTRY(cudnn_version),
                                    {}};
#undef MICA_ENTRY
  return PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace mica::python
