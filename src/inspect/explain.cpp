#include <algorithm>
#include <vector>

#include "core/geometry.h"
#include "inspect/parts.h"
#include "mica/autograd.h"
#include "mica/inspect.h"

namespace mica::inspect {

namespace {

// The dimensions from the innermost to the outermost, in the order of a memory format.
std::vector<int64_t> inner_to_outer(int64_t ndim, MemoryFormat format) {
  if (format == MemoryFormat::ChannelsLast) return {1, 3, 2, 0};
  if (format == MemoryFormat::ChannelsLast3d) return {1, 4, 3, 2, 0};
  std::vector<int64_t> order;
  for (int64_t d = ndim - 1; d >= 0; --d) order.push_back(d);
  return order;
}

}  // namespace

const char* name(MemoryFormat format) {
  switch (format) {
    case MemoryFormat::Contiguous:
      return "contiguous_format";
    case MemoryFormat::Preserve:
      return "preserve_format";
    case MemoryFormat::ChannelsLast:
      return "channels_last";
    case MemoryFormat::ChannelsLast3d:
      return "channels_last_3d";
  }
  return "";
}

Contiguity contiguity(IntArrayRef sizes, IntArrayRef strides, MemoryFormat format) {
  Contiguity c;
  c.format = format;
  const auto ndim = static_cast<int64_t>(sizes.size());
  if (format == MemoryFormat::ChannelsLast) c.applies = ndim == 4;
  if (format == MemoryFormat::ChannelsLast3d) c.applies = ndim == 5;
  if (!c.applies) return c;
  c.holds =
      format == MemoryFormat::Contiguous ? is_row_major(sizes, strides) : is_channels_last(sizes, strides, format);
  if (c.holds) return c;
  int64_t expected = 1;
  for (const int64_t d : inner_to_outer(ndim, format)) {
    const auto at = static_cast<size_t>(d);
    if (sizes[at] != 1 && strides[at] != expected) {
      c.dimension = d;
      c.expected = expected;
      c.found = strides[at];
      break;
    }
    expected *= std::max<int64_t>(sizes[at], 1);
  }
  return c;
}

Reach reach(IntArrayRef sizes, IntArrayRef strides, int64_t offset) {
  Reach r;
  int64_t numel = 1;
  for (const int64_t n : sizes) numel *= n;
  r.lowest = offset;
  r.highest = offset - 1;
  if (numel == 0) return r;
  const Extent e = extent(sizes, strides);
  r.lowest = offset + e.low;
  r.highest = offset + e.high - 1;
  // An expanded dimension reaches no further elements.
  std::vector<int64_t> n, step;
  int64_t count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1 || strides[d] == 0) continue;
    n.push_back(sizes[d]);
    step.push_back(strides[d]);
    count *= sizes[d];
  }
  r.distinct = count;
  if (!has_internal_overlap(n, step)) return r;
  constexpr int64_t kCountable = int64_t{1} << 24;
  if (e.high - e.low > kCountable || count > kCountable) {
    r.distinct = std::min(count, e.high - e.low);
    r.exact = false;
    return r;
  }
  std::vector<bool> seen(static_cast<size_t>(e.high - e.low));
  std::vector<int64_t> index(n.size(), 0);
  int64_t at = -e.low;
  r.distinct = 0;
  for (int64_t i = 0; i < count; ++i) {
    auto&& cell = seen[static_cast<size_t>(at)];
    r.distinct += !cell;
    cell = true;
    for (size_t d = n.size(); d-- > 0;) {
      at += step[d];
      if (++index[d] < n[d]) break;
      at -= step[d] * n[d];
      index[d] = 0;
    }
  }
  return r;
}

static void explain_memory(const Tensor& t, Anatomy& a) {
  a.strides = DimVector(t.strides());
  a.offset = t.storage_offset();
  a.conjugated = t.is_conj();
  a.negated = t.is_neg();
  if (const Storage& s = t.storage()) {
    a.storage_bytes = static_cast<int64_t>(s->nbytes());
    a.storage_address = reinterpret_cast<uint64_t>(s->data());
    a.storage_users = s->use_count();
    a.foreign_memory = s->deleter() != nullptr;
  }
  a.address = reinterpret_cast<uint64_t>(t.data_ptr());
  a.reached = reach(a.sizes, a.strides, a.offset);
  a.reached_bytes = a.reached.distinct * a.element_size;
  a.hole_bytes = (a.reached.highest - a.reached.lowest + 1 - a.reached.distinct) * a.element_size;
  for (MemoryFormat f : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d})
    if (Contiguity c = contiguity(a.sizes, a.strides, f); c.applies) a.formats.push_back(c);
  a.dense = t.is_non_overlapping_and_dense();
  a.overlaps = a.reached.distinct < a.numel;
  if (t.is_view()) {
    a.is_view = true;
    const Tensor base = t.base();
    a.base_sizes = DimVector(base.sizes());
    a.base_strides = DimVector(base.strides());
    a.base_offset = base.storage_offset();
    a.steps = view_steps(base, t);
  }
}

static void explain_history(const Tensor& t, Anatomy& a) {
  a.requires_grad = t.requires_grad();
  a.is_leaf = t.is_leaf();
  a.has_grad = t.grad().defined();
  const Node* node = t.grad_fn();
  if (node) a.grad_fn = node->name();
  constexpr size_t kLongest = 64;
  while (node && a.history.size() < kLongest) {
    a.history.emplace_back(node->name());
    const Node* next = nullptr;
    for (size_t i = 0; i < node->next_edges.size() && !next; ++i) next = node->next_edges[i].function.get();
    node = next;
  }
}

Anatomy explain(const Tensor& t) {
  MICA_CHECK(t.defined(), "explain(): the tensor is undefined");
  Anatomy a;
  a.sizes = DimVector(t.sizes());
  a.numel = t.numel();
  a.dtype = t.dtype();
  a.device = t.device();
  a.element_size = t.element_size();
  a.layout = t.layout();
  a.version = t.version();
  a.dense_bytes = a.numel * a.element_size;
  if (t.has_names()) a.names = t.names();
  if (t.layout() != Layout::Strided) {
    explain_sparse(t, a);
  } else {
    explain_memory(t, a);
    if (t.is_quantized()) explain_quantized(t, a);
  }
  explain_history(t, a);
  return a;
}

}  // namespace mica::inspect
