// Which backend serves which device type.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "core/device_names.h"
#include "mica/backend/layer_backend.h"
#include "mica/core/missing_device.h"
#include "mica/error.h"
#include "mica/core/fork.h"

namespace mica {

namespace {

std::mutex mutex;  // guards the members below
HeldOverFork held(mutex, LockOrder::Registry);
std::atomic<const Backend*> backends[kMaxDeviceTypes] = {};
std::optional<uint64_t> seed_of_all;
std::string cuda_open_error;

std::string beside_this_library(const char* file) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&backend_available), &info) || !info.dli_fname) return file;
  std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + file;
}

MadeOnce<const bool> tried_cuda;

// The CUDA backend is a library of its own beside libmica, and is opened when somebody first asks for it. If that
// fails, the reason is kept without the folder, which would tell others nothing.
void open_cuda_once() {
  tried_cuda.get([] {
    const std::string path = beside_this_library("libmica_cuda.so");
    if (access(path.c_str(), F_OK) != 0) {
      cuda_open_error = "this build has no CUDA backend";
      return new bool(true);
    }
    try {
      open_backend(path);
    } catch (const Error& e) {
      cuda_open_error = e.what();
      const std::string folder = path.substr(0, path.rfind('/') + 1);
      for (size_t at; (at = cuda_open_error.find(folder)) != std::string::npos;)
        cuda_open_error.erase(at, folder.size());
    }
    return new bool(true);
  });
}

const Backend* find(DeviceType type) {
  if (is_only_a_name(type)) return nullptr;
  std::atomic<const Backend*>& place = backends[static_cast<int>(type)];
  const Backend* b = place.load(std::memory_order_acquire);
  if (b || type != DeviceType::CUDA) return b;
  open_cuda_once();
  return place.load(std::memory_order_acquire);
}

[[noreturn]] void fail_missing(DeviceType type, const Backend* b) {
  if (b) fail(cat("no ", b->name, " device is available: the backend is there, but it finds no device"));
  if (type == DeviceType::CUDA) throw MissingDevice(cat("Torch not compiled with CUDA enabled: ", cuda_open_error));
  fail(cat("Could not run an operation on the device type '", device_type_name(type),
           "': no backend is registered for it; open one with open_backend(path)"));
}

void seed_devices(const Backend& b, uint64_t seed) {
  if (!b.default_generator) return;
  for (int i = 0; i < b.device_count(); ++i) b.default_generator(i).manual_seed(seed);
}

}  // namespace

void register_backend(const Backend* b) {
  MICA_CHECK(b && b->name, "a backend must have a name");
  MICA_CHECK(b->abi == kBackendAbi, "the backend '", b->name,
             "' was built for another version of Mica: its kernel table does not match. Build it against this "
             "version's headers.");
  MICA_CHECK(b->kernels && b->device_count && b->current_device && b->set_device && b->allocate && b->free &&
                 b->copy_bytes && b->synchronize,
             "the backend '", b->name,
             "' lacks a table of kernels or one of device_count, current_device, set_device, allocate, free, "
             "copy_bytes, synchronize");
  const DeviceType type = register_device_type(b->name);
  MICA_CHECK(type != DeviceType::CPU && type != DeviceType::Meta, "the device type '", b->name, "' is built in");
  const auto seed = [] {
    std::lock_guard lock(mutex);
    return seed_of_all;
  };
  const std::optional<uint64_t> before = seed();
  if (before) seed_devices(*b, *before);
  {
    std::lock_guard lock(mutex);
    backends[static_cast<int>(type)].store(b, std::memory_order_release);
  }
  // A program that has seeded all devices meanwhile has not seen this backend, so it is seeded here.
  if (const std::optional<uint64_t> after = seed(); after && after != before) seed_devices(*b, *after);
}

DeviceType open_backend(std::string_view library_path) {
  void* library = dlopen(std::string(library_path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(cat("cannot open the backend library: ", dlerror()));
  using Entry = const Backend* (*)();
  auto entry = reinterpret_cast<Entry>(dlsym(library, "mica_backend"));
  MICA_CHECK(entry, library_path, " is not a backend: it does not export mica_backend()");
  const Backend* b = entry();
  register_backend(b);
  return register_device_type(b->name);
}

int device_count(DeviceType type) {
  if (type == DeviceType::CPU || type == DeviceType::Meta) return 1;
  const Backend* b = find(type);
  return b ? b->device_count() : 0;
}

bool backend_available(DeviceType type) { return device_count(type) > 0; }

std::optional<DeviceType> accelerator() {
  if (backend_available(DeviceType::CUDA)) return DeviceType::CUDA;
  for (int i = 0; i < kMaxDeviceTypes; ++i) {
    const Backend* b = backends[i].load(std::memory_order_acquire);
    if (b && b->device_count() > 0) return static_cast<DeviceType>(i);
  }
  return std::nullopt;
}

std::optional<DeviceType> device_type_of_dlpack(int32_t dlpack_type) {
  find(DeviceType::CUDA);  // opens it
  for (int i = 0; i < kMaxDeviceTypes; ++i) {
    const Backend* b = backends[i].load(std::memory_order_acquire);
    if (b && b->dlpack_type != 0 && b->dlpack_type == dlpack_type) return static_cast<DeviceType>(i);
  }
  return std::nullopt;
}

const Backend& backend(DeviceType type) {
  const Backend* b = find(type);
  if (!b || b->device_count() == 0) [[unlikely]]
    fail_missing(type, b);
  return *b;
}

const Capabilities& capabilities_of(Device device) {
  static constexpr Capabilities kMeta, kCpu{.joins_strided = true};
  return device.is_cpu() ? kCpu : device.is_meta() ? kMeta : backend(device.type()).capabilities;
}

Device with_index(Device device) {
  if (device.is_cpu() || device.is_meta()) return device;
  const Backend& b = backend(device.type());
  if (device.index() < 0) return {device.type(), b.current_device()};
  MICA_CHECK(device.index() < b.device_count(), b.name, " error: invalid device ordinal: ", device,
             " was asked for, and there ",
             b.device_count() == 1 ? "is 1 device" : cat("are ", b.device_count(), " devices"));
  return device;
}

Generator& default_generator(Device device) {
  if (device.is_cpu() || device.is_meta()) return default_generator();
  const Backend& b = backend(device.type());
  return MICA_HOOK(b, default_generator)(with_index(device).index());
}

void manual_seed(uint64_t seed) {
  default_generator().manual_seed(seed);
  {
    std::lock_guard lock(mutex);
    seed_of_all = seed;
  }
  for (auto& place : backends)
    if (const Backend* b = place.load(std::memory_order_acquire)) seed_devices(*b, seed);
}

void missing_hook(const Backend& b, const char* hook) {
  fail(ErrorKind::NotImplemented, cat("the backend '", b.name, "' does not implement '", hook, "'"));
}

bool takes_call(Device device, bool filled, const char* slot, std::initializer_list<const TensorView*> inputs) {
  if (!filled) return false;
  const auto takes = capabilities_of(device).takes_call;
  return !takes || takes(slot, inputs.begin(), inputs.size());
}

const LayerKernelTable& layer_kernel_table_of(const Backend& backend) {
  static constexpr LayerKernelTable kNone;
  return backend.layer_kernels && backend.layer_abi == kLayerKernelTableHash ? *backend.layer_kernels : kNone;
}

void missing_kernel(const char* slot, Device device) {
  fail(ErrorKind::NotImplemented,
       cat("Could not run '", slot, "' on '", device,
           "': that backend has no such kernel. Move the tensors with .cpu(), or implement the slot '", slot,
           "' in the backend."));
}

void unsupported_dtype(const char* op, DType dtype) {
  fail(ErrorKind::NotImplemented, cat("\"", op, "\" not implemented for '", info(dtype).legacy, "'"));
}

}  // namespace mica
