#include "mica/tensor.h"

#include "core/absent_memory.h"
#include "core/channels_last.h"
#include "core/geometry.h"
#include "core/scalar_bytes.h"
#include "mica/ops.h"

namespace mica {

int64_t Tensor::size(int64_t d) const { return impl_->view.sizes[wrap_dim(d, dim(), false)]; }
int64_t Tensor::stride(int64_t d) const { return impl_->view.strides[wrap_dim(d, dim(), false)]; }

bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::Contiguous) return impl_->contiguous;
  if (format == MemoryFormat::Preserve) return true;
  return is_channels_last(sizes(), strides(), format);
}

bool Tensor::is_non_overlapping_and_dense() const {
  return impl_->contiguous || mica::is_non_overlapping_and_dense(sizes(), strides());
}

bool has_channels_last_strides(IntArrayRef sizes, IntArrayRef strides) {
  const size_t n = sizes.size();
  if ((n != 4 && n != 5) || strides[1] == 0) return false;
  int64_t least = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t d = i == 0 ? 1 : i == n - 1 ? 0 : n - i;
    if (sizes[d] == 0 || strides[d] < least) return false;
    if (d == 0 && least == strides[1]) return false;  // images of one channel and one pixel: either layout fits
    least = strides[d] * sizes[d];
  }
  return true;
}

MemoryFormat Tensor::suggest_memory_format() const {
  if (!has_channels_last_strides(sizes(), strides())) return MemoryFormat::Contiguous;
  return dim() == 4 ? MemoryFormat::ChannelsLast : MemoryFormat::ChannelsLast3d;
}

Scalar Tensor::item() const {
  MICA_CHECK(numel() == 1, "a Tensor with ", numel(), " elements cannot be converted to Scalar");
  MICA_CHECK(!is_meta(), "Tensor.item() cannot be called on meta tensors: they have no data");
  if (is_absent(*this)) [[unlikely]]
    return absent_item(*this);
  if (is_quantized()) return dequantize().item();
  MICA_CHECK(!(impl_->bits & tensor_bit::kForeignLayout), "item() of a sparse tensor: use to_dense() first");
  if (!is_cpu()) return cpu().item();
  Scalar value = read_scalar(dtype(), data_ptr());
  if (is_conj()) value = value.conj();
  if (is_neg()) value = -value;
  return value;
}

void Tensor::operator=(const Tensor& value) && { copy_(value); }
void Tensor::operator=(const Scalar& value) && { fill_(value); }
Tensor Tensor::operator-() const { return neg(); }
Tensor& Tensor::operator+=(const Tensor& o) { return add_(o), *this; }
Tensor& Tensor::operator+=(const Scalar& o) { return add_(o), *this; }
Tensor& Tensor::operator-=(const Tensor& o) { return sub_(o), *this; }
Tensor& Tensor::operator-=(const Scalar& o) { return sub_(o), *this; }
Tensor& Tensor::operator*=(const Tensor& o) { return mul_(o), *this; }
Tensor& Tensor::operator*=(const Scalar& o) { return mul_(o), *this; }
Tensor& Tensor::operator/=(const Tensor& o) { return div_(o), *this; }
Tensor& Tensor::operator/=(const Scalar& o) { return div_(o), *this; }

Tensor Tensor::operator[](int64_t i) const {
  MICA_CHECK_KIND(dim() > 0, Index, "invalid index of a 0-dim tensor. Use `tensor.item()` to convert it to a number");
  return select(0, i);
}

void append_to(std::string& s, Layout layout) {
  static constexpr const char* kNames[] = {"strided",    "sparse_coo", "sparse_csr", "sparse_csc",
                                           "sparse_bsr", "sparse_bsc", "jagged"};
  s += "torch.";
  s += kNames[static_cast<int>(layout)];
}

void append_to(std::string& s, const Tensor& t) {
  if (!t.defined()) {
    s += "undefined";
    return;
  }
  append_to(s, t.dtype());
  append_to(s, t.sizes());
}

}  // namespace mica
