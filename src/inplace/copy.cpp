#include <algorithm>
#include <cstring>

#include "core/allocate.h"
#include "core/geometry.h"
#include "core/lone_calls.h"
#include "core/observe.h"
#include "core/out.h"
#include "core/pointwise.h"
#include "core/uninitialized.h"
#include "mica/backend.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"
#include "shapes/indexing.h"

namespace mica::inplace {

namespace {

constexpr PointwiseOp kCopy{recording::kCopyName, Promotion::None};

void run_loop(const Tensor& self, const Tensor& src) {
  if (is_complex(src.dtype()) && !is_complex(self.dtype()) && self.dtype() != DType::Bool) [[unlikely]]
    MICA_WARN_ONCE("Casting complex values to real discards the imaginary part");
  PointwisePlan plan(kCopy);
  plan.input(src);
  plan.set_result_dtype(self.dtype());
  plan.into(self);
  plan.prepare();
  if (plan.has_work()) plan.run("copy", MICA_KERNEL(plan.loop.device, copy));
}

// Whether several indices reach one element although no stride is zero, as in overlapping windows of a row.
bool windows_overlap(const Tensor& self) {
  if (self.impl()->contiguous || self.numel() < 2 || self.dim() < 2) return false;
  for (int64_t d = 0; d < self.dim(); ++d)
    if (self.strides()[d] == 0 && self.sizes()[d] > 1) return false;
  return has_internal_overlap(self.sizes(), self.strides());
}

// Between devices bytes travel as they are: both ends get the same dtype and a contiguous layout first.
void copy_between_devices(const Tensor& self, const Tensor& src, bool non_blocking) {
  const Tensor from = src.to(self.dtype()).contiguous();
  const Tensor to = self.is_contiguous() ? self : empty(self.sizes(), self.options());
  const Backend& b = backend(self.is_cpu() ? src.device().type() : self.device().type());
  b.copy_bytes(to.data_ptr(), to.device(), from.data_ptr(), from.device(), static_cast<size_t>(to.nbytes()),
               non_blocking);
  if (!to.is_same(self)) run_loop(self, to);
}

}  // namespace

void copy_(const Tensor& self, const Tensor& src, bool non_blocking) {
  if (self.is_same(src)) return;
  Tensor from = src;
  if (!(from.sizes() == self.sizes())) from = from.expand(self.sizes());
  if (windows_overlap(self)) {
    if (self.is_meta()) return;
    // Copies row after row, so that the last value written to an element stays, as in torch.
    const Tensor apart = may_share_memory(self, from) ? from.clone() : from;
    for (int64_t i = 0; i < self.size(0); ++i) inplace::copy_(self.select(0, i), apart.select(0, i), non_blocking);
    return;
  }
  check_no_internal_overlap("copy_", self);
  if (self.numel() == 0 || self.is_meta()) return;
  MICA_CHECK_KIND(!from.is_meta(), NotImplemented, "Cannot copy out of meta tensor; no data!");
  if (thread_modes & mode_bit::kObserve) [[unlikely]]
    inspect::note_copy(self, from);
  if (self.device() != from.device()) return copy_between_devices(self, from, non_blocking);
  if (may_share_memory(self, from)) {
    const bool same = self.data_ptr() == from.data_ptr() && self.strides() == from.strides();
    if (same && self.dtype() == from.dtype()) return;
    if (!same || self.element_size() != from.element_size()) check_apart(self, src);
    inspect::BecauseOf overlap(inspect::CopyReason::Overlap);
    from = from.clone();
  }
  run_loop(self, from);
}

// An expanded tensor with each repeated element once.
static Tensor each_element_once(const Tensor& self) {
  if (self.impl()->contiguous) return self;
  DimVector sizes(self.sizes());
  for (size_t d = 0; d < sizes.size(); ++d)
    if (self.strides()[d] == 0) sizes[d] = std::min<int64_t>(sizes[d], 1);
  return sizes.ref() == self.sizes() ? self : make_view(self, sizes, self.strides(), self.storage_offset());
}

void fill_(const Tensor& self, const Scalar& number) {
  if (self.numel() == 0 || self.is_meta()) return;
  // torch refuses a value here that its older floating-point dtypes cannot hold; the newer ones saturate. A tensor of
  // one element takes its converted element.
  const DType checked = self.dtype() == DType::Complex32 && self.numel() > 1 ? DType::Complex64 : self.dtype();
  const bool saturates = checked == DType::BFloat16 || (is_float8(checked) && checked != DType::Float8_e8m0fnu);
  Scalar value = number;
  if (self.numel() == 1 && (checked == DType::Float16 || checked == DType::BFloat16))
    value = as_one_element(number, checked);
  else if (saturates)
    (void)value.to<double>();  // an imaginary part is refused
  else
    check_number_fits(value, checked);
  const Tensor target = each_element_once(self);
  if (!target.impl()->contiguous && has_internal_overlap(target.sizes(), target.strides())) {
    // Where windows overlap, an element gets the same value twice.
    for (int64_t i = 0; i < target.size(0); ++i) inplace::fill_(target.select(0, i), value);
    return;
  }
  PointwisePlan plan(kCopy);
  plan.input(target);
  plan.in_place(target);
  plan.prepare();
  plan.run("fill", MICA_KERNEL(plan.loop.device, fill), value);
}

void fill_(const Tensor& self, const Tensor& value) {
  MICA_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
             " dimensions.");
  inplace::copy_(self, apart_from(value, self), false);
}

void zero_(const Tensor& self) {
  // Zero is all bits zero in every dtype; a small tensor is cleared on the spot.
  if (self.is_cpu() && self.is_contiguous() && self.nbytes() <= 16384) {
    if (self.numel() > 0) std::memset(self.data_ptr(), 0, static_cast<size_t>(self.nbytes()));
    return;
  }
  inplace::fill_(self, Scalar(0));
}

void resize_(const Tensor& self, IntArrayRef size, std::optional<MemoryFormat> memory_format) {
  MICA_CHECK(!self.requires_grad() || self.is_inference() || inference_mode_enabled(),
             "cannot resize variables that require grad");
  const MemoryFormat format = memory_format.value_or(MemoryFormat::Contiguous);
  MICA_CHECK(format != MemoryFormat::Preserve, "Unsupported memory format Preserve for resize_");
  const int64_t numel = count_elements(size);
  if (!memory_format && self.sizes() == size) {
    // Nothing changes. The entry counts a change all the same, so one is taken back first.
    if (!self.impl()->own_version()) self.storage()->set_version(self.storage()->version() - 1);
    return;
  }
  const DimVector strides = memory_format_strides(size, format);
  const int64_t need = numel ? storage_bytes_needed(size, strides, self.storage_offset(), self.element_size()) : 0;
  const auto before = static_cast<int64_t>(self.storage()->nbytes());
  if (need > before) self.storage()->resize(static_cast<size_t>(need));
  self.impl()->set_geometry(size, strides, self.storage_offset());
  if (need > before) fill_added_if_asked(self, before);
}

}  // namespace mica::inplace
