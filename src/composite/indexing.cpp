// Operations of the index family that are made of others. Those that change some places of a tensor change a copy here.
#include "core/allocate.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "core/out.h"
#include "mica/core/grad_mode.h"
#include "mica/core/recording.h"
#include "mica/generated/implementations.h"
#include "shapes/indexing.h"

namespace mica::composite {

Tensor index_put(const Tensor& self, TensorList indices, const Tensor& values, bool accumulate) {
  return self.clone().index_put_(indices, values, accumulate);
}

namespace {

// The out= form of an operation that changes a copy of `self` at some places of a dimension: out becomes the copy where
// it can. Before that the call is made for a tensor without elements, which checks all but the places.
template <class Change>
void change_in_out(const char* op, const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                   const Tensor& source, const Change& change) {
  const bool fits = out.sizes() == self.sizes() && out.dtype() == self.dtype() && out.device() == self.device() &&
                    !self.is_meta() && !has_internal_overlap(out.sizes(), out.strides()) &&
                    !may_share_memory(out, self) && !may_share_memory(out, index) && !may_share_memory(out, source);
  if (fits) {
    change(empty_contiguous(self.sizes(), self.dtype(), kMeta));
    const int64_t size = self.dim() ? self.size(wrap_dim(dim, self.dim())) : 1;
    if (!index_outside(plain_index(index, self.device()), 0, size)) {
      out.copy_(self);
      return change(out);
    }
  }
  const Tensor changed = self.clone();
  change(changed);
  write_out(op, out, changed);
}

}  // namespace

Tensor index_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha) {
  return self.clone().index_add_(dim, index, source, alpha);
}
void index_add_out(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                   const Scalar& alpha) {
  change_in_out("index_add", out, self, dim, index, source,
                [&](const Tensor& t) { t.index_add_(dim, index, source, alpha); });
}
Tensor index_copy(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  return self.clone().index_copy_(dim, index, source);
}
void index_copy_out(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source) {
  change_in_out("index_copy", out, self, dim, index, source,
                [&](const Tensor& t) { t.index_copy_(dim, index, source); });
}
Tensor index_fill(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  return self.clone().index_fill_(dim, index, value);
}
Tensor index_fill(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  return self.clone().index_fill_(dim, index, value);
}
Tensor index_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view reduce,
                    bool include_self) {
  return self.clone().index_reduce_(dim, index, source, reduce, include_self);
}
void index_reduce_out(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                      std::string_view reduce, bool include_self) {
  change_in_out("index_reduce", out, self, dim, index, source,
                [&](const Tensor& t) { t.index_reduce_(dim, index, source, reduce, include_self); });
}
Tensor scatter(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return self.clone().scatter_(dim, index, src);
}
void scatter_out(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  change_in_out("scatter", out, self, dim, index, src, [&](const Tensor& t) { t.scatter_(dim, index, src); });
}
Tensor scatter_value(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  return self.clone().scatter_(dim, index, value);
}
void scatter_value_out(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  change_in_out("scatter", out, self, dim, index, {}, [&](const Tensor& t) { t.scatter_(dim, index, value); });
}
Tensor scatter_reduced(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                       std::string_view reduce) {
  return self.clone().scatter_(dim, index, src, reduce);
}
void scatter_reduced_out(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                         std::string_view reduce) {
  change_in_out("scatter", out, self, dim, index, src, [&](const Tensor& t) { t.scatter_(dim, index, src, reduce); });
}
Tensor scatter_value_reduced(const Tensor& self, int64_t dim, const Tensor& index, const Scalar& value,
                             std::string_view reduce) {
  return self.clone().scatter_(dim, index, value, reduce);
}
void scatter_value_reduced_out(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index,
                               const Scalar& value, std::string_view reduce) {
  change_in_out("scatter", out, self, dim, index, {}, [&](const Tensor& t) { t.scatter_(dim, index, value, reduce); });
}
Tensor scatter_add(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  return self.clone().scatter_add_(dim, index, src);
}
void scatter_add_out(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src) {
  change_in_out("scatter_add", out, self, dim, index, src, [&](const Tensor& t) { t.scatter_add_(dim, index, src); });
}
Tensor scatter_reduce(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
                      bool include_self) {
  return self.clone().scatter_reduce_(dim, index, src, reduce, include_self);
}
void scatter_reduce_out(const Tensor& out, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& src,
                        std::string_view reduce, bool include_self) {
  change_in_out("scatter_reduce", out, self, dim, index, src,
                [&](const Tensor& t) { t.scatter_reduce_(dim, index, src, reduce, include_self); });
}

Tensor put(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  return self.clone().put_(index, source, accumulate);
}

// self and the mask are broadcast to each other; in place only the mask is.
Tensor masked_scatter(const Tensor& self, const Tensor& mask, const Tensor& source) {
  return self.expand(broadcast_sizes(self.sizes(), mask.sizes()))
      .clone(MemoryFormat::Contiguous)
      .masked_scatter_(mask, source);
}

Tensor take_along_dim(const Tensor& self, const Tensor& indices, std::optional<int64_t> dim) {
  MICA_CHECK(indices.dtype() == DType::Int64, "torch.take_along_dim(): dtype of indices should be Long but got ",
             info(indices.dtype()).legacy);
  const Tensor from = dim ? self : self.view({-1}), index = dim ? indices : indices.view({-1});
  MICA_CHECK(from.dim() == index.dim(),
             "torch.take_along_dim(): input and indices should have the same number of dimensions, but got ",
             from.dim(), " dimensions for input, and ", index.dim(), " dimensions for indices");
  const int64_t d = wrap_dim(dim.value_or(0), from.dim());
  DimVector from_sizes(from.sizes()), index_sizes(index.sizes());
  if (from.dim() == 0) return from.gather(0, index);
  const int64_t n = from_sizes[d], count = index_sizes[d];
  from_sizes[d] = index_sizes[d] = 1;
  DimVector sizes = broadcast_sizes(from_sizes, index_sizes);
  sizes[d] = n;
  const Tensor wide = from.expand(sizes);
  sizes[d] = count;
  const Tensor plain = plain_index(index, self.device());
  // Negative indices count from the end here. gather does not take them.
  const bool negative = capabilities_of(plain.device()).reports_indices || index_outside(plain, 0, n).has_value();
  const Tensor at = negative ? mica::where(plain < 0, plain + n, plain) : plain;
  return wide.gather(d, at.expand(sizes));
}

std::vector<Tensor> nonzero_numpy(const Tensor& self) {
  return mica::nonzero(self.dim() ? self : self.unsqueeze(0)).unbind(1);
}

Tensor argwhere(const Tensor& self) { return mica::nonzero(self); }

Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  MICA_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer, but got ", size);
  const TensorOptions options = TensorOptions(DType::Int64).device(self.device());
  Tensor result = mica::full({size, self.dim()}, fill_value, options);
  if (self.is_meta()) return result;
  const Tensor found = mica::nonzero(self);
  const int64_t rows = std::min(size, found.sizes()[0]);
  result.narrow(0, 0, rows).copy_(found.narrow(0, 0, rows));
  return result;
}

// ---- tables of rows

Tensor functional_embedding(const Tensor& input, const Tensor& weight, std::optional<int64_t> padding_idx,
                            std::optional<double> max_norm, double norm_type, bool scale_grad_by_freq, bool sparse) {
  int64_t padding = -1;
  if (padding_idx) {
    MICA_CHECK(weight.dim() == 2, "'weight' must be 2-D, but got ", weight.sizes());
    const int64_t rows = weight.sizes()[0];
    MICA_CHECK_KIND(*padding_idx < rows && *padding_idx >= -rows, Value,
                    "Padding_idx must be within num_embeddings: got ", *padding_idx, " for ", rows, " rows");
    padding = *padding_idx < 0 ? *padding_idx + rows : *padding_idx;
  }
  if (max_norm) {
    NoGradGuard changes_are_not_recorded;
    mica::embedding_renorm_(weight.detach(), input, *max_norm, norm_type);
  }
  return mica::embedding(weight, input, padding, scale_grad_by_freq, sparse);
}

Tensor one_hot(const Tensor& self, int64_t num_classes) {
  MICA_CHECK(self.dtype() == DType::Int64, "one_hot is only applicable to index tensor of type LongTensor, but got ",
             self.dtype());
  DimVector sizes(self.sizes());
  MICA_CHECK(num_classes >= -1, "Class values must be smaller than num_classes, which is ", num_classes,
             "; -1 stands for as many as the values ask for");
  MICA_CHECK(self.numel() > 0 || num_classes > 0, num_classes == -1
                                                      ? "Can not infer total number of classes from empty tensor."
                                                      : "Class values must be smaller than num_classes.");
  int64_t classes = num_classes;
  if (has_work(self)) {
    if (num_classes == -1) recording::ask_for_values("torch.nn.functional.one_hot");
    const Tensor plain = plain_index(self, self.device());
    const int64_t lowest = plain.min().item().to_int(), highest = plain.max().item().to_int();
    MICA_CHECK(lowest >= 0, "Class values must be non-negative. Got ", lowest);
    MICA_CHECK(num_classes == -1 || highest < num_classes, "Class values must be smaller than num_classes. Got ",
               highest, " for ", num_classes, " classes");
    if (num_classes == -1) classes = highest + 1;
  }
  MICA_CHECK(classes >= 0, "one_hot: the number of classes cannot be inferred from a meta tensor; give num_classes");
  sizes.push_back(classes);
  Tensor result = mica::zeros(sizes, self.options());
  if (self.numel() > 0) result.scatter_(-1, self.unsqueeze(-1), 1);
  return result;
}

std::vector<Tensor> unravel_index(const Tensor& indices, IntArrayRef shape) {
  MICA_CHECK_KIND(is_integral(indices.dtype()), Type, "expected 'indices' to be integer dtype, but got torch.",
                  indices.dtype());
  for (int64_t s : shape) MICA_CHECK_KIND(s >= 0, Value, "'shape' cannot have negative values, but got ", shape);
  std::vector<Tensor> result(shape.size());
  Tensor rest = indices.to(DType::Int64);
  for (size_t d = shape.size(); d-- > 0;) {
    result[d] = rest.remainder(shape[d]);
    if (d > 0) rest = rest.floor_divide(shape[d]);
  }
  return result;
}

}  // namespace mica::composite
