// Pointwise operations on sparse tensors, in terms of their values: derivatives follow from those of the parts.
#include "core/entry.h"
#include "core/geometry.h"
#include "core/pointwise.h"
#include "layouts/sparse/parts.h"
#include "mica/generated/layouts/sparse.h"

namespace mica::layouts::sparse {

// ---- functions that are zero at zero

namespace {

// The tensor with every index once, which functions need that are not linear.
Tensor summed(const Tensor& t) { return is_coo(t) ? t.coalesce() : t; }

}  // namespace

#define MICA_SPARSE_UNARY(name)                            \
  Tensor name(const Tensor& self) {                        \
    const Tensor once = summed(self);                      \
    return with_values(once, mica::name(values_of(once))); \
  }
MICA_SPARSE_UNARY(abs)
MICA_SPARSE_UNARY(angle)
MICA_SPARSE_UNARY(sqrt)
MICA_SPARSE_UNARY(square)
MICA_SPARSE_UNARY(sin)
MICA_SPARSE_UNARY(sinh)
MICA_SPARSE_UNARY(asin)
MICA_SPARSE_UNARY(asinh)
MICA_SPARSE_UNARY(tan)
MICA_SPARSE_UNARY(atan)
MICA_SPARSE_UNARY(atanh)
MICA_SPARSE_UNARY(tanh)
MICA_SPARSE_UNARY(erf)
MICA_SPARSE_UNARY(erfinv)
MICA_SPARSE_UNARY(expm1)
MICA_SPARSE_UNARY(log1p)
MICA_SPARSE_UNARY(sign)
MICA_SPARSE_UNARY(sgn)
MICA_SPARSE_UNARY(floor)
MICA_SPARSE_UNARY(ceil)
MICA_SPARSE_UNARY(trunc)
MICA_SPARSE_UNARY(frac)
MICA_SPARSE_UNARY(round)
MICA_SPARSE_UNARY(relu)
MICA_SPARSE_UNARY(deg2rad)
MICA_SPARSE_UNARY(rad2deg)
MICA_SPARSE_UNARY(isnan)
MICA_SPARSE_UNARY(isinf)
MICA_SPARSE_UNARY(isposinf)
MICA_SPARSE_UNARY(isneginf)
MICA_SPARSE_UNARY(signbit)
#undef MICA_SPARSE_UNARY

// Linear functions leave indices that repeat as they are.
#define MICA_SPARSE_LINEAR(name) \
  Tensor name(const Tensor& self) { return with_values(self, mica::name(values_of(self))); }
MICA_SPARSE_LINEAR(neg)
MICA_SPARSE_LINEAR(positive)
MICA_SPARSE_LINEAR(conj_physical)
#undef MICA_SPARSE_LINEAR

Tensor nan_to_num(const Tensor& self, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  const Tensor once = summed(self);
  return with_values(once, mica::nan_to_num(values_of(once), nan, posinf, neginf));
}

namespace {

Tensor in_layout(const Tensor& t, Layout layout) { return t.layout() == layout ? t : mica::_convert_layout(t, layout); }

void check_same_size(const char* op, const Tensor& a, const Tensor& b) {
  MICA_CHECK(a.sizes() == b.sizes(), op, ": expected sizes of 'self' and 'other' to match, but ", a.sizes(),
             " != ", b.sizes());
}

// Where the elements of two lists of indices lie in their merger. It is in order where both lists are; equal indices
// that meet share a place. torch merges lists in this way on the CPU, even where they are not in order.
struct Merger {
  Tensor indices, first, second;
};
Merger merged(const Tensor& p, const Tensor& q) {
  const int64_t dims = p.size(0), count_p = p.size(1), count_q = q.size(1);
  const TensorOptions integers(DType::Int64);
  Merger m{empty({dims, count_p + count_q}, integers), empty({count_p}, integers), empty({count_q}, integers)};
  const auto *a = static_cast<const int64_t*>(p.data_ptr()), *b = static_cast<const int64_t*>(q.data_ptr());
  auto* out = static_cast<int64_t*>(m.indices.data_ptr());
  auto *at_p = static_cast<int64_t*>(m.first.data_ptr()), *at_q = static_cast<int64_t*>(m.second.data_ptr());
  int64_t i = 0, j = 0, made = 0;
  for (; i < count_p || j < count_q; ++made) {
    int order = i == count_p ? 1 : j == count_q ? -1 : 0;
    for (int64_t d = 0; order == 0 && i < count_p && j < count_q && d < dims; ++d) {
      const int64_t x = a[d * count_p + i], y = b[d * count_q + j];
      order = x < y ? -1 : x > y ? 1 : 0;
    }
    const bool take_first = order <= 0;
    for (int64_t d = 0; d < dims; ++d)
      out[d * (count_p + count_q) + made] = take_first ? a[d * count_p + i] : b[d * count_q + j];
    if (order <= 0) at_p[i++] = made;
    if (order >= 0) at_q[j++] = made;
  }
  m.indices = m.indices.narrow(1, 0, made).contiguous();
  return m;
}

Tensor added_coo(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  check_same_size("add", self, other);
  const SparseParts &p = sparse_parts(self), &q = sparse_parts(other);
  const DType common = promote_types(self.dtype(), other.dtype());
  // A tensor without elements fits any division into sparse and dense dimensions, and adding it changes nothing.
  if (p.indices.size(1) == 0) return mica::mul(other, alpha).to(common);
  if (q.indices.size(1) == 0) return self.clone().to(common);
  MICA_CHECK(p.dense_dim == q.dense_dim, "add: expected 'self' and 'other' to have same density, but 'self' has ",
             p.sparse_dim, " sparse dimensions while 'other' has ", q.sparse_dim, " sparse dimensions");
  const DType dtype = common;
  Tensor values = values_of(other).to(dtype);
  if (!(alpha == Scalar(1))) values = values.mul(alpha);
  const int64_t places = product_of(self.sizes().slice(0, static_cast<size_t>(p.sparse_dim)));
  if (self.is_cpu() && !(p.coalesced && q.coalesced) && values_of(self).is_contiguous() &&
      values_of(other).is_contiguous()) {
    const Merger m = merged(p.indices.contiguous(), q.indices.contiguous());
    DimVector sizes(values_of(self).sizes());
    sizes[0] = m.indices.size(1);
    const Tensor sums = mica::zeros(sizes, TensorOptions(dtype));
    sums.index_copy_(0, m.first, values_of(self).to(dtype));
    sums.index_add_(0, m.second, values);
    const Tensor total = coo(m.indices, sums, self.sizes(), false);
    // Coalesced, so that a tensor to which a program adds in every step (a gradient, a momentum) does not grow without
    // end.
    return m.indices.size(1) > places ? total.coalesce() : total;
  }
  const Tensor both =
      coo(mica::cat({p.indices, q.indices}, 1), mica::cat({values_of(self).to(dtype), values}, 0), self.sizes(), false);
  // The sum of two coalesced tensors is coalesced. Others are coalesced when a program asks for it, or when they have
  // more elements than places.
  const bool crowded = p.indices.size(1) + q.indices.size(1) > places;
  return crowded || (p.coalesced && q.coalesced) ? both.coalesce() : both;
}

// dense + alpha * sparse
Tensor added_to_dense(const Tensor& dense, const Tensor& sparse, const Scalar& alpha) {
  MICA_CHECK(dense.sizes() == sparse.sizes() || dense.dim() == 0,
             "add: expected 'self' and 'other' to have same size, ", "but self has size ", dense.sizes(),
             " while other has size ", sparse.sizes(), " (FYI: dense-sparse ",
             "addition does not currently support broadcasting)");
  return mica::add(dense, mica::_to_dense(sparse), alpha);
}

}  // namespace

Tensor add(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (!is_sparse(self)) return added_to_dense(self, other, alpha);
  if (!is_sparse(other)) {
    MICA_CHECK(!is_coo(self), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
    return mica::add(mica::_to_dense(self), other, alpha);
  }
  if (is_coo(self) && is_coo(other)) return added_coo(self, other, alpha);
  const Layout layout = self.layout();
  const Tensor sum = added_coo(in_layout(self, Layout::SparseCoo), in_layout(other, Layout::SparseCoo), alpha);
  if (!has_blocks(layout)) return with_indices_like(in_layout(sum.coalesce(), layout), self);
  const Tensor& values = sparse_parts(self).values;
  const int64_t batch = sparse_parts(self).compressed.dim() - 1;
  const DimVector block{values.size(batch + 1), values.size(batch + 2)};
  return with_indices_like(mica::_convert_layout(sum.coalesce(), layout, block.ref()), self);
}

Tensor sub(const Tensor& self, const Tensor& other, const Scalar& alpha) { return sparse::add(self, other, -alpha); }

// In place on a dense tensor: only the places of the sparse tensor's elements are touched.
void add_(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (is_sparse(self) || !is_coo(other) || !self.is_contiguous() || self.dtype() != other.dtype() ||
      !(self.sizes() == other.sizes())) {
    entry::write_rare("add_", self, sparse::add(self, other, alpha));
    return;
  }
  // For 16-bit floats, the sum of several elements at one place is rounded once.
  const bool narrow = other.dtype() == DType::Float16 || other.dtype() == DType::BFloat16;
  const Tensor given = narrow ? other.detach().coalesce() : other;
  const SparseParts& p = parts_of(given);
  if (p.values.numel() == 0) return;
  const IntArrayRef sizes = other.sizes().slice(0, static_cast<size_t>(p.sparse_dim));
  MICA_LAYER_KERNEL(self.device(), sparse_add_at_keys)
  (self.view({product_of(sizes), -1}).view_of(), keys_of(p.indices.contiguous(), sizes).view_of(),
   p.values.contiguous().view({p.indices.size(1), -1}).view_of(), alpha);
}

void sub_(const Tensor& self, const Tensor& other, const Scalar& alpha) { sparse::add_(self, other, -alpha); }

// ---- products and quotients

// A COO tensor whose dense dimensions are broadcast.
static Tensor widened(const Tensor& t, IntArrayRef sizes) {
  if (t.sizes() == sizes) return t;
  const SparseParts& p = sparse_parts(t);
  const size_t first = static_cast<size_t>(p.sparse_dim);
  DimVector values_sizes(sizes.slice(first, sizes.size() - first));
  values_sizes.insert(0, p.indices.size(1));
  return coo(p.indices, values_of(t).expand(values_sizes), sizes, p.coalesced);
}

static Tensor mul_sparse(const Tensor& self, const Tensor& other) {
  if (is_coo(self) && is_coo(other)) {
    const size_t dims = static_cast<size_t>(sparse_parts(self).sparse_dim);
    MICA_CHECK(self.dim() == other.dim() && dims == static_cast<size_t>(sparse_parts(other).sparse_dim) &&
                   self.sizes().slice(0, dims) == other.sizes().slice(0, dims),
               "sparse_binary_op_intersection_cpu(): expects sparse inputs with equal dimensionality, number of sparse "
               "dimensions, and shape of sparse dimensions, but got the sizes ",
               self.sizes(), " and ", other.sizes());
    if (!(self.sizes() == other.sizes())) {
      const DimVector sizes = broadcast_sizes(self.sizes(), other.sizes());
      return mul_sparse(widened(self, sizes), widened(other, sizes));
    }
  }
  check_same_size("mul", self, other);
  // Only places where both have an element: the elements of one, times the other at their places.
  const Tensor a = summed(self);
  const Tensor there = mica::sparse_mask(is_coo(other) == is_coo(a) ? other : in_layout(other, a.layout()), a);
  return with_values(a, values_of(a).mul(values_of(there)));
}

Tensor mul(const Tensor& self, const Tensor& other) {
  // A sparse number goes second beside a larger sparse tensor, and beside a number of several parts. A dense number
  // goes second beside a sparse one, so that the two never swap twice.
  const auto one_part = [](const Tensor& number) { return sparse_parts(number).values.size(0) == 1; };
  const bool number_first = is_sparse(self) && is_sparse(other) && self.dim() == 0 &&
                            (other.dim() > 0 || (one_part(self) && !one_part(other)));
  if (!is_sparse(self) || number_first) return sparse::mul(other, self);
  if (is_sparse(other) && other.dim() > 0) return mul_sparse(self, other);
  if (other.dim() == 0) {
    const Tensor product = values_of(self).mul(is_sparse(other) ? mica::_to_dense(other) : other);
    // The values of a sparse number are a list, which would count for more than the other number in promotion.
    return with_values(self, self.dim() == 0 ? product.to(result_type({self, other})) : product);
  }
  const Tensor a = summed(self);
  const DimVector sizes = broadcast_sizes(self.sizes(), other.sizes());
  if (!(sizes.ref() == self.sizes())) {
    // The dense tensor is larger: the result has elements where the sparse one has, in each of its repetitions.
    MICA_CHECK(is_coo(self), "mul: expected sizes that broadcast to those of the sparse compressed tensor, but got ",
               other.sizes(), " for ", self.sizes());
    const Tensor held = mica::_to_dense(
        coo(sparse_parts(self).indices, mica::ones_like(values_of(self), DType::Bool), self.sizes(), false));
    const Tensor product = mica::_to_dense(self).mul(other);
    return mica::sparse_mask(product, mica::_convert_layout(held.expand(sizes).contiguous(), Layout::SparseCoo));
  }
  const Tensor spread = other.sizes() == self.sizes() ? other : other.expand(self.sizes());
  return with_values(a, values_of(a).mul(values_of(mica::sparse_mask(spread, a))));
}
void mul_(const Tensor& self, const Tensor& other) {
  const Tensor product = sparse::mul(self, other);
  entry::write_rare("mul_", self, is_sparse(self) ? product : mica::_to_dense(product));
}
Tensor mul(const Tensor& self, const Scalar& other) { return with_values(self, values_of(self).mul(other)); }

static void check_divisor(const Tensor& other) {
  MICA_CHECK(!is_sparse(other), "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape ",
             other.sizes(), " for divisor), or one of dense numbers: what a sparse tensor does not hold is zero");
}

Tensor div(const Tensor& self, const Tensor& other) {
  check_divisor(other);
  if (other.dim() == 0) return with_values(self, values_of(self).div(other));
  const Tensor a = summed(self);
  return with_values(a, values_of(a).div(values_of(mica::sparse_mask(other.expand(self.sizes()), a))));
}
Tensor div(const Tensor& self, const Scalar& other) { return with_values(self, values_of(self).div(other)); }
Tensor div_mode(const Tensor& self, const Tensor& other, std::optional<std::string_view> rounding_mode) {
  check_divisor(other);
  MICA_CHECK(other.dim() == 0, "Sparse division requires a scalar or zero-dim dense tensor divisor (got shape ",
             other.sizes(), " for divisor)");
  return with_values(summed(self), mica::div(values_of(summed(self)), other, rounding_mode));
}
Tensor div_mode(const Tensor& self, const Scalar& other, std::optional<std::string_view> rounding_mode) {
  return with_values(summed(self), mica::div(values_of(summed(self)), other, rounding_mode));
}

Tensor floor_divide(const Tensor& self, const Tensor& other) {
  MICA_CHECK(!is_sparse(other) && other.dim() == 0,
             "Sparse floor division requires a scalar or zero-dim dense tensor divisor (got shape ", other.sizes(),
             " for divisor)");
  return sparse::div_mode(self, other, "floor");
}
Tensor floor_divide(const Tensor& self, const Scalar& other) { return sparse::div_mode(self, other, "floor"); }

Tensor pow(const Tensor& self, const Scalar& exponent) {
  MICA_CHECK(exponent.is_complex() || exponent.to_double() > 0,
             "pow: a sparse tensor's exponent must be positive, or zeros would not stay zeros, but got ", exponent);
  const Tensor a = summed(self);
  return with_values(a, values_of(a).pow(exponent));
}

// ---- copies

static Tensor copied_indices(const Tensor& t) { return t.defined() ? t.clone() : t; }

// The order of a sparse tensor's elements is that of its indices: it cannot have channels last.
static void check_order(std::optional<MemoryFormat> memory_format) {
  MICA_CHECK(memory_format != MemoryFormat::ChannelsLast && memory_format != MemoryFormat::ChannelsLast3d,
             "unsupported memory format option ",
             memory_format == MemoryFormat::ChannelsLast ? "ChannelsLast" : "ChannelsLast3d",
             ": a sparse tensor has its elements in the order of their indices");
}

Tensor clone(const Tensor& self, std::optional<MemoryFormat> memory_format) {
  check_order(memory_format);
  const SparseParts& p = sparse_parts(self);
  const Tensor values = values_of(self).clone();
  if (is_coo(self)) {
    Tensor copy = coo(p.indices.clone(), values, self.sizes(), p.coalesced);
    // A copy of few elements becomes coalesced by itself. The flag is set here and not by an operation, which would
    // count as a change of the tensor that the copy's node has saved.
    if (!p.coalesced) copy.impl()->rare->sparse->coalesced = false;
    return copy;
  }
  return mica::_sparse_compressed_tensor_unsafe(copied_indices(p.compressed), p.indices.clone(), values, self.sizes(),
                                                self.layout());
}

Tensor contiguous(const Tensor& self, MemoryFormat memory_format) {
  check_order(memory_format);
  return self;
}

Tensor _to_copy(const Tensor& self, const TensorOptions& options, bool non_blocking,
                std::optional<MemoryFormat> memory_format) {
  check_order(memory_format);
  const TensorOptions strided = options.layout(std::nullopt);
  const SparseParts& p = sparse_parts(self);
  const Tensor values = mica::_to_copy(values_of(self), strided, non_blocking, std::nullopt);
  const TensorOptions place(values.device());
  const Tensor indices = p.indices.to(place), compressed = p.compressed.defined() ? p.compressed.to(place) : Tensor();
  if (is_coo(self)) return coo(indices, values, self.sizes(), p.coalesced);
  return mica::_sparse_compressed_tensor_unsafe(compressed, indices, values, self.sizes(), self.layout());
}

// A compressed tensor is copied only from one of the same layout, size and number of elements.
static void check_compressed_copy(const Tensor& self, const Tensor& src) {
  MICA_CHECK(self.layout() == src.layout(), "torch.copy_: copy of sparse compressed tensors having different layouts ",
             "is not supported. self layout is ", self.layout(), " and src layout is ", src.layout());
  const Tensor &ours = sparse_parts(self).values, &theirs = sparse_parts(src).values;
  MICA_CHECK(sparse_parts(self).indices.size(-1) == sparse_parts(src).indices.size(-1), "torch.copy_: only sparse ",
             "compressed tensors with the same number of specified elements are supported.");
  MICA_CHECK(self.dim() == src.dim(), "torch.copy_: expected src of ", self.dim(), " dimensions, but got ", src.dim());
  for (int64_t d = 0; d < self.dim(); ++d)
    MICA_CHECK(self.size(d) == src.size(d), "torch.copy_: expected shapes of self and src to match along dimension ", d,
               " for ", self.layout(), " layout but the corresponding dimensions of self and src are ", self.size(d),
               " and ", src.size(d), ", respectively.");
  MICA_CHECK(ours.sizes() == theirs.sizes(), "torch.copy_: copy of sparse compressed tensors having different block ",
             "sizes is not supported. The values of self have the shape ", ours.sizes(), ", those of src ",
             theirs.sizes());
}

void copy_(const Tensor& self, const Tensor& src, bool) {
  if (!is_sparse(self) || !is_sparse(src)) {
    if (is_sparse(self) && is_compressed(self)) check_compressed_copy(self, src);
    MICA_CHECK(self.sizes() == src.sizes(), "copy_() between dense and sparse Tensors is not implemented! Found self ",
               "of layout ", self.layout(), " and src of layout ", src.layout());
    fail(cat("copy_() between dense and sparse Tensors is not implemented! Found self of layout ", self.layout(),
             " and src of layout ", src.layout()));
  }
  if (is_compressed(self)) check_compressed_copy(self, src);
  const Tensor value = in_layout(src, self.layout()).to(self.dtype()).clone();
  entry::write_rare("copy_", self, value);
}

// There is no lazy conjugate of a sparse tensor.
Tensor _conj(const Tensor& self) { return mica::conj_physical(self); }

Tensor alias(const Tensor& self) { return with_values(self, values_of(self)); }

void zero_(const Tensor& self) {
  MICA_CHECK(is_sparse(self), "zero_: expected a sparse tensor");
  SparseParts& p = *self.impl()->rare->sparse;
  if (is_coo(self)) {
    DimVector sizes(p.values.sizes());
    sizes[0] = 0;
    p.values = mica::empty(sizes, p.values.options());
    p.indices = mica::empty({p.sparse_dim, 0}, p.indices.options());
    p.checked_version = p.indices.version();
    p.coalesced = true;
  } else {
    p.values = mica::zeros_like(p.values);
  }
}

bool equal(const Tensor& self, const Tensor& other) {
  if (!(self.sizes() == other.sizes()) || self.layout() != other.layout()) return false;
  NoGradGuard below;
  const Tensor a = summed(self), b = summed(other);
  const SparseParts &p = sparse_parts(a), &q = sparse_parts(b);
  return p.indices.sizes() == q.indices.sizes() && mica::equal(p.indices, q.indices) &&
         (!p.compressed.defined() || mica::equal(p.compressed, q.compressed)) && mica::equal(p.values, q.values);
}

}  // namespace mica::layouts::sparse
