// How a factory makes its tensor: dtype, device, layout, requires_grad; and the memory formats.
#pragma once

#include <cstdint>
#include <optional>

#include "mica/device.h"
#include "mica/dtype.h"

namespace mica {

enum class Layout : uint8_t { Strided, SparseCoo, SparseCsr, SparseCsc, SparseBsr, SparseBsc, Jagged };
enum class MemoryFormat : uint8_t { Contiguous, Preserve, ChannelsLast, ChannelsLast3d };

// Options are values: each setter returns a changed copy, so that they are written in a row, as in torch:
// TensorOptions().dtype(kFloat64).requires_grad(true). What was not set has torch's default, and *_opt() tells whether
// it was set.
class TensorOptions {
 public:
  TensorOptions() = default;
  TensorOptions(DType t) : dtype_(t) {}
  TensorOptions(Device d) : device_(d) {}
  TensorOptions(Layout l) : layout_(l) {}

  TensorOptions dtype(std::optional<DType> t) const { return with(&TensorOptions::dtype_, t); }
  TensorOptions device(std::optional<Device> d) const { return with(&TensorOptions::device_, d); }
  TensorOptions layout(std::optional<Layout> l) const { return with(&TensorOptions::layout_, l); }
  TensorOptions pinned_memory(std::optional<bool> p) const { return with(&TensorOptions::pinned_memory_, p); }
  TensorOptions requires_grad(bool r) const { return with(&TensorOptions::requires_grad_, r); }

  DType dtype() const { return dtype_ ? *dtype_ : default_dtype(); }
  Device device() const { return device_ ? *device_ : default_device(); }
  Layout layout() const { return layout_.value_or(Layout::Strided); }
  bool pinned_memory() const { return pinned_memory_.value_or(false); }
  bool requires_grad() const { return requires_grad_; }

  const std::optional<DType>& dtype_opt() const { return dtype_; }
  const std::optional<Device>& device_opt() const { return device_; }
  const std::optional<Layout>& layout_opt() const { return layout_; }
  bool has_dtype() const { return dtype_.has_value(); }
  bool has_device() const { return device_.has_value(); }
  bool has_layout() const { return layout_.has_value(); }

 private:
  template <class Field>
  TensorOptions with(Field TensorOptions::*field, const Field& value) const {
    TensorOptions changed = *this;
    changed.*field = value;
    return changed;
  }

  std::optional<DType> dtype_;
  std::optional<Device> device_;
  std::optional<Layout> layout_;
  std::optional<bool> pinned_memory_;
  bool requires_grad_ = false;
};

}  // namespace mica
