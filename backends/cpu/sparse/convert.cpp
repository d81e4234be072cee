// Between sparse and dense memory, and between lists of rows and their compressed form.
#include <algorithm>
#include <cstring>

#include "backends/cpu/index/chunks.h"
#include "backends/cpu/index/differs_from_zero.h"
#include "backends/cpu/visit_dtype.h"
#include "backends/shared/read_element.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// compressed[r] = how many of the sorted `rows` are below r
void compress_kernel(const TensorView& compressed, const TensorView& rows) {
  auto* begins = compressed.ptr<int64_t>();
  const auto* row = rows.ptr<const int64_t>();
  const int64_t n = rows.numel, last = compressed.numel - 1;
  int64_t next = 0;
  for (int64_t i = 0; i < n; ++i)
    while (next <= row[i]) begins[next++] = i;
  while (next <= last) begins[next++] = n;
}

void expand_rows_kernel(const TensorView& rows, const TensorView& compressed) {
  const auto* begins = compressed.ptr<const int64_t>();
  auto* row = rows.ptr<int64_t>();
  parallel_for(0, compressed.numel - 1, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) std::fill(row + begins[r], row + begins[r + 1], r);
  });
}

// out[key] += alpha * value, for rows of `width` elements; equal keys add up in their order. Each thread owns a range
// of the output and looks at all keys.
void add_at_keys_kernel(const TensorView& out, const TensorView& keys, const TensorView& values, const Scalar& alpha) {
  const int64_t n = keys.numel, length = out.sizes[0], width = out.sizes[1];
  const auto* key = keys.ptr<const int64_t>();
  if (width == 0 || n == 0) return;
  visit_number_bool("sparse_add", out.dtype, [&]<class T>(Tag<T>) {
    using C = std::conditional_t<sizeof(T) == 2 && std::is_class_v<T>, float, T>;
    const C factor = alpha.to<C>();
    const T* from = values.ptr<const T>();
    T* to = out.ptr<T>();
    const int64_t parts = n * width < 65536 ? 1 : get_num_threads();
    parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
      const int64_t low = length * first / parts, high = length * last / parts;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t k = key[i];
        if (k < low || k >= high) continue;
        T* row = to + k * width;
        const T* add = from + i * width;
        for (int64_t j = 0; j < width; ++j)
          row[j] = static_cast<T>(
              static_cast<C>(static_cast<C>(read_element(row[j])) + factor * static_cast<C>(read_element(add[j]))));
      }
    });
  });
}

// Rows of a dense matrix from compressed ones: zeros, and the values in their columns.
void scatter_rows_kernel(const TensorView& out, const TensorView& compressed, const TensorView& plain,
                         const TensorView& values) {
  const auto *begins = compressed.ptr<const int64_t>(), *column = plain.ptr<const int64_t>();
  const int64_t rows = out.sizes[0], columns = out.sizes[1];
  visit_any("to_dense", out.dtype, [&]<class T>(Tag<T>) {
    const T* from = values.ptr<const T>();
    parallel_for(0, rows, std::max<int64_t>(1, 32768 / (columns + 1)), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        T* to = out.ptr<T>() + r * columns;
        std::memset(static_cast<void*>(to), 0, static_cast<size_t>(columns) * sizeof(T));
        for (int64_t i = begins[r]; i < begins[r + 1]; ++i) to[column[i]] = read_element(from[i]);
      }
    });
  });
}

// Whether the bits of eight elements are all zero: a run of zeros is skipped without a look at each. Other
// representations of zero (-0.0) are looked at.
template <class T>
bool is_blank(const T* p) {
  uint64_t words[sizeof(T)];
  std::memcpy(words, p, sizeof words);
  uint64_t any = 0;
  for (uint64_t w : words) any |= w;
  return any == 0;
}

// Copies the nonzero elements of from[begin, end) to `values`, and their places, counted from `first`, to `places`;
// returns how many. A branch on zero would often be mispredicted, so each element is written, and kept by counting it.
// The output of a chunk may end at its last element, hence the buffer.
template <class T>
int64_t pack_run(const T* from, int64_t begin, int64_t end, int64_t first, bool skips, T* values, int64_t* places) {
  constexpr int64_t kRoom = 256, kGroup = 8;
  T kept[kRoom + kGroup];
  int64_t kept_places[kRoom + kGroup], count = 0, at = 0;
  const auto flush = [&] {
    std::copy(kept, kept + count, values + at);
    std::copy(kept_places, kept_places + count, places + at);
    at += count;
    count = 0;
  };
  const auto take = [&](int64_t i) {
    kept[count] = read_element(from[i]);
    kept_places[count] = i - first;
    count += differs_from_zero(from[i]);
  };
  int64_t i = begin;
  for (; i + kGroup <= end; i += kGroup) {
    if (skips && is_blank(from + i)) continue;
    for (int64_t k = 0; k < kGroup; ++k) take(i + k);
    if (count >= kRoom) flush();
  }
  for (; i < end; ++i) take(i);
  flush();
  return at;
}

// The elements of a contiguous array that differ from zero, with their indices. `offsets` says where each chunk's
// begin.
void pack_kernel(const TensorView& indices, const TensorView& values, const TensorView& dense,
                 const TensorView& offsets) {
  const int last = dense.ndim - 1;
  const int64_t row_size = dense.sizes[last], step = indices.strides[0];
  auto* to = indices.ptr<int64_t>();
  visit_any("to_sparse", dense.dtype, [&]<class T>(Tag<T>) {
    const T* from = dense.ptr<const T>();
    T* packed = values.ptr<T>();
    const bool skips = values.numel < dense.numel / 32;  // otherwise few groups are all zero
    for_each_chunk(dense.numel, offsets, [&](int64_t begin, int64_t end, int64_t at, int64_t) {
      while (begin < end) {
        const int64_t row = begin / row_size, stop = std::min(end, (row + 1) * row_size), start = at;
        const int64_t first = row * row_size;
        at += pack_run(from, begin, stop, first, skips, packed + at, to + last * step + at);
        int64_t rest = row;
        for (int d = last - 1; d >= 0; --d) {
          const int64_t index = rest % dense.sizes[d];
          rest /= dense.sizes[d];
          std::fill(to + d * step + start, to + d * step + at, index);
        }
        begin = stop;
      }
    });
  });
}

MICA_REGISTER_CPU(sparse_compress, compress_kernel);
MICA_REGISTER_CPU(sparse_expand_rows, expand_rows_kernel);
MICA_REGISTER_CPU(sparse_add_at_keys, add_at_keys_kernel);
MICA_REGISTER_CPU(sparse_scatter_rows, scatter_rows_kernel);
MICA_REGISTER_CPU(sparse_pack, pack_kernel);

}  // namespace
}  // namespace mica::cpu
