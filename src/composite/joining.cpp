#include "core/geometry.h"
#include "core/host_data.h"
#include "core/pointwise.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

// Tensors that cat joins along a dimension.
struct Joined {
  std::vector<Tensor> tensors;
  int64_t dim;
};

Tensor join(const Joined& j) { return mica::cat(TensorList(j.tensors), j.dim); }
void join_into(const Tensor& out, const Joined& j) { mica::cat_out(out, TensorList(j.tensors), j.dim); }

Joined along_new(TensorList tensors, int64_t dim) {
  MICA_CHECK(!tensors.empty(), "stack expects a non-empty TensorList");
  const int64_t d = wrap_dim(dim, tensors[0].dim() + 1);
  std::vector<Tensor> wide;
  wide.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    MICA_CHECK(tensors[i].sizes() == tensors[0].sizes(), "stack expects each tensor to be equal size, but got ",
               tensors[0].sizes(), " at entry 0 and ", tensors[i].sizes(), " at entry ", i);
    wide.push_back(tensors[i].unsqueeze(d));
  }
  return {std::move(wide), d};
}

}  // namespace

Tensor stack(TensorList tensors, int64_t dim) { return join(along_new(tensors, dim)); }
void stack_out(const Tensor& out, TensorList tensors, int64_t dim) { join_into(out, along_new(tensors, dim)); }

// A list of more pieces would not fit into memory, and it would take hours to find that out.
static void check_pieces(const char* name, int64_t count) {
  MICA_CHECK(count < int64_t{1} << 32, name, ": a list of ", count, " tensors is more than memory holds");
}

std::vector<Tensor> chunk(const Tensor& self, int64_t chunks, int64_t dim) {
  MICA_CHECK(self.dim() > 0, "chunk expects at least a 1-dimensional tensor");
  MICA_CHECK(chunks > 0, "chunk expects `chunks` to be greater than 0, got: ", chunks);
  const int64_t n = self.size(dim);
  const int64_t size = n == 0 ? 0 : (n - 1) / chunks + 1;
  if (size == 0) {  // that many empty pieces
    check_pieces("chunk", chunks);
    return self.split_with_sizes(DimVector(static_cast<size_t>(chunks), 0), dim);
  }
  return self.split(size, dim);
}

std::vector<Tensor> tensor_split(const Tensor& self, int64_t sections, int64_t dim) {
  MICA_CHECK(self.dim() > 0, "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims");
  MICA_CHECK(sections > 0, "number of sections must be larger than 0, got ", sections);
  check_pieces("tensor_split", sections);
  const int64_t d = wrap_dim(dim, self.dim()), n = self.size(d);
  std::vector<Tensor> pieces;
  int64_t at = 0;
  for (int64_t i = 0; i < sections; ++i) {
    const int64_t size = n / sections + (i < n % sections);
    pieces.push_back(slice(self, d, at, at + size));
    at += size;
  }
  return pieces;
}

std::vector<Tensor> tensor_split_at(const Tensor& self, IntArrayRef indices, int64_t dim) {
  MICA_CHECK(self.dim() > 0, "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims");
  const int64_t d = wrap_dim(dim, self.dim());
  std::vector<Tensor> pieces;
  int64_t at = 0;
  for (int64_t end : indices) {
    pieces.push_back(slice(self, d, at, end));
    at = end;
  }
  pieces.push_back(slice(self, d, at, self.size(d)));
  return pieces;
}

std::vector<Tensor> tensor_split_by(const Tensor& self, const Tensor& tensor_indices_or_sections, int64_t dim) {
  const Tensor& by = tensor_indices_or_sections;
  MICA_CHECK(by.is_cpu(), "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on ", by.device());
  MICA_CHECK(by.dtype() == DType::Int64,
             "tensor_split expected tensor_indices_or_sections to have dtype of long, but got ",
             info(by.dtype()).legacy);
  MICA_CHECK(by.dim() <= 1,
             "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but "
             "got a tensor with ",
             by.dim(), " dims");
  if (by.dim() == 0) return mica::tensor_split(self, by.item<int64_t>(), dim);
  const Tensor flat = by.contiguous();
  return mica::tensor_split(self, IntArrayRef(host_data<int64_t>(flat), static_cast<size_t>(flat.numel())), dim);
}

namespace {

void check_split(const char* op, const Tensor& self, int64_t least, int64_t dim, int64_t sections) {
  MICA_CHECK(self.dim() >= least, "torch.", op, " requires a tensor with at least ", least,
             " dimension, but got a tensor with ", self.dim(), " dimensions!");
  MICA_CHECK(sections > 0 && self.size(dim) % sections == 0, "torch.", op, " attempted to split along dimension ", dim,
             ", but the size of the dimension ", self.size(dim), " is not divisible by the split_size ", sections, "!");
}
void check_split(const char* op, const Tensor& self, int64_t least) {
  MICA_CHECK(self.dim() >= least, "torch.", op, " requires a tensor with at least ", least,
             " dimension, but got a tensor with ", self.dim(), " dimensions!");
}

}  // namespace

std::vector<Tensor> hsplit(const Tensor& self, int64_t sections) {
  check_split("hsplit", self, 1, self.dim() == 1 ? 0 : 1, sections);
  return mica::tensor_split(self, sections, self.dim() == 1 ? 0 : 1);
}
std::vector<Tensor> hsplit(const Tensor& self, IntArrayRef indices) {
  check_split("hsplit", self, 1);
  return mica::tensor_split(self, indices, self.dim() == 1 ? 0 : 1);
}
std::vector<Tensor> vsplit(const Tensor& self, int64_t sections) {
  check_split("vsplit", self, 2, 0, sections);
  return mica::tensor_split(self, sections, 0);
}
std::vector<Tensor> vsplit(const Tensor& self, IntArrayRef indices) {
  check_split("vsplit", self, 2);
  return mica::tensor_split(self, indices, 0);
}
std::vector<Tensor> dsplit(const Tensor& self, int64_t sections) {
  check_split("dsplit", self, 3, 2, sections);
  return mica::tensor_split(self, sections, 2);
}
std::vector<Tensor> dsplit(const Tensor& self, IntArrayRef indices) {
  check_split("dsplit", self, 3);
  return mica::tensor_split(self, indices, 2);
}

namespace {

std::vector<Tensor> at_least(TensorList tensors, Tensor (*lift)(const Tensor&)) {
  std::vector<Tensor> lifted;
  for (const Tensor& t : tensors) lifted.push_back(lift(t));
  return lifted;
}

Joined side_by_side(TensorList tensors) {
  MICA_CHECK(!tensors.empty(), "hstack expects a non-empty TensorList");
  auto lifted = at_least(tensors, mica::atleast_1d);
  const int64_t dim = lifted[0].dim() == 1 ? 0 : 1;
  return {std::move(lifted), dim};
}
Joined below_each_other(TensorList tensors) {
  MICA_CHECK(!tensors.empty(), "vstack expects a non-empty TensorList");
  return {at_least(tensors, mica::atleast_2d), 0};
}
Joined behind_each_other(TensorList tensors) {
  MICA_CHECK(!tensors.empty(), "dstack expects a non-empty TensorList");
  return {at_least(tensors, mica::atleast_3d), 2};
}
std::vector<Tensor> columns_of(TensorList tensors) {
  MICA_CHECK(!tensors.empty(), "column_stack expects a non-empty TensorList");
  std::vector<Tensor> columns;
  for (const Tensor& t : tensors) columns.push_back(t.dim() <= 1 ? t.reshape({t.numel(), 1}) : t);
  return columns;
}

}  // namespace

Tensor hstack(TensorList tensors) { return join(side_by_side(tensors)); }
Tensor vstack(TensorList tensors) { return join(below_each_other(tensors)); }
Tensor dstack(TensorList tensors) { return join(behind_each_other(tensors)); }
Tensor column_stack(TensorList tensors) { return mica::hstack(columns_of(tensors)); }
void hstack_out(const Tensor& out, TensorList tensors) { join_into(out, side_by_side(tensors)); }
void vstack_out(const Tensor& out, TensorList tensors) { join_into(out, below_each_other(tensors)); }
void dstack_out(const Tensor& out, TensorList tensors) { join_into(out, behind_each_other(tensors)); }
void column_stack_out(const Tensor& out, TensorList tensors) { mica::hstack_out(out, columns_of(tensors)); }

std::vector<Tensor> meshgrid(TensorList tensors, std::string_view indexing) {
  MICA_CHECK(!tensors.empty(), "meshgrid expects a non-empty TensorList");
  MICA_CHECK(indexing == "ij" || indexing == "xy",
             "torch.meshgrid: indexing must be one of \"xy\" or \"ij\", but received: ", indexing);
  const bool swapped = indexing == "xy" && tensors.size() >= 2;
  const size_t n = tensors.size();
  DimVector shape;
  for (const Tensor& t : tensors) {
    MICA_CHECK(t.dim() <= 1, "torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: ", t.dim(), "D");
    MICA_CHECK(t.dtype() == tensors[0].dtype(), "torch.meshgrid expects all tensors to have the same dtype");
    MICA_CHECK(t.device() == tensors[0].device(), "torch.meshgrid expects all tensors to have the same device");
    shape.push_back(t.numel());
  }
  if (swapped) std::swap(shape[0], shape[1]);
  std::vector<Tensor> grids;
  for (size_t i = 0; i < n; ++i) {
    DimVector own(n, 1);
    own[swapped && i < 2 ? 1 - i : i] = tensors[i].numel();
    grids.push_back(tensors[i].reshape(own).expand(shape));
  }
  return grids;
}

Tensor block_diag(TensorList tensors) {
  int64_t rows = 0, columns = 0;
  std::vector<Tensor> blocks;
  for (const Tensor& t : tensors) {
    MICA_CHECK(t.dim() <= 2, "torch.block_diag: Input tensors must have 2 or fewer dimensions. Got ", t.dim(),
               " dimensions");
    blocks.push_back(mica::atleast_2d(t));
    rows += blocks.back().size(0), columns += blocks.back().size(1);
  }
  if (blocks.empty()) return mica::empty({1, 0});
  // Pads each block with zeros to a full row of blocks.
  std::vector<Tensor> bands;
  int64_t left = 0;
  const DType dtype = result_type(tensors);
  for (const Tensor& b : blocks) {
    const TensorOptions o = b.options().dtype(dtype);
    const Tensor parts[3] = {mica::zeros({b.size(0), left}, o), b.to(dtype),
                             mica::zeros({b.size(0), columns - left - b.size(1)}, o)};
    bands.push_back(mica::cat(TensorList(parts, 3), 1));
    left += b.size(1);
  }
  return mica::cat(TensorList(bands), 0);
}

std::vector<Tensor> broadcast_tensors(TensorList tensors) {
  DimVector shape;
  for (const Tensor& t : tensors) shape = broadcast_sizes(shape, t.sizes());
  std::vector<Tensor> expanded;
  for (const Tensor& t : tensors) expanded.push_back(t.expand(shape));
  return expanded;
}

Tensor cartesian_prod(TensorList tensors) {
  MICA_CHECK(!tensors.empty(), "meshgrid expects a non-empty TensorList");
  for (const Tensor& t : tensors) MICA_CHECK(t.dim() == 1, "Expect a 1D vector, but got shape ", t.sizes());
  if (tensors.size() == 1) return tensors[0];
  std::vector<Tensor> columns;
  for (const Tensor& grid : mica::meshgrid(tensors, "ij")) columns.push_back(grid.flatten());
  return mica::stack(columns, 1);
}

}  // namespace mica::composite
