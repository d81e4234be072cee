// The seam between the core and a backend: plain-data views, a table of kernels and a few hooks. A backend is a shared
// library that exports `extern "C" const mica::Backend* mica_backend()`; the CPU backend is built in. docs/backends.md
// shows how to write one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "mica/backend/kernel_types.h"

#include "mica/generated/kernel_table.h"  // struct KernelTable, kKernelTableHash

namespace mica {

struct LayerKernelTable;  // mica/backend/layer_backend.h

// Work of one device that runs in the order it was queued. A null handle is the device's default stream.
struct Stream {
  void* handle = nullptr;
  Device device;
  friend bool operator==(const Stream&, const Stream&) = default;
};
// A point in a stream's work, owned by whoever created it.
struct Event {
  void* handle = nullptr;
};

// Bytes. `allocated` is what tensors hold, `reserved` what the backend has taken from the device for them.
struct MemoryStats {
  int64_t allocated = 0, peak_allocated = 0;
  int64_t reserved = 0, peak_reserved = 0;
  int64_t allocations = 0;                    // calls of allocate
  int64_t device_allocations = 0;             // of which the device had to be asked
  int64_t free_memory = 0, total_memory = 0;  // of the device
};

// What a backend does beyond the contracts of its slots. The core asks capabilities_of(device), and never for a
// device's name. The values below hold for a backend that says nothing.
struct Capabilities {
  // Whether a pointwise slot takes float16 and bfloat16 inputs in a loop of float32, and widens them as it reads them.
  // While this is null no slot does, and the core converts such inputs first.
  bool (*widens_operands)(const char* slot) = nullptr;
  // Some operations are also compositions of others. Says whether the filled slot takes a call with these inputs, some
  // of which may be undefined; otherwise the composition runs. While this is null the slot takes every call.
  bool (*takes_call)(const char* slot, const TensorView* const* inputs, size_t count) = nullptr;
  // Whether kernels check their indices themselves; an index out of range then becomes an error when the host next
  // waits for the device. Otherwise the core asks first_outside before the call, and kernels get indices in range.
  bool reports_indices = false;
  // cat takes inputs of any strides where each has one element along the last dimension, the one that is joined, and
  // a row of the result has at most 4096 bytes.
  bool joins_strided = false;
  // linalg.svd lets its caller choose among algorithms (driver=).
  bool svd_drivers = false;
  // Products of scaled 8-bit floats have the rules of tensor cores, with torch's words for them: sizes are multiples of
  // 16, and rows meet columns.
  bool tensor_core_rules = false;
};

// Hooks of the first group are required; any other may be null, and is then an error that names it when somebody needs
// it. Hooks and kernels report failure by throwing mica::Error. An index is never -1: the core has replaced it by the
// current device.
struct Backend {
  uint64_t abi = 0;            // kBackendAbi
  const char* name = nullptr;  // the device type's name: "cuda"
  const KernelTable* kernels = nullptr;
  // The kernels of layers, for a backend that has any. Their table changes more often than the engine's and has a hash
  // of its own: a backend that was built for another table of layers loses its layers, not the engine.
  uint64_t layer_abi = 0;  // kLayerKernelTableHash
  const LayerKernelTable* layer_kernels = nullptr;

  int (*device_count)() = nullptr;  // 0 where there is a library but no device; never throws
  int (*current_device)() = nullptr;
  void (*set_device)(int index) = nullptr;
  void* (*allocate)(size_t nbytes, int index) = nullptr;  // nbytes > 0; at least 16-byte aligned
  // Never throws. The memory may still be in use by work queued on the stream that was current when it was allocated.
  void (*free)(void* data, size_t nbytes, int index) = nullptr;
  // Copies bytes between two places of which at least one is this backend's. Ordered with the work queued before it;
  // returns before the copy is done only if non_blocking and the host's end is pinned.
  void (*copy_bytes)(void* to, Device to_device, const void* from, Device from_device, size_t nbytes,
                     bool non_blocking) = nullptr;
  void (*synchronize)(int index) = nullptr;  // waits for all work of the device

  // Memory
  MemoryStats (*memory_stats)(int index) = nullptr;
  void (*reset_peak_memory_stats)(int index) = nullptr;
  void (*empty_cache)() = nullptr;                    // returns unused memory to the devices
  void* (*allocate_pinned)(size_t nbytes) = nullptr;  // host memory that copies reach without a detour
  void (*free_pinned)(void* data, size_t nbytes) = nullptr;
  bool (*is_pinned)(const void* data) = nullptr;

  // Streams and events. Kernels and copies queue on the calling thread's current stream of their device.
  Stream (*current_stream)(int index) = nullptr;
  void (*set_stream)(Stream stream) = nullptr;
  Stream (*new_stream)(int index, int priority) = nullptr;  // lives as long as the process
  bool (*stream_done)(Stream stream) = nullptr;
  void (*synchronize_stream)(Stream stream) = nullptr;
  // For memory of another stream: when it is freed, it waits for this stream too.
  void (*use_on_stream)(void* data, Stream stream) = nullptr;
  Event (*new_event)(int index, bool timing) = nullptr;
  void (*free_event)(Event event) = nullptr;
  void (*record_event)(Event event, Stream stream) = nullptr;
  void (*wait_event)(Stream stream, Event event) = nullptr;  // the stream's later work starts after the event
  bool (*event_done)(Event event) = nullptr;
  void (*synchronize_event)(Event event) = nullptr;
  double (*elapsed_ms)(Event from, Event to) = nullptr;

  // Random numbers: a device's generator for calls that name none, and a new generator.
  Generator& (*default_generator)(int index) = nullptr;
  Generator (*new_generator)(int index, uint64_t seed) = nullptr;

  const char* (*device_name)(int index) = nullptr;
  Capabilities capabilities;
  // Returns what only this backend can do, by name, or null for a name that it does not know. Neither side has to know
  // the other's whole list.
  void* (*extension)(const char* name) = nullptr;
  // DLPack's number for this kind of device (2 is CUDA, 12 a device that DLPack has no name for). With 0 its tensors
  // are not handed to other libraries.
  int32_t dlpack_type = 0;
};

// Guards against a library built for another table or another layout of what crosses the seam: the generator hashes
// every slot's name and signature. kSeamVersion counts changes of meaning that the compiler cannot see.
inline constexpr uint64_t kSeamVersion = 2;
inline constexpr uint64_t kBackendAbi =
    ((((kKernelTableHash * 31 + kSeamVersion) * 31 + sizeof(Backend)) * 31 + sizeof(PointwiseLoop)) * 31 +
     sizeof(TensorView)) *
        31 +
    sizeof(MatmulCall);

// The backend of a device type; throws an error that says what is missing and how to get it.
const Backend& backend(DeviceType type);
bool backend_available(DeviceType type);
const Capabilities& capabilities_of(Device device);
int device_count(DeviceType type);  // 0 where there is no backend
// The device type that computes beside the CPU: CUDA where there is a GPU, otherwise the first backend that was opened
// and has a device.
std::optional<DeviceType> accelerator();
std::optional<DeviceType> device_type_of_dlpack(int32_t dlpack_type);  // looks among the backends that are there
void register_backend(const Backend* backend);                         // keeps the pointer
DeviceType open_backend(std::string_view library_path);  // opens a shared library and registers what it exports
// The device with its index filled in: the current one where it has none. Throws where there is no such device.
Device with_index(Device device);
Generator& default_generator(Device device);
void manual_seed(uint64_t seed);  // every default generator, those of backends opened later too

[[noreturn]] void missing_hook(const Backend& backend, const char* hook);

// MICA_HOOK(backend, hook)(arguments...): an optional hook, or an error naming it.
#define MICA_HOOK(backend_, hook) \
  ((backend_).hook ? (backend_).hook : (::mica::missing_hook(backend_, #hook), (backend_).hook))

extern KernelTable cpu_kernels;  // filled by the kernel files as the library is loaded: backends/cpu/register.h

inline const KernelTable& kernel_table(Device device) {
  return device.is_cpu() ? cpu_kernels : *backend(device.type()).kernels;
}
[[noreturn]] void missing_kernel(const char* slot, Device device);

// MICA_KERNEL(device, slot)(arguments...): the backend's kernel, or an error naming the operation and the device.
#define MICA_KERNEL(device_, slot)            \
  ([](::mica::Device d_) {                    \
    auto* k_ = ::mica::kernel_table(d_).slot; \
    if (!k_) [[unlikely]]                     \
      ::mica::missing_kernel(#slot, d_);      \
    return k_;                                \
  }(device_))

}  // namespace mica
