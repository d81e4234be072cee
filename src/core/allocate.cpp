#include "core/allocate.h"

#include <limits>

#include "core/geometry.h"
#include "core/rare_facts.h"
#include "mica/autograd.h"
#include "mica/backend.h"
#include "mica/core/recording.h"

namespace mica {

namespace {

Tensor finish(TensorImpl* impl) {
  if (thread_modes & mode_bit::kInference) [[unlikely]]
    impl->bits |= tensor_bit::kInference;
  return Tensor::adopt(impl);
}

}  // namespace

namespace {

// Fewer bytes are allocated at once: that costs less than a promise. In a graph that is captured, what a kernel need
// not store counts for more.
size_t least_promised(Device device) { return recording::least_fused <= 1 && !device.is_cpu() ? 1 : 1024; }

Storage allocate(size_t nbytes, Device device, bool promised) {
  return promised && nbytes >= least_promised(device) ? StorageImpl::promise(nbytes, device)
                                                      : StorageImpl::allocate(nbytes, device);
}

}  // namespace

Tensor empty_contiguous(IntArrayRef sizes, DType dtype, Device device, bool promised) {
  // Zeros are left out of the product: a shape may overflow its strides and have no elements at all.
  int64_t nbytes = element_size(dtype);
  bool overflow = false, empty = false;
  for (const int64_t n : sizes) {
    empty |= n == 0;
    overflow |= n < 0 || __builtin_mul_overflow(nbytes, n | (n == 0), &nbytes);
  }
  if (overflow) [[unlikely]] {
    count_elements(sizes);
    MICA_CHECK(empty || device.is_meta(), "Storage size calculation overflowed with sizes=", sizes);
    return empty_with_strides(sizes, contiguous_strides(sizes), dtype, device);
  }
  if (!device.is_cpu()) [[unlikely]]
    device = with_index(device);
  Storage storage = allocate(empty ? 0 : static_cast<size_t>(nbytes), device, promised);
  return finish(TensorImpl::create_contiguous(std::move(storage), dtype, device, sizes, 0));
}

Tensor empty_with_strides(IntArrayRef sizes, IntArrayRef strides, DType dtype, Device device, bool promised) {
  count_elements(sizes);
  const int64_t width = element_size(dtype);
  int64_t nbytes;
  if (device.is_meta()) {  // there are no bytes; sizes that a graph leaves open stand there as large numbers
    nbytes = storage_bytes_needed(sizes, strides, 0, 1);
    if (__builtin_mul_overflow(nbytes, width, &nbytes)) nbytes = std::numeric_limits<int64_t>::max();
  } else {
    nbytes = storage_bytes_needed(sizes, strides, 0, width);
  }
  if (!device.is_cpu()) device = with_index(device);
  Storage storage = allocate(static_cast<size_t>(nbytes), device, promised);
  return finish(TensorImpl::create(std::move(storage), dtype, device, sizes, strides, 0));
}

Tensor empty_dense_like(const Tensor& t, DType dtype, Device device, bool promised) {
  if (t.numel() == 0 && t.impl()->contiguous) return empty_contiguous(t.sizes(), dtype, device, promised);
  // The strides themselves are kept, of dimensions of size one too, where they can be any.
  if (t.impl()->contiguous || is_non_overlapping_and_dense(t.sizes(), t.strides()))
    return empty_with_strides(t.sizes(), t.strides(), dtype, device, promised);
  return empty_with_strides(t.sizes(), dense_strides_like(t.sizes(), t.strides()), dtype, device, promised);
}

namespace {

// A view shares the version count of its base, and its quantizer unless it has other elements. The operation that makes
// the view sets everything else.
[[gnu::cold]] void pass_on_rare_facts(TensorImpl* view, const TensorImpl* from, bool quantized) {
  view->set_own_version(from->own_version());
  const auto& quantizer = from->rare->quantizer;
  if (!quantizer || !quantized) return;
  view->rare_facts().quantizer = quantizer->axis < 0 ? quantizer : quantizer_of_view(*view, *from, quantizer);
  view->bits |= tensor_bit::kQuantized;
}

// Several elements of a packed tensor share a byte, so strides and offsets do not say where they are.
[[gnu::cold]] void check_packed_view(const TensorImpl* view, const TensorImpl* from) {
  const TensorView &a = view->view, &b = from->view;
  bool same = a.dtype == b.dtype && a.ndim == b.ndim && view->offset == from->offset;
  for (int d = 0; same && d < a.ndim; ++d) same = a.sizes[d] == b.sizes[d] && a.strides[d] == b.strides[d];
  MICA_CHECK_KIND(same, NotImplemented, "views of a tensor of ", b.dtype, " are not there: dequantize() it first");
}

Tensor finish_view(TensorImpl* view, const TensorImpl* from, bool quantized = true) {
  Tensor result = Tensor::adopt(view);
  if (is_packed_quantized(from->view.dtype)) [[unlikely]]
    check_packed_view(view, from);
  view->bits = from->bits & (tensor_bit::kLazyBits | tensor_bit::kInference);
  if (from->rare) [[unlikely]]
    pass_on_rare_facts(view, from, quantized);
  return result;
}

}  // namespace

Tensor make_view(const Tensor& self, IntArrayRef sizes, IntArrayRef strides, int64_t offset) {
  const TensorImpl* from = self.impl();
  return finish_view(TensorImpl::create(from->storage, from->view.dtype, from->view.device, sizes, strides, offset),
                     from);
}

Tensor make_contiguous_view(const Tensor& self, IntArrayRef sizes, int64_t offset) {
  const TensorImpl* from = self.impl();
  return finish_view(TensorImpl::create_contiguous(from->storage, from->view.dtype, from->view.device, sizes, offset),
                     from);
}

Tensor make_view_as(const Tensor& self, DType dtype, IntArrayRef sizes, IntArrayRef strides, int64_t offset) {
  const TensorImpl* from = self.impl();
  return finish_view(TensorImpl::create(from->storage, dtype, from->view.device, sizes, strides, offset), from, false);
}

Tensor alias_of(const Tensor& self) { return make_view(self, self.sizes(), self.strides(), self.storage_offset()); }

Tensor tensor_over(void* first, DType dtype, Device device, IntArrayRef sizes, IntArrayRef strides,
                   StorageImpl::Deleter deleter, void* context) {
  const Extent reach = extent(sizes, strides);
  const int64_t width = element_size(dtype);
  Storage storage = StorageImpl::wrap(static_cast<char*>(first) + reach.low * width,
                                      static_cast<size_t>((reach.high - reach.low) * width), device, deleter, context);
  return Tensor::adopt(TensorImpl::create(std::move(storage), dtype, device, sizes, strides, -reach.low));
}

}  // namespace mica
