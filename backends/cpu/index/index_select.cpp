// index_select and index_add: whole slices move at a time.
#include <cstring>

#include "backends/cpu/visit_dtype.h"
#include "mica/array_ref.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// Calls body(offset_a, offset_b) for every index of the dimensions other than `dim`.
template <class Body>
void for_each_line(const TensorView& a, const TensorView& b, int64_t dim, const Body& body) {
  DimVector index(a.ndim, 0);
  int64_t at_a = 0, at_b = 0;
  while (true) {
    body(at_a, at_b);
    int d = a.ndim - 1;
    for (; d >= 0; --d) {
      if (d == dim) continue;
      at_a += a.strides[d];
      at_b += b.strides[d];
      if (++index[d] < a.sizes[d]) break;
      at_a -= a.strides[d] * a.sizes[d];
      at_b -= b.strides[d] * a.sizes[d];
      index[d] = 0;
    }
    if (d < 0) return;
  }
}

void index_select_kernel(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index) {
  const auto* at = index.ptr<int64_t>();
  visit_any("index_select", out.dtype, [&]<class T>(Tag<T>) {
    for_each_line(out, self, dim, [&](int64_t o, int64_t s) {
      for (int64_t i = 0; i < index.numel; ++i)
        out.ptr<T>()[o + i * out.strides[dim]] = self.ptr<T>()[s + at[i] * self.strides[dim]];
    });
  });
}

void index_add_kernel(const TensorView& self, int64_t dim, const TensorView& index, const TensorView& source, Scalar alpha) {
  const auto* at = index.ptr<int64_t>();
  visit_number_bool("index_add", self.dtype, [&]<class T>(Tag<T>) {
    const T scale = alpha.cast<T>();
    for_each_line(source, self, dim, [&](int64_t s, int64_t o) {
      for (int64_t i = 0; i < index.numel; ++i) {
        T& to = self.ptr<T>()[o + at[i] * self.strides[dim]];
        const T from = source.ptr<T>()[s + i * source.strides[dim]];
        to = static_cast<T>(to + scale * from);
      }
    });
  });
}

MICA_REGISTER_CPU(index_select, index_select_kernel);
MICA_REGISTER_CPU(index_add, index_add_kernel);

}  // namespace
}  // namespace mica::cpu
