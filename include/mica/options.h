// How a factory makes its tensor: dtype, device, layout, requires_grad; and the memory formats.
#pragma once

#include <cstdint>
#include <optional>

#include "mica/device.h"
#include "mica/dtype.h"

namespace mica {

enum class Layout : uint8_t { Strided, SparseCoo, SparseCsr, SparseCsc, SparseBsr, SparseBsc, Jagged };
enum class MemoryFormat : uint8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

struct TensorOptions {
  std::optional<DType> dtype;
  std::optional<Device> device;
  std::optional<Layout> layout;
  std::optional<bool> pin_memory;
  bool requires_grad = false;

  TensorOptions() = default;
  TensorOptions(DType t) : dtype(t) {}
  TensorOptions(Device d) : device(d) {}
  TensorOptions with_dtype(DType t) const {
    TensorOptions o = *this;
    o.dtype = t;
    return o;
  }
  TensorOptions with_device(Device d) const {
    TensorOptions o = *this;
    o.device = d;
    return o;
  }
  TensorOptions with_requires_grad(bool r = true) const {
    TensorOptions o = *this;
    o.requires_grad = r;
    return o;
  }
  DType dtype_or_default() const { return dtype ? *dtype : default_dtype(); }
  Device device_or_default() const { return device ? *device : default_device(); }
};

}  // namespace mica
