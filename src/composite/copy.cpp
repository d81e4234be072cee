// Conversions and copies.
#include "autograd/metadata.h"
#include "core/allocate.h"
#include "core/geometry.h"
#include "core/observe.h"
#include "core/recorded_rows.h"
#include "mica/autograd.h"
#include "mica/core/class_alias.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica {

namespace {

// Within a compiled function the copy may be put off: its memory then comes with what it holds.
Tensor empty_in_format(const Tensor& self, DType dtype, Device device, MemoryFormat format) {
  const bool promised = recording::copy_may_wait(self, device);
  if (format == MemoryFormat::Preserve) return empty_dense_like(self, dtype, device, promised);
  return empty_with_strides(self.sizes(), memory_format_strides(self.sizes(), format), dtype, device, promised);
}

Device resolved(Device wanted, Device current) {
  // "cuda" names the current device; a tensor that is on any device of that type stays.
  return wanted.index() < 0 && wanted.type() == current.type() ? current : wanted;
}

}  // namespace

namespace shapes {

void clone(Out& out, const Tensor& self, std::optional<MemoryFormat> memory_format) {
  Tensor copy = empty_in_format(self, self.dtype(), self.device(), memory_format.value_or(MemoryFormat::Preserve));
  inplace::copy_(copy, self, false);  // this is not an operation on the copy, so its version stays 0
  out.take(std::move(copy));
}

}  // namespace shapes

namespace composite {

Tensor contiguous(const Tensor& self, MemoryFormat memory_format) {
  MICA_CHECK(memory_format != MemoryFormat::Preserve,
             "preserve memory format is unsupported by the contiguous operator");
  return self.is_contiguous(memory_format) ? self : self.clone(memory_format);
}

Tensor to_copy(const Tensor& self, const TensorOptions& options, bool non_blocking,
               std::optional<MemoryFormat> memory_format) {
  const DType dtype = options.dtype_opt().value_or(self.dtype());
  const Device device = options.device_opt().value_or(self.device());
  Tensor copy = empty_in_format(self, dtype, device, memory_format.value_or(MemoryFormat::Preserve));
  inplace::copy_(copy, self, non_blocking);
  return copy;
}

Tensor to_options(const Tensor& self, const TensorOptions& options, bool non_blocking, bool copy,
                  std::optional<MemoryFormat> memory_format) {
  TensorOptions wanted;
  wanted = wanted.dtype(options.dtype_opt().value_or(self.dtype()));
  wanted = wanted.device(options.has_device() ? resolved(options.device(), self.device()) : self.device());
  // As in torch, the strides decide the format. A tensor of one channel, or of one pixel, has the same layout in both.
  const bool same_format =
      !memory_format || *memory_format == MemoryFormat::Preserve || self.suggest_memory_format() == *memory_format;
  if (!copy && wanted.dtype() == self.dtype() && wanted.device() == self.device() && same_format) return self;
  return mica::_to_copy(self, wanted, non_blocking, memory_format);
}

Tensor to_dtype(const Tensor& self, DType dtype, bool non_blocking, bool copy,
                std::optional<MemoryFormat> memory_format) {
  return composite::to_options(self, TensorOptions(dtype), non_blocking, copy, memory_format);
}

Tensor to_device(const Tensor& self, Device device, DType dtype, bool non_blocking, bool copy,
                 std::optional<MemoryFormat> memory_format) {
  return composite::to_options(self, TensorOptions(dtype).device(device), non_blocking, copy, memory_format);
}

Tensor cpu(const Tensor& self) { return composite::to_options(self, TensorOptions(kCPU), false, false, std::nullopt); }

Tensor reshape(const Tensor& self, IntArrayRef shape) {
  if (self.impl()->contiguous) return self.view(shape);
  const DimVector sizes = infer_size(shape, self.numel());
  if (view_strides(self.sizes(), self.strides(), sizes)) return self.view(sizes);
  return mica::_unsafe_view(self.clone(MemoryFormat::Contiguous), sizes);
}

Tensor reshape_copy(const Tensor& self, IntArrayRef shape, std::optional<bool> copy) {
  if (!copy) return mica::reshape(self, shape);
  const bool sparse = self.impl()->bits & tensor_bit::kSparse;
  if (*copy) {
    const inspect::BecauseOf asked(inspect::CopyReason::Asked);
    if (sparse) return mica::reshape(self.clone(), shape);
    const DimVector sizes = infer_size(shape, self.numel());
    return mica::_unsafe_view(self.clone(MemoryFormat::Contiguous), sizes);
  }
  MICA_CHECK_KIND(!sparse, Value,
                  "Unable to avoid creating a copy while reshaping. A sparse tensor keeps an index of every value, and "
                  "another shape needs other indices");
  const DimVector sizes = infer_size(shape, self.numel());
  MICA_CHECK_KIND(view_strides(self.sizes(), self.strides(), sizes), Value,
                  "Unable to avoid creating a copy while reshaping. ",
                  view_obstacle(self.sizes(), self.strides(), sizes),
                  ". Leave copy=False away to let it copy, or call contiguous() where the tensor is made");
  return self.view(sizes);
}

Tensor _unsafe_view(const Tensor& self, IntArrayRef size) { return alias_of(self.view(size)); }

// Every operation resolves its inputs through these two functions, so each uses only operations on tensors with one bit
// less.
Tensor resolve_conj(const Tensor& self) { return self.is_conj() ? mica::conj_physical(mica::_conj(self)) : self; }
Tensor resolve_neg(const Tensor& self) { return self.is_neg() ? mica::neg(mica::_neg_view(self)) : self; }
Tensor conj(const Tensor& self) { return self.is_complex() ? mica::_conj(self) : self; }

}  // namespace composite

// Autograd does not see the result as a view: it would require grad as soon as its base does.
Tensor detach(const Tensor& self) {
  // Names and sparse parts stay with the tensor.
  if (self.impl()->bits & tensor_bit::kSpecialView) [[unlikely]]
    return bare_alias(self);
  if (Tensor alias = dispatch::class_alias(self); alias.defined()) [[unlikely]]
    return alias;
  return alias_of(self);
}

}  // namespace mica
