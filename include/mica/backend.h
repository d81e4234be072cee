// The seam between the core and a backend: plain-data views, a table of kernels and a few hooks. A backend is a shared library
// that exports `extern "C" const mica::Backend* mica_backend()`; the CPU backend is built in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "mica/kernel_types.h"

#include "mica/generated/kernel_table.h"  // struct KernelTable, kKernelTableHash

namespace mica {

struct Backend {
  // Guards against a library built for another table: the generator hashes every slot's name and signature.
  uint64_t abi = kKernelTableHash;
  const char* name = nullptr;  // the device type's name: "cuda"
  const KernelTable* kernels = nullptr;
  int (*device_count)() = nullptr;
  int (*current_device)() = nullptr;
  void (*set_device)(int index) = nullptr;
  void* (*allocate)(size_t nbytes, int index) = nullptr;  // throws on failure
  void (*free)(void* data, size_t nbytes, int index) = nullptr;
  // Copies bytes between two places of which at least one is this backend's. Ordered with the kernels queued before it;
  // returns before the copy is done only if non_blocking.
  void (*copy_bytes)(void* to, Device to_device, const void* from, Device from_device, size_t nbytes, bool non_blocking) = nullptr;
  void (*synchronize)(int index) = nullptr;
};

// The backend of a device type; throws an error that says what is missing and how to get it.
const Backend& backend(DeviceType type);
bool backend_available(DeviceType type);
void register_backend(const Backend* backend);            // keeps the pointer
DeviceType open_backend(std::string_view library_path);   // opens a shared library and registers what it exports

extern KernelTable cpu_kernels;  // filled by the kernel files as the library is loaded: backends/cpu/register.h

inline const KernelTable& kernel_table(Device device) {
  return device.is_cpu() ? cpu_kernels : *backend(device.type).kernels;
}
[[noreturn]] void missing_kernel(const char* slot, Device device);

// MICA_KERNEL(device, slot)(arguments...): the backend's kernel, or an error naming the operation and the device.
#define MICA_KERNEL(device_, slot)                                                        \
  ([](::mica::Device d_) {                                                                \
    auto* k_ = ::mica::kernel_table(d_).slot;                                             \
    if (!k_) [[unlikely]]                                                                 \
      ::mica::missing_kernel(#slot, d_);                                                  \
    return k_;                                                                            \
  }(device_))

}  // namespace mica
