// The rules for names of results, to which ops/layouts/named.toml refers.
#include <algorithm>

#include "core/geometry.h"
#include "mica/names.h"

namespace mica::names {

namespace {

void check_misaligned(const std::string& name, const DimNames& own, const DimNames& other, const char* action) {
  if (name.empty()) return;
  MICA_CHECK(std::find(other.begin(), other.end(), name) == other.end(), "Misaligned dims when attempting to ", action,
             " dims ", to_text(own), " and dims ", to_text(other), ": dim '", name,
             "' appears in a different position from the right across both lists.");
}

// Joins two lists of names, of dimensions that are aligned from the right.
DimNames unify(const DimNames& a, const DimNames& b, const char* action) {
  const size_t n = std::max(a.size(), b.size());
  DimNames result(n);
  for (size_t i = 0; i < n; ++i) {
    const std::string x = i < a.size() ? a[a.size() - 1 - i] : "", y = i < b.size() ? b[b.size() - 1 - i] : "";
    if (!x.empty() && !y.empty()) {
      MICA_CHECK(x == y, "Error when attempting to ", action, " dims ", to_text(a), " and dims ", to_text(b), ": dim '",
                 x, "' and dim '", y, "' are at the same position from the right but do not match.");
    } else {
      check_misaligned(x, a, b, action);
      check_misaligned(y, b, a, action);
    }
    result[n - 1 - i] = x.empty() ? y : x;
  }
  return result;
}

size_t at(int64_t dim, const Tensor& self) { return static_cast<size_t>(wrap_dim(dim, self.dim())); }

}  // namespace

DimNames broadcast(std::initializer_list<Tensor> tensors) { return broadcast_list({tensors.begin(), tensors.size()}); }

DimNames broadcast_list(TensorList tensors) {
  DimNames result;
  for (const Tensor& t : tensors)
    if (t.defined()) result = unify(result, of(t), "broadcast");
  return result;
}

DimNames reduced(const Tensor& self, IntArrayRef dims, bool keepdim) {
  DimNames result = of(self);
  if (keepdim) return result;
  if (dims.empty()) return {};
  std::vector<bool> gone(result.size());
  for (const int64_t d : dims)
    if (!result.empty()) gone[at(d, self)] = true;
  DimNames kept;
  for (size_t i = 0; i < result.size(); ++i)
    if (!gone[i]) kept.push_back(result[i]);
  return kept;
}
DimNames reduced(const Tensor& self, int64_t dim, bool keepdim) { return reduced(self, IntArrayRef(&dim, 1), keepdim); }
DimNames reduced(const Tensor& self, std::optional<int64_t> dim, bool keepdim) {
  return dim ? reduced(self, *dim, keepdim) : DimNames();
}
DimNames reduced(const Tensor& self, std::optional<IntArrayRef> dims, bool keepdim) {
  return reduced(self, dims.value_or(IntArrayRef()), keepdim);
}

DimNames without_dim(const Tensor& self, int64_t dim) { return reduced(self, dim, false); }

DimNames with_dim(const Tensor& self, int64_t dim) {
  DimNames result = of(self);
  const int64_t place = wrap_dim(dim, self.dim() + 1);
  result.insert(result.begin() + place, "");
  return result;
}

DimNames squeezed(const Tensor& self) {
  const DimNames own = of(self);
  DimNames result;
  for (size_t i = 0; i < own.size(); ++i)
    if (self.sizes()[i] != 1) result.push_back(own[i]);
  return result;
}
DimNames squeezed(const Tensor& self, int64_t dim) { return squeezed(self, IntArrayRef(&dim, 1)); }
DimNames squeezed(const Tensor& self, IntArrayRef dims) {
  const DimNames own = of(self);
  std::vector<bool> gone(own.size());
  for (const int64_t d : dims)
    if (!own.empty()) gone[at(d, self)] = self.sizes()[at(d, self)] == 1;
  DimNames result;
  for (size_t i = 0; i < own.size(); ++i)
    if (!gone[i]) result.push_back(own[i]);
  return result;
}

DimNames swapped(const Tensor& self, int64_t dim0, int64_t dim1) {
  DimNames result = of(self);
  if (!result.empty()) std::swap(result[at(dim0, self)], result[at(dim1, self)]);
  return result;
}

DimNames transposed(const Tensor& self) {
  DimNames result = of(self);
  std::reverse(result.begin(), result.end());
  return result;
}

DimNames permuted(const Tensor& self, IntArrayRef dims) {
  const DimNames own = of(self);
  DimNames result;
  for (const int64_t d : dims) result.push_back(own.at(at(d, self)));
  return result;
}

DimNames moved(const Tensor& self, IntArrayRef source, IntArrayRef destination) {
  const DimNames own = of(self);
  if (source.size() != destination.size()) return own;  // the operation reports the error
  DimNames result(own.size());
  std::vector<bool> taken(own.size()), filled(own.size());
  for (size_t i = 0; i < source.size(); ++i) {
    const size_t from = at(source[i], self), to = at(destination[i], self);
    result[to] = own[from];
    taken[from] = filled[to] = true;
  }
  size_t next = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    if (filled[i]) continue;
    while (next < own.size() && taken[next]) ++next;
    if (next < own.size()) result[i] = own[next++];
  }
  return result;
}

DimNames expanded(const Tensor& self, IntArrayRef size) {
  DimNames result = of(self);
  if (size.size() > result.size()) result.insert(result.begin(), size.size() - result.size(), "");
  return result;
}

DimNames flattened(const Tensor& self, int64_t start_dim, int64_t end_dim) {
  DimNames result = of(self);
  if (result.empty()) return {""};
  const size_t first = at(start_dim, self), last = at(end_dim, self);
  if (first >= last) return result;
  result.erase(result.begin() + static_cast<ptrdiff_t>(first) + 1, result.begin() + static_cast<ptrdiff_t>(last) + 1);
  result[first].clear();
  return result;
}

DimNames diagonal(const Tensor& self, int64_t dim1, int64_t dim2) {
  const int64_t dims[] = {dim1, dim2};
  DimNames result = reduced(self, IntArrayRef(dims, 2), false);
  result.push_back("");
  return result;
}

DimNames joined(TensorList tensors) {
  DimNames result;
  for (const Tensor& t : tensors)
    if (!(t.dim() == 1 && t.numel() == 0)) result = unify(result, of(t), "cat");
  return result;
}

DimNames stacked(TensorList tensors, int64_t dim) {
  DimNames result = joined(tensors);
  if (tensors.empty()) return result;
  result.insert(result.begin() + wrap_dim(dim, tensors[0].dim() + 1), "");
  return result;
}

// The dimensions that are summed over may have different names on both sides. Batches are broadcast.
DimNames product(const Tensor& self, const Tensor& other) {
  const DimNames a = of(self), b = of(other);
  if (a.empty() || b.empty()) return {};
  const auto batch = [](const DimNames& names) {
    return names.size() > 2 ? DimNames(names.begin(), names.end() - 2) : DimNames();
  };
  DimNames result = unify(batch(a), batch(b), "matmul");
  if (a.size() > 1) result.push_back(a[a.size() - 2]);
  if (b.size() > 1) result.push_back(b.back());
  for (size_t i = 0; i < result.size(); ++i)
    MICA_CHECK(result[i].empty() || std::count(result.begin(), result.end(), result[i]) == 1,
               "Matrix multiplying Tensor", to_text(a), " with Tensor", to_text(b),
               " would produce output tensor with duplicate names ", to_text(result),
               ". Please rename the input tensors with `Tensor.rename` to prevent this.");
  return result;
}

DimNames added_product(const Tensor& self, const Tensor& a, const Tensor& b) {
  return unify(product(a, b), of(self), "add");
}

std::vector<Tensor> give(std::vector<Tensor> results, const DimNames& names) {
  for (const Tensor& t : results) give(t, names);
  return results;
}

void refuse(const char* op) {
  fail(cat("aten::", op,
           " is not yet supported with named tensors. Please drop names via `tensor = tensor.rename(None)`, ",
           "call the op with an unnamed tensor, and set names on the result of the operation."));
}

}  // namespace mica::names
