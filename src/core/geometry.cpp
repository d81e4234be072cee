#include "core/geometry.h"

#include <algorithm>

#include "core/dimension_order.h"
#include "mica/error.h"

namespace mica {

void append_to(std::string& s, IntArrayRef dims) {
  s += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i) s += ", ";
    s += std::to_string(dims[i]);
  }
  s += ']';
}

int64_t count_elements(IntArrayRef sizes) {
  int64_t n = 1;
  bool empty = false;
  for (int64_t s : sizes) {
    MICA_CHECK(s >= 0, "Trying to create tensor with negative dimension ", s, ": ", sizes);
    empty |= s == 0;
  }
  if (empty) return 0;
  for (int64_t s : sizes)
    MICA_CHECK(!__builtin_mul_overflow(n, s, &n), "numel: integer multiplication overflow for the shape ", sizes);
  return n;
}

DimVector contiguous_strides(IntArrayRef sizes) {
  DimVector strides(sizes.size());
  int64_t next = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    // A dimension without elements counts as one, as in torch. The product of all sizes is not a stride; where it
    // overflows, the error comes when memory is asked for.
    const bool overflows = __builtin_mul_overflow(next, std::max<int64_t>(sizes[i], 1), &next);
    MICA_CHECK(!overflows || i == 0, "Stride calculation overflowed with sizes=", sizes);
  }
  return strides;
}

DimVector memory_format_strides(IntArrayRef sizes, MemoryFormat format) {
  if (format == MemoryFormat::Contiguous || format == MemoryFormat::Preserve) return contiguous_strides(sizes);
  const size_t rank = format == MemoryFormat::ChannelsLast ? 4 : 5;
  MICA_CHECK(sizes.size() == rank, "required rank ", rank, " tensor to use ",
             rank == 4 ? "channels_last" : "channels_last_3d", " format");
  DimVector order{1};  // fastest first: channels, then the spatial dimensions from the last, then the batch
  for (size_t d = rank; d-- > 2;) order.push_back(static_cast<int64_t>(d));
  order.push_back(0);
  DimVector strides(rank);
  int64_t next = 1;
  for (int64_t d : order) {
    strides[d] = next;
    const bool overflows = __builtin_mul_overflow(next, std::max<int64_t>(sizes[d], 1), &next);
    MICA_CHECK(!overflows || d == 0, "Stride calculation overflowed with sizes=", sizes);
  }
  return strides;
}

bool is_row_major(IntArrayRef sizes, IntArrayRef strides) {
  int64_t expected = 1;
  bool ok = true;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1) {
      ok &= strides[i] == expected;
      expected *= sizes[i];
    }
  }
  return ok;
}

bool is_channels_last(IntArrayRef sizes, IntArrayRef strides, MemoryFormat format) {
  const size_t rank = format == MemoryFormat::ChannelsLast ? 4 : 5;
  if (sizes.size() != rank) return false;
  const DimVector want = memory_format_strides(sizes, format);
  for (size_t d = 0; d < rank; ++d)
    if (sizes[d] != 1 && strides[d] != want[d]) return false;
  return true;
}

bool is_non_overlapping_and_dense(IntArrayRef sizes, IntArrayRef strides) {
  DimVector order;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return true;
    if (sizes[d] != 1) order.push_back(static_cast<int64_t>(d));
  }
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] < strides[b]; });
  int64_t expected = 1;
  for (int64_t d : order) {
    if (strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

DimVector dense_strides_like(IntArrayRef sizes, IntArrayRef strides) {
  const auto compare = [&](int64_t a, int64_t b) {
    const int64_t x = std::abs(strides[a]), y = std::abs(strides[b]);
    if (x == 0 || y == 0) return 0;
    if (x != y) return x < y ? -1 : 1;
    return sizes[a] > sizes[b] ? 1 : 0;
  };
  DimVector result(sizes.size());
  int64_t next = 1;
  for (int64_t d : fastest_first(static_cast<int64_t>(sizes.size()), compare)) {
    result[d] = next;
    next *= std::max<int64_t>(sizes[d], 1);
  }
  return result;
}

// Visits every element. For strides that interleave, where the order of their sizes says nothing.
static bool reaches_twice(IntArrayRef sizes, IntArrayRef strides, int64_t numel) {
  const Extent e = extent(sizes, strides);
  if (numel > e.high - e.low) return true;
  std::vector<bool> seen(static_cast<size_t>(e.high - e.low));
  DimVector index(sizes.size(), 0);
  for (int64_t at = -e.low, n = 0; n < numel; ++n) {
    if (seen[static_cast<size_t>(at)]) return true;
    seen[static_cast<size_t>(at)] = true;
    for (size_t d = sizes.size(); d-- > 0;) {
      at += strides[d];
      if (++index[d] < sizes[d]) break;
      at -= sizes[d] * strides[d];
      index[d] = 0;
    }
  }
  return false;
}

bool has_internal_overlap(IntArrayRef sizes, IntArrayRef strides) {
  DimVector order;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return false;
    if (sizes[d] > 1) {
      if (strides[d] == 0) return true;
      order.push_back(static_cast<int64_t>(d));
    }
  }
  std::sort(order.begin(), order.end(),
            [&](int64_t a, int64_t b) { return std::abs(strides[a]) < std::abs(strides[b]); });
  // Disjoint for certain when every stride steps over all that the faster dimensions reach.
  int64_t reach = 0;
  for (int64_t d : order) {
    if (std::abs(strides[d]) <= reach) return reaches_twice(sizes, strides, count_elements(sizes));
    reach += (sizes[d] - 1) * std::abs(strides[d]);
  }
  return false;
}

Extent extent(IntArrayRef sizes, IntArrayRef strides) {
  Extent e{0, 1};
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 0) return {0, 0};
    const int64_t span = (sizes[d] - 1) * strides[d];
    (span < 0 ? e.low : e.high) += span;
  }
  return e;
}

int64_t storage_bytes_needed(IntArrayRef sizes, IntArrayRef strides, int64_t offset, int64_t element_size) {
  for (const int64_t n : sizes)
    if (n == 0) return 0;
  int64_t high, span, bytes;
  bool overflows = __builtin_add_overflow(offset, 1, &high);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] <= 0) continue;
    overflows |= __builtin_mul_overflow(sizes[d] - 1, strides[d], &span) || __builtin_add_overflow(high, span, &high);
  }
  overflows |= __builtin_mul_overflow(high, element_size, &bytes);
  MICA_CHECK(!overflows, "Storage size calculation overflowed with sizes=", sizes, " and strides=", strides);
  return bytes;
}

std::optional<DimVector> view_strides(IntArrayRef sizes, IntArrayRef strides, IntArrayRef new_sizes) {
  const int64_t numel = count_elements(sizes);
  if (sizes.size() == 0) return DimVector(new_sizes.size(), 1);
  if (numel == 0) {
    if (sizes == new_sizes) return DimVector(strides);
    return contiguous_strides(new_sizes);
  }
  // Walk both shapes from the right, matching runs of old dimensions that are contiguous among themselves with groups
  // of new ones.
  DimVector result(new_sizes.size());
  int64_t at = static_cast<int64_t>(new_sizes.size()) - 1;
  int64_t run_stride = strides.back(), run_numel = 1, group_numel = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    run_numel *= sizes[d];
    const bool run_ends = d == 0 || (sizes[d - 1] != 1 && strides[d - 1] != run_numel * run_stride);
    if (!run_ends) continue;
    while (at >= 0 && (group_numel < run_numel || new_sizes[at] == 1)) {
      result[at] = group_numel * run_stride;
      group_numel *= new_sizes[at];
      --at;
    }
    if (group_numel != run_numel) return std::nullopt;
    if (d > 0) {
      run_stride = strides[d - 1];
      run_numel = 1;
      group_numel = 1;
    }
  }
  if (at != -1) return std::nullopt;
  return result;
}

std::string view_obstacle(IntArrayRef sizes, IntArrayRef strides, IntArrayRef new_sizes) {
  // The same walk as above: it stops where a new dimension reaches over the end of a run.
  int64_t at = static_cast<int64_t>(new_sizes.size()) - 1;
  int64_t run_stride = strides.back(), run_numel = 1, group_numel = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d > 0; --d) {
    run_numel *= sizes[d];
    if (sizes[d - 1] == 1 || strides[d - 1] == run_numel * run_stride) continue;
    while (at >= 0 && (group_numel < run_numel || new_sizes[at] == 1)) group_numel *= new_sizes[at--];
    if (group_numel != run_numel)
      return cat("The input has size ", sizes, " and stride ", strides, "; in the new shape ", new_sizes, " dimension ",
                 at + 1, " would run over dimensions ", d - 1, " and ", d, " of the input, but dimension ", d - 1,
                 " steps by ", strides[d - 1], " elements where ", run_numel * run_stride, " would continue dimension ",
                 d);
    run_stride = strides[d - 1];
    run_numel = group_numel = 1;
  }
  return cat("The input has size ", sizes, " and stride ", strides, "; the new shape is ", new_sizes);
}

DimVector infer_size(IntArrayRef shape, int64_t numel) {
  DimVector result(shape);
  int64_t product = 1;
  int64_t unknown = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1) {
      MICA_CHECK(unknown < 0, "only one dimension can be inferred");
      unknown = static_cast<int64_t>(i);
    } else {
      MICA_CHECK(shape[i] >= 0, "invalid shape dimension ", shape[i], " at index ", i, " of shape ", shape);
      MICA_CHECK(!__builtin_mul_overflow(product, shape[i], &product), "shape '", shape,
                 "' is invalid for input of size ", numel);
    }
  }
  if (unknown >= 0) {
    MICA_CHECK(product != 0 || numel != 0, "cannot reshape tensor of 0 elements into shape ", shape,
               " because the unspecified dimension size -1 can be any value and is ambiguous");
    MICA_CHECK(product > 0 && numel % product == 0, "shape '", shape, "' is invalid for input of size ", numel);
    result[unknown] = numel / product;
  } else {
    MICA_CHECK(product == numel, "shape '", shape, "' is invalid for input of size ", numel);
  }
  return result;
}

DimVector broadcast_sizes(IntArrayRef a, IntArrayRef b) {
  const size_t n = std::max(a.size(), b.size());
  DimVector result(n);
  for (size_t k = 0; k < n; ++k) {  // from the right
    const int64_t x = k < a.size() ? a[a.size() - 1 - k] : 1;
    const int64_t y = k < b.size() ? b[b.size() - 1 - k] : 1;
    MICA_CHECK(x == y || x == 1 || y == 1, "The size of tensor a (", x, ") must match the size of tensor b (", y,
               ") at non-singleton dimension ", n - 1 - k, ". The shapes are ", a, " and ", b,
               "; unsqueeze or expand one of them so that each pair of sizes is equal or has a 1.");
    result[n - 1 - k] = x == 1 ? y : x;
  }
  return result;
}

int64_t wrap_unusual_dim(int64_t dim, int64_t ndim, bool wrap_scalar) {
  int64_t n = ndim;
  if (n == 0) {
    MICA_CHECK_KIND(wrap_scalar, Index, "Dimension specified as ", dim, " but tensor has no dimensions");
    n = 1;
  }
  MICA_CHECK_KIND(dim >= -n && dim < n, Index, "Dimension out of range (expected to be in range of [", -n, ", ", n - 1,
                  "], but got ", dim, ")");
  return dim < 0 ? dim + n : dim;
}

DimVector wrap_dims(IntArrayRef dims, int64_t ndim) {
  DimVector result;
  for (int64_t d : dims) {
    const int64_t w = wrap_dim(d, ndim);
    for (int64_t seen : result) MICA_CHECK(seen != w, "dim ", w, " appears multiple times in the list of dims");
    result.push_back(w);
  }
  return result;
}

}  // namespace mica
