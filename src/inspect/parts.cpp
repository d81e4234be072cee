#include "inspect/parts.h"

#include <algorithm>
#include <limits>

#include "core/rare_facts.h"
#include "mica/ops.h"

namespace mica::inspect {

namespace {

void add_part(Anatomy& a, const char* name, const Tensor& t) {
  if (!t.defined()) return;
  Part p;
  p.name = name;
  p.sizes = DimVector(t.sizes());
  p.strides = DimVector(t.strides());
  p.dtype = t.dtype();
  p.bytes = t.nbytes();
  p.address = reinterpret_cast<uint64_t>(t.data_ptr());
  a.part_bytes += p.bytes;
  a.parts.push_back(std::move(p));
}

double whole_range(DType dtype, bool highest) {
  const auto end = [&]<class T>(T) {
    return static_cast<double>(highest ? std::numeric_limits<T>::max() : std::numeric_limits<T>::min());
  };
  if (dtype == DType::Int8) return end(int8_t());
  return dtype == DType::UInt8 ? end(uint8_t()) : end(int32_t());
}

}  // namespace

void explain_sparse(const Tensor& t, Anatomy& a) {
  const SparseParts& p = sparse_parts(t);
  const bool coo = t.layout() == Layout::SparseCoo;
  const bool rows = t.layout() == Layout::SparseCsr || t.layout() == Layout::SparseBsr;
  if (!coo) add_part(a, rows ? "crow_indices" : "ccol_indices", p.compressed);
  add_part(a, coo ? "_indices" : rows ? "col_indices" : "row_indices", p.indices);
  add_part(a, coo ? "_values" : "values", p.values);
  SparseAnatomy s;
  s.specified = coo ? p.indices.size(-1) : p.indices.numel();
  s.stored = p.values.numel();
  s.sparse_dims = p.sparse_dim;
  s.dense_dims = p.dense_dim;
  s.coalesced = !coo || p.coalesced;
  // The number of values of one index: those of a block, or of the dense dimensions.
  const int64_t first = coo ? 1 : p.indices.dim();
  int64_t values = 1;
  for (int64_t d = first; d < p.values.dim(); ++d) values *= p.values.size(d);
  s.bytes_each = (coo ? p.indices.size(0) : 1) * p.indices.element_size() + values * a.element_size;
  const int64_t fixed = coo ? 0 : p.compressed.nbytes();
  s.break_even = std::max<int64_t>(0, (a.dense_bytes - 1 - fixed) / s.bytes_each);
  a.storage_bytes = a.reached_bytes = a.part_bytes;
  a.sparse = s;
}

void explain_quantized(const Tensor& t, Anatomy& a) {
  const Quantizer& q = quantizer_of(t);
  Part integers{"int_repr", a.sizes, a.strides, a.dtype, a.numel * a.element_size, a.address};
  a.part_bytes = integers.bytes;
  a.parts.push_back(std::move(integers));
  QuantizedAnatomy s;
  s.axis = q.axis;
  if (q.axis < 0) {
    s.scale = q.scale;
    s.zero_point = q.zero_point;
    const auto zero = static_cast<double>(q.zero_point);
    s.lowest = (whole_range(a.dtype, false) - zero) * q.scale;
    s.highest = (whole_range(a.dtype, true) - zero) * q.scale;
  } else {
    add_part(a, "q_per_channel_scales", q.scales);
    add_part(a, "q_per_channel_zero_points", q.zero_points);
  }
  a.dense_bytes = a.numel * element_size(DType::Float32);
  a.quantized = s;
}

Anatomy explain_nested(const Tensor& values, const Tensor& offsets, const Tensor& lengths, int64_t ragged_dim) {
  MICA_CHECK(values.defined() && offsets.defined() && offsets.dim() == 1 && offsets.numel() > 0,
             "explain_nested(): the offsets must be a vector of at least one element");
  MICA_CHECK(ragged_dim >= 1 && ragged_dim <= values.dim(), "explain_nested(): the values have ", values.dim(),
             " dimensions, so that dimension ", ragged_dim, " cannot be the one that differs");
  Anatomy a = explain(values);
  add_part(a, "values", values);
  add_part(a, "offsets", offsets);
  add_part(a, "lengths", lengths);
  NestedAnatomy n;
  n.ragged_dim = ragged_dim;
  const int64_t count = offsets.numel() - 1;
  int64_t longest = 0;
  if (offsets.device() != kMeta) {
    const Tensor each = lengths.defined() ? lengths : mica::diff(offsets);
    MICA_CHECK(each.numel() == count, "explain_nested(): there are ", count, " offsets and ", each.numel(), " lengths");
    const Tensor host = each.detach().to(DType::Int64).cpu().contiguous();
    n.lengths = DimVector(IntArrayRef(host.data_ptr<int64_t>(), static_cast<size_t>(count)));
    for (const int64_t length : n.lengths) longest = std::max(longest, length);
  }
  n.sizes.push_back(count);
  int64_t padded = count * longest * a.element_size;
  for (int64_t d = 0; d < values.dim(); ++d) {
    const bool ragged = d == ragged_dim - 1;
    n.sizes.push_back(ragged ? -1 : values.size(d));
    if (!ragged) padded *= values.size(d);
  }
  a.dense_bytes = padded;
  a.nested = std::move(n);
  return a;
}

}  // namespace mica::inspect
