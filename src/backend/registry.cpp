#include <dlfcn.h>

#include <mutex>

#include "mica/backend.h"
#include "mica/error.h"

namespace mica {

namespace {

std::mutex mutex;
const Backend* backends[kMaxDeviceTypes] = {};
std::string cuda_open_error;
bool cuda_tried = false;

// The CUDA backend is a library of its own beside libmica; it is opened the first time somebody asks for it.
const Backend* find(DeviceType type) {
  std::lock_guard lock(mutex);
  return backends[static_cast<int>(type)];
}

std::string beside_this_library(const char* file) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&backend_available), &info) || !info.dli_fname) return file;
  std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + file;
}

void try_cuda() {
  {
    std::lock_guard lock(mutex);
    if (cuda_tried) return;
    cuda_tried = true;
  }
  try {
    open_backend(beside_this_library("libmica_cuda.so"));
  } catch (const Error& e) {
    std::lock_guard lock(mutex);
    cuda_open_error = e.what();
  }
}

}  // namespace

void register_backend(const Backend* b) {
  MICA_CHECK(b && b->name && b->kernels, "a backend must have a name and a table of kernels");
  MICA_CHECK(b->abi == kKernelTableHash, "the backend '", b->name, "' was built for another version of Mica: its kernel table does not match");
  const DeviceType type = register_device_type(b->name);
  std::lock_guard lock(mutex);
  backends[static_cast<int>(type)] = b;
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

bool backend_available(DeviceType type) {
  if (type == DeviceType::CPU || type == DeviceType::Meta) return true;
  if (type == DeviceType::CUDA) try_cuda();
  const Backend* b = find(type);
  return b && b->device_count() > 0;
}

const Backend& backend(DeviceType type) {
  if (type == DeviceType::CUDA) try_cuda();
  const Backend* b = find(type);
  if (!b && type == DeviceType::CUDA)
    fail(cat("Torch not compiled with CUDA enabled: no CUDA backend could be opened (", cuda_open_error, ")"));
  MICA_CHECK(b, "no backend is registered for the device type '", device_type_name(type), "'; open one with open_backend(path)");
  MICA_CHECK(b->device_count() > 0, "no ", b->name, " device is available");
  return *b;
}

void missing_kernel(const char* slot, Device device) {
  fail(ErrorKind::NotImplemented, cat("Could not run '", slot, "' on '", device, "': that backend has no such kernel. Move the tensors with .cpu(), or implement the slot '", slot, "' in the backend."));
}

void unsupported_dtype(const char* op, DType dtype) {
  fail(ErrorKind::NotImplemented, cat("\"", op, "\" not implemented for '", info(dtype).legacy, "'"));
}

}  // namespace mica
