#include <algorithm>

#include "backends/cpu/pointwise/packing.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/core/array_ref.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

void triangle_kernel(const TensorView& out, const TensorView& self, int64_t diagonal, bool upper) {
  const int n = out.ndim;
  const int64_t rows = out.sizes[n - 2], columns = out.sizes[n - 1];
  const int64_t lines = columns ? out.numel / columns : 0;
  visit_any("triu_tril", out.dtype, [&]<class T>(Tag<T>) {
    parallel_for(0, lines, std::max<int64_t>(1, 32768 / std::max<int64_t>(columns, 1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t line = begin; line < end; ++line) {
                     int64_t rest = line, from = 0, to = 0;
                     for (int d = n - 2; d >= 0; --d) {
                       const int64_t i = rest % out.sizes[d];
                       rest /= out.sizes[d];
                       from += i * self.strides[d];
                       to += i * out.strides[d];
                     }
                     const int64_t row = line % rows;
                     // The first column above the diagonal splits a row into its two parts.
                     const int64_t split = std::clamp<int64_t>(upper ? row + diagonal : row + diagonal + 1, 0, columns);
                     T* o = out.ptr<T>() + to;
                     const T* s = self.ptr<T>() + from;
                     const int64_t os = out.strides[n - 1], ss = self.strides[n - 1];
                     const int64_t first = upper ? split : 0, kept = upper ? columns - split : split;
                     copy_row(sizeof(T), reinterpret_cast<char*>(o + first * os), os * int64_t{sizeof(T)},
                              reinterpret_cast<const char*>(s + first * ss), ss * int64_t{sizeof(T)}, kept);
                     const int64_t zeros = upper ? 0 : split;
                     for (int64_t c = zeros; c < zeros + columns - kept; ++c) o[c * os] = T();
                   }
                 });
  });
}

MICA_REGISTER_CPU(triangle, triangle_kernel);

}  // namespace
}  // namespace mica::cpu
