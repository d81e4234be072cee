// nonzero_offsets and nonzero: the places of elements that differ from zero. Also first_outside, the check of a list of
// indices.
#include <algorithm>

#include "backends/cpu/index/chunks.h"
#include "backends/cpu/index/differs_from_zero.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/core/array_ref.h"

namespace mica::cpu {

namespace {

// Elements [begin, end) in row-major order as runs: body(first element, stride in elements, how many, index of the
// first).
template <class T, class Body>
void for_each_run(const TensorView& v, int64_t begin, int64_t end, const Body& body) {
  const int last = v.ndim - 1;
  const int64_t row = v.ndim ? v.sizes[last] : 1, stride = v.ndim ? v.strides[last] : 1;
  DimVector index(std::max(v.ndim, 1), 0);
  while (begin < end) {
    int64_t rest = begin, offset = 0;
    for (int d = last; d >= 0; --d) {
      index[d] = rest % v.sizes[d];
      rest /= v.sizes[d];
      offset += index[d] * v.strides[d];
    }
    const int64_t count = std::min(end - begin, row - (v.ndim ? index[last] : 0));
    body(v.ptr<const T>() + offset, stride, count, index.data());
    begin += count;
  }
}

bool is_dense(const TensorView& v) {
  int64_t expected = 1;
  for (int d = v.ndim - 1; d >= 0; --d) {
    if (v.sizes[d] != 1 && v.strides[d] != expected) return false;
    expected *= v.sizes[d];
  }
  return true;
}

template <class T>
int64_t count(const T* p, int64_t stride, int64_t n) {
  int64_t total = 0;
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) total += differs_from_zero(p[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) total += differs_from_zero(p[i * stride]);
  }
  return total;
}

// Bytes are summed in registers of bytes, 255 at a time.
template <>
int64_t count<bool>(const bool* p, int64_t stride, int64_t n) {
  auto* bytes = reinterpret_cast<const uint8_t*>(p);
  int64_t total = 0;
  if (stride != 1) {
    for (int64_t i = 0; i < n; ++i) total += bytes[i * stride] != 0;
    return total;
  }
  constexpr int64_t kLanes = 64, kSteps = 255;
  while (n >= kLanes) {
    uint8_t sums[kLanes] = {};
    const int64_t steps = std::min(n / kLanes, kSteps);
    for (int64_t s = 0; s < steps; ++s, bytes += kLanes)
      for (int64_t k = 0; k < kLanes; ++k) sums[k] = static_cast<uint8_t>(sums[k] + (bytes[k] != 0));
    for (uint8_t s : sums) total += s;
    n -= steps * kLanes;
  }
  for (int64_t i = 0; i < n; ++i) total += bytes[i] != 0;
  return total;
}

void nonzero_offsets_kernel(const TensorView& offsets, const TensorView& self) {
  const int64_t chunks = offsets.numel - 1, size = (self.numel + chunks - 1) / chunks;
  auto* table = offsets.ptr<int64_t>();
  visit_any("nonzero", self.dtype, [&]<class T>(Tag<T>) {
    const bool dense = is_dense(self);
    parallel_for(0, chunks, 1, [&](int64_t from, int64_t to) {
      for (int64_t c = from; c < to; ++c) {
        const int64_t begin = std::min(c * size, self.numel), end = std::min(begin + size, self.numel);
        int64_t total = 0;
        if (dense) {
          total = count(self.ptr<const T>() + begin, 1, end - begin);
        } else {
          for_each_run<T>(self, begin, end,
                          [&](const T* p, int64_t stride, int64_t n, const int64_t*) { total += count(p, stride, n); });
        }
        table[c + 1] = total;
      }
    });
  });
  table[0] = 0;
  for (int64_t c = 0; c < chunks; ++c) table[c + 1] += table[c];
}

void nonzero_kernel(const TensorView& out, const TensorView& self, const TensorView& offsets) {
  if (self.ndim == 0) return;
  const int last = self.ndim - 1;
  visit_any("nonzero", self.dtype, [&]<class T>(Tag<T>) {
    for_each_chunk(self.numel, offsets, [&](int64_t begin, int64_t end, int64_t first, int64_t stop) {
      int64_t row = first;
      for_each_run<T>(self, begin, end, [&](const T* p, int64_t stride, int64_t n, const int64_t* index) {
        const int64_t before = row, step = out.strides[0];
        auto* column = out.ptr<int64_t>() + last * out.strides[1];
        for (int64_t i = 0; i < n && row < stop; ++i) {
          column[row * step] = index[last] + i;
          row += differs_from_zero(p[i * stride]);
        }
        for (int d = 0; d < last; ++d) {
          column = out.ptr<int64_t>() + d * out.strides[1];
          for (int64_t r = before; r < row; ++r) column[r * step] = index[d];
        }
      });
    });
  });
}

void first_outside_kernel(const TensorView& index, int64_t low, int64_t high, int64_t* position) {
  auto* values = index.ptr<const int64_t>();
  const auto span = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  // A number whose highest bit says whether an index is outside. Blocks of a known length become vectors.
  const auto mark = [=](int64_t i) {
    const uint64_t place = static_cast<uint64_t>(values[i]) - static_cast<uint64_t>(low);
    return place | (span - 1 - place);
  };
  const auto is_outside = [&](int64_t i) { return mark(i) >> 63 != 0; };
  bool found = false;
  parallel_for(0, index.numel, 65536, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlock = 64;
    uint64_t marks = 0;
    for (; begin + kBlock <= end; begin += kBlock)
      for (int64_t i = 0; i < kBlock; ++i) marks |= mark(begin + i);
    for (; begin < end; ++begin) marks |= mark(begin);
    if (marks >> 63) __atomic_store_n(&found, true, __ATOMIC_RELAXED);
  });
  *position = -1;
  if (!found) return;
  for (int64_t i = 0; i < index.numel && *position < 0; ++i)
    if (is_outside(i)) *position = i;
}

MICA_REGISTER_CPU(nonzero_offsets, nonzero_offsets_kernel);
MICA_REGISTER_CPU(nonzero, nonzero_kernel);
MICA_REGISTER_CPU(first_outside, first_outside_kernel);

}  // namespace
}  // namespace mica::cpu
