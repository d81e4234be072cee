// Copies of what view operations show.
#include "mica/autograd.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

Tensor copied(const Tensor& view) { return view.clone(MemoryFormat::Contiguous); }

std::vector<Tensor> copied(const std::vector<Tensor>& views) {
  std::vector<Tensor> result;
  result.reserve(views.size());
  for (const Tensor& view : views) result.push_back(copied(view));
  return result;
}

}  // namespace

Tensor alias_copy(const Tensor& self) { return copied(self); }
Tensor detach_copy(const Tensor& self) { return copied(self.detach()); }
Tensor as_strided_copy(const Tensor& self, IntArrayRef size, IntArrayRef stride,
                       std::optional<int64_t> storage_offset) {
  return copied(self.as_strided(size, stride, storage_offset));
}
Tensor diagonal_copy(const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  return copied(self.diagonal(offset, dim1, dim2));
}
Tensor expand_copy(const Tensor& self, IntArrayRef size, bool) { return copied(self.expand(size)); }
Tensor permute_copy(const Tensor& self, IntArrayRef dims) { return copied(self.permute(dims)); }
Tensor select_copy(const Tensor& self, int64_t dim, int64_t index) { return copied(self.select(dim, index)); }
Tensor slice_copy(const Tensor& self, int64_t dim, std::optional<int64_t> start, std::optional<int64_t> end,
                  int64_t step) {
  return copied(mica::slice(self, dim, start, end, step));
}
Tensor squeeze_copy(const Tensor& self) { return copied(self.squeeze()); }
Tensor squeeze_copy(const Tensor& self, int64_t dim) { return copied(self.squeeze(dim)); }
Tensor squeeze_copy(const Tensor& self, IntArrayRef dim) { return copied(self.squeeze(dim)); }
Tensor t_copy(const Tensor& self) { return copied(self.t()); }
Tensor transpose_copy(const Tensor& self, int64_t dim0, int64_t dim1) { return copied(self.transpose(dim0, dim1)); }
Tensor unfold_copy(const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return copied(self.unfold(dimension, size, step));
}
Tensor unsqueeze_copy(const Tensor& self, int64_t dim) { return copied(self.unsqueeze(dim)); }
Tensor view_copy(const Tensor& self, IntArrayRef size) { return copied(self.view(size)); }
Tensor view_copy(const Tensor& self, DType dtype) { return copied(self.view(dtype)); }
Tensor view_as_real_copy(const Tensor& self) { return copied(mica::view_as_real(self)); }
Tensor view_as_complex_copy(const Tensor& self) { return copied(mica::view_as_complex(self)); }
std::vector<Tensor> split_copy(const Tensor& self, int64_t split_size, int64_t dim) {
  return copied(self.split(split_size, dim));
}
std::vector<Tensor> split_with_sizes_copy(const Tensor& self, IntArrayRef split_sizes, int64_t dim) {
  return copied(self.split_with_sizes(split_sizes, dim));
}
std::vector<Tensor> unbind_copy(const Tensor& self, int64_t dim) { return copied(self.unbind(dim)); }

// Pieces that may be changed in place one by one.
std::vector<Tensor> unsafe_chunk(const Tensor& self, int64_t chunks, int64_t dim) {
  return copied(self.chunk(chunks, dim));
}
std::vector<Tensor> unsafe_split(const Tensor& self, int64_t split_size, int64_t dim) {
  return copied(self.split(split_size, dim));
}
std::vector<Tensor> unsafe_split_with_sizes(const Tensor& self, IntArrayRef split_sizes, int64_t dim) {
  return copied(self.split_with_sizes(split_sizes, dim));
}

}  // namespace mica::composite
