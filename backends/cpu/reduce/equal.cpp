// Whether two tensors hold the same values.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "backends/cpu/reduce/element_load.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int64_t kChunk = 1024;

template <class T>
bool same(const T* a, const T* b, int64_t n) {
  if constexpr (std::is_integral_v<T>) return std::memcmp(a, b, n * sizeof(T)) == 0;
  bool differ = false;
  for (int64_t i = 0; i < n; ++i) differ |= !(a[i] == b[i]);
  return !differ;
}

// A row of n elements, `stride` bytes apart each, compared in contiguous chunks.
template <class T>
bool same_row(const ElementLoad& load, const char* a, int64_t a_stride, const char* b, int64_t b_stride, int64_t n) {
  alignas(64) T x[kChunk], y[kChunk];
  const bool a_direct = load.direct && a_stride == load.bytes, b_direct = load.direct && b_stride == load.bytes;
  for (int64_t i = 0; i < n; i += kChunk) {
    const int64_t count = std::min(kChunk, n - i);
    if (!a_direct) load.load(a + i * a_stride, a_stride, count, x);
    if (!b_direct) load.load(b + i * b_stride, b_stride, count, y);
    if (!same(a_direct ? reinterpret_cast<const T*>(a + i * a_stride) : x,
              b_direct ? reinterpret_cast<const T*>(b + i * b_stride) : y, count))
      return false;
  }
  return true;
}

bool joins(const TensorView& t, int d) { return t.strides[d] == t.strides[d + 1] * t.sizes[d + 1]; }

void equal_kernel(const TensorView& self, const TensorView& other, bool* result) {
  const ElementLoad& load = load_number("equal_notnan_cpu", self.dtype);
  // Trailing dimensions that are contiguous among themselves in both make up one row.
  int outer = self.ndim;
  int64_t row = 1, a_stride = load.bytes, b_stride = load.bytes;
  if (outer > 0) {
    --outer;
    row = self.sizes[outer];
    a_stride = self.strides[outer] * load.bytes;
    b_stride = other.strides[outer] * load.bytes;
    for (; outer > 0 && joins(self, outer - 1) && joins(other, outer - 1); --outer) row *= self.sizes[outer - 1];
  }
  std::atomic<bool> equal{true};
  visit_loaded(self.dtype, [&]<class T>(Tag<T>) {
    const int64_t pieces = (row + kChunk * 16 - 1) / (kChunk * 16), rows = self.numel / row;
    const int64_t grain = std::max<int64_t>(1, 32768 / std::min<int64_t>(row, kChunk * 16));
    parallel_for(0, rows * pieces, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && equal.load(std::memory_order_relaxed); ++i) {
        const auto* a = static_cast<const char*>(self.data);
        const auto* b = static_cast<const char*>(other.data);
        int64_t rest = i / pieces;
        for (int d = outer - 1; d >= 0; --d) {
          const int64_t at = rest % self.sizes[d];
          rest /= self.sizes[d];
          a += at * self.strides[d] * load.bytes;
          b += at * other.strides[d] * load.bytes;
        }
        const int64_t from = i % pieces * kChunk * 16, count = std::min(kChunk * 16, row - from);
        if (!same_row<T>(load, a + from * a_stride, a_stride, b + from * b_stride, b_stride, count))
          equal.store(false, std::memory_order_relaxed);
      }
    });
  });
  *result = equal.load();
}

MICA_REGISTER_CPU(equal, equal_kernel);

}  // namespace
}  // namespace mica::cpu
