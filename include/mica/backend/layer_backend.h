// The seam between the operations of layers and a backend: mica/backend.h with the table of their kernels.
#pragma once

#include <initializer_list>

#include "mica/backend.h"

#include "mica/generated/layer_kernel_table.h"  // struct LayerKernelTable, kLayerKernelTableHash

namespace mica {

extern LayerKernelTable cpu_layer_kernels;  // filled by the kernel files as the library is loaded

// The table of a device's backend; an empty one where the backend has none that fits this library.
const LayerKernelTable& layer_kernel_table_of(const Backend& backend);

inline const LayerKernelTable& layer_kernel_table(Device device) {
  return device.is_cpu() ? cpu_layer_kernels : layer_kernel_table_of(backend(device.type()));
}

// Whether the backend of a device takes a call of a slot: the slot is filled, and Capabilities::takes_call does not
// turn these inputs down. Otherwise the operation runs as a composition of others. The meta device takes every call.
bool takes_call(Device device, bool filled, const char* slot, std::initializer_list<const TensorView*> inputs);

// MICA_TAKES(device, slot, inputs...) of the engine's table, MICA_LAYER_TAKES of that of layers; inputs are pointers to
// views.
#define MICA_TAKES(device_, slot, ...) \
  ((device_).is_meta() ||              \
   ::mica::takes_call(device_, ::mica::kernel_table(device_).slot != nullptr, #slot, {__VA_ARGS__}))
#define MICA_LAYER_TAKES(device_, slot, ...) \
  ((device_).is_meta() ||                    \
   ::mica::takes_call(device_, ::mica::layer_kernel_table(device_).slot != nullptr, #slot, {__VA_ARGS__}))

// MICA_LAYER_KERNEL(device, slot)(arguments...): the backend's kernel, or an error naming the operation and the device.
#define MICA_LAYER_KERNEL(device_, slot)            \
  ([](::mica::Device d_) {                          \
    auto* k_ = ::mica::layer_kernel_table(d_).slot; \
    if (!k_) [[unlikely]]                           \
      ::mica::missing_kernel(#slot, d_);            \
    return k_;                                      \
  }(device_))

}  // namespace mica
