#include "core/geometry.h"
#include "core/pointwise.h"
#include "core/recorded_rows.h"
#include "mica/backend.h"
#include "mica/core/inline_list.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::shapes {

namespace {

// torch lets a one-dimensional empty tensor stand among tensors of any shape.
bool is_skipped(const Tensor& t) { return t.dim() == 1 && t.sizes()[0] == 0; }

// Channels come last in the result if they do in all of its pieces.
MemoryFormat common_format(TensorList tensors) {
  std::optional<MemoryFormat> common;
  for (const Tensor& t : tensors) {
    if (is_skipped(t)) continue;
    const MemoryFormat format = t.suggest_memory_format();
    if (format == MemoryFormat::Contiguous || format != common.value_or(format)) return MemoryFormat::Contiguous;
    common = format;
  }
  return common.value_or(MemoryFormat::Contiguous);
}

}  // namespace

void cat(Out& out, TensorList tensors, int64_t dim) {
  MICA_CHECK_KIND(!tensors.empty(), Value, "torch.cat(): expected a non-empty list of Tensors");
  for (size_t i = 0; i < tensors.size(); ++i)
    MICA_CHECK(tensors[i].dim() > 0, "zero-dimensional tensor (at position ", i, ") cannot be concatenated");
  const Tensor* lead = nullptr;
  for (const Tensor& t : tensors)
    if (!is_skipped(t)) {
      lead = &t;
      break;
    }
  const DType dtype = result_type(tensors);
  if (const std::optional<DType> given = out.given_dtype())
    MICA_CHECK_KIND(can_cast(dtype, *given), Type, "torch.cat(): input types can't be cast to the desired output type ",
                    info(*given).legacy);
  const Device device = (lead ? *lead : tensors[0]).device();
  if (!lead) {
    out.set({0}, dtype, device);
    return;
  }
  const int64_t d = wrap_dim(dim, lead->dim());
  DimVector sizes(lead->sizes());
  sizes[d] = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor& t = tensors[i];
    if (is_skipped(t)) continue;
    MICA_CHECK(t.device() == device, "Expected all tensors to be on the same device, but found at least two devices, ",
               device, " and ", t.device(), "! (in cat)");
    MICA_CHECK(t.dim() == lead->dim(), "Tensors must have same number of dimensions: got ", lead->dim(), " and ",
               t.dim());
    for (int64_t k = 0; k < t.dim(); ++k)
      MICA_CHECK(k == d || t.sizes()[k] == lead->sizes()[k], "Sizes of tensors must match except in dimension ", d,
                 ". Expected size ", lead->sizes()[k], " but got size ", t.sizes()[k], " for tensor number ", i,
                 " in the list.");
    sizes[d] += t.sizes()[d];
  }
  DimVector strides;
  if (lead->dim() >= 4)
    if (const MemoryFormat format = common_format(tensors); format != MemoryFormat::Contiguous)
      strides = memory_format_strides(sizes, format);
  // Within a compiled function, each piece is computed directly in its place.
  bool piecewise = false;
  if (recording::puts_pieces_off(device) && (device.is_cpu() || is_floating(dtype)))
    for (const Tensor& t : tensors) piecewise = piecewise || recording::copy_may_wait(t, device);
  const recording::Promises promised(piecewise);
  const Tensor& result = out.set(sizes, dtype, device, strides);
  if (!out.needs_kernel()) return;
  // One kernel moves all pieces if they are contiguous; on some devices it also takes elements from any place, as for
  // stack(dim=-1). Other pieces, and conversions, are copied one at a time.
  bool elements =
      capabilities_of(device).joins_strided && d + 1 == lead->dim() && tensors.size() * element_size(dtype) <= 4096;
  for (const Tensor& t : tensors) elements = elements && !is_skipped(t) && t.sizes()[d] == 1;
  bool alike = result.is_contiguous() && kernel_table(device).cat && !piecewise;
  for (const Tensor& t : tensors)
    alike = alike && (is_skipped(t) || (t.dtype() == dtype && (elements || t.is_contiguous())));
  if (alike) {
    InlineList<const TensorView*, 8> pieces;
    pieces.reserve(tensors.size());
    for (const Tensor& t : tensors)
      if (t.numel() > 0) pieces.push_back(&t.view_of());
    MICA_KERNEL(device, cat)(result.view_of(), TensorViewList(pieces.begin(), pieces.size()), d);
    return;
  }
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (is_skipped(t)) continue;
    const int64_t n = t.sizes()[d];
    const Tensor part = slice(result, d, at, at + n);
    piecewise ? inplace::copy_(part, t, false) : void(part.copy_(t));
    at += n;
  }
}

}  // namespace mica::shapes
