#include <algorithm>

#include "core/geometry.h"
#include "mica/generated/implementations.h"
#include "mica/ops.h"

namespace mica::composite {

Tensor narrow(const Tensor& self, int64_t dim, int64_t start, int64_t length) {
  MICA_CHECK(self.dim() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  MICA_CHECK(length >= 0, "narrow(): length must be non-negative. It is ", length);
  const int64_t n = self.size(dim);
  MICA_CHECK_KIND(start >= -n && start <= n, Index, "start out of range (expected to be in range of [", -n, ", ", n,
                  "], but got ", start, ")");
  const int64_t from = start < 0 ? start + n : start;
  MICA_CHECK(from <= n - length, "start (", from, ") + length (", length, ") exceeds dimension size (", n, ").");
  return slice(self, dim, from, from + length);
}

Tensor narrow(const Tensor& self, int64_t dim, const Tensor& start, int64_t length) {
  MICA_CHECK(start.dim() == 0 && is_integral(start.dtype()) && start.dtype() != DType::Bool,
             "start must be an 0-dim integral Tensor.");
  return composite::narrow(self, dim, start.item().to_int(), length);
}

Tensor swapaxes(const Tensor& self, int64_t axis0, int64_t axis1) { return self.transpose(axis0, axis1); }

Tensor movedim(const Tensor& self, IntArrayRef source, IntArrayRef destination) {
  MICA_CHECK(source.size() == destination.size(), "movedim: Invalid source or destination dims: source (", source,
             " dims) should contain the same number of dims as destination (", destination, " dims)");
  const int64_t n = self.dim();
  const auto wrapped = [n](const char* which, IntArrayRef dims) {
    DimVector result;
    for (int64_t dim : dims) {
      const int64_t d = wrap_dim(dim, n);
      MICA_CHECK(std::find(result.begin(), result.end(), d) == result.end(), "movedim: repeated dim in `", which, "` (",
                 dims, ")");
      result.push_back(d);
    }
    return result;
  };
  const DimVector from = wrapped("source", source), to = wrapped("destination", destination);
  if (n == 0) return self.alias();
  DimVector order(n, -1);
  for (size_t i = 0; i < from.size(); ++i) order[to[i]] = from[i];
  const auto moves = [&](int64_t d) { return std::find(from.begin(), from.end(), d) != from.end(); };
  int64_t next = 0;
  for (int64_t& o : order) {
    if (o >= 0) continue;
    while (moves(next)) ++next;
    o = next++;
  }
  return self.permute(order);
}

Tensor flatten(const Tensor& self, int64_t start_dim, int64_t end_dim) {
  const int64_t from = wrap_dim(start_dim, self.dim()), to = wrap_dim(end_dim, self.dim());
  MICA_CHECK(from <= to, "flatten() has invalid args: start_dim cannot come after end_dim, but they are ", start_dim,
             " and ", end_dim);
  if (self.dim() == 0) return self.reshape({1});
  if (from == to) return self;
  int64_t merged = 1;
  DimVector sizes;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d < from || d > to) {
      sizes.push_back(self.sizes()[d]);
    } else {
      merged *= self.sizes()[d];
      if (d == to) sizes.push_back(merged);
    }
  }
  return self.reshape(sizes);
}

Tensor real(const Tensor& self) {
  if (!self.is_complex()) return self;
  // A conjugated tensor has the same real parts.
  return view_as_real(self.is_conj() ? _conj(self) : self).select(-1, 0);
}

Tensor imag(const Tensor& self) {
  MICA_CHECK(self.is_complex(), "imag is not implemented for tensors with non-complex dtypes.");
  if (self.is_conj()) return _neg_view(view_as_real(_conj(self)).select(-1, 1));
  return view_as_real(self).select(-1, 1);
}

}  // namespace mica::composite
