// Copies of what view operations show.
#include "core/out.h"
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

// Copies what a view shows into `out`, which may share memory with it.
void copy_into(const char* op, const Tensor& out, const Tensor& view) {
  write_out(op, out, out.storage() == view.storage() ? copied(view) : view);
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

void alias_copy_out(const Tensor& out, const Tensor& self) { copy_into("alias_copy", out, self); }
void detach_copy_out(const Tensor& out, const Tensor& self) { copy_into("detach_copy", out, self.detach()); }
void as_strided_copy_out(const Tensor& out, const Tensor& self, IntArrayRef size, IntArrayRef stride,
                         std::optional<int64_t> storage_offset) {
  copy_into("as_strided_copy", out, self.as_strided(size, stride, storage_offset));
}
void diagonal_copy_out(const Tensor& out, const Tensor& self, int64_t offset, int64_t dim1, int64_t dim2) {
  copy_into("diagonal_copy", out, self.diagonal(offset, dim1, dim2));
}
void expand_copy_out(const Tensor& out, const Tensor& self, IntArrayRef size, bool) {
  copy_into("expand_copy", out, self.expand(size));
}
void permute_copy_out(const Tensor& out, const Tensor& self, IntArrayRef dims) {
  copy_into("permute_copy", out, self.permute(dims));
}
void select_copy_out(const Tensor& out, const Tensor& self, int64_t dim, int64_t index) {
  copy_into("select_copy", out, self.select(dim, index));
}
void slice_copy_out(const Tensor& out, const Tensor& self, int64_t dim, std::optional<int64_t> start,
                    std::optional<int64_t> end, int64_t step) {
  copy_into("slice_copy", out, mica::slice(self, dim, start, end, step));
}
void squeeze_copy_out(const Tensor& out, const Tensor& self) { copy_into("squeeze_copy", out, self.squeeze()); }
void squeeze_copy_out(const Tensor& out, const Tensor& self, int64_t dim) {
  copy_into("squeeze_copy", out, self.squeeze(dim));
}
void squeeze_copy_out(const Tensor& out, const Tensor& self, IntArrayRef dim) {
  copy_into("squeeze_copy", out, self.squeeze(dim));
}
void t_copy_out(const Tensor& out, const Tensor& self) { copy_into("t_copy", out, self.t()); }
void transpose_copy_out(const Tensor& out, const Tensor& self, int64_t dim0, int64_t dim1) {
  copy_into("transpose_copy", out, self.transpose(dim0, dim1));
}
void unfold_copy_out(const Tensor& out, const Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  copy_into("unfold_copy", out, self.unfold(dimension, size, step));
}
void unsqueeze_copy_out(const Tensor& out, const Tensor& self, int64_t dim) {
  copy_into("unsqueeze_copy", out, self.unsqueeze(dim));
}
void view_copy_out(const Tensor& out, const Tensor& self, IntArrayRef size) {
  copy_into("view_copy", out, self.view(size));
}
void view_copy_out(const Tensor& out, const Tensor& self, DType dtype) {
  copy_into("view_copy", out, self.view(dtype));
}
void view_as_real_copy_out(const Tensor& out, const Tensor& self) {
  copy_into("view_as_real_copy", out, mica::view_as_real(self));
}
void view_as_complex_copy_out(const Tensor& out, const Tensor& self) {
  copy_into("view_as_complex_copy", out, mica::view_as_complex(self));
}

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
