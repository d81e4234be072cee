// Indices as keys, equal keys brought together, and the sums of what belongs to them.
#include <algorithm>
#include <bit>

#include "backends/cpu/scratch.h"
#include "backends/cpu/sort/radix_sort.h"
#include "backends/cpu/visit_dtype.h"
#include "backends/shared/read_element.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

// keys[i] = the position of index i in a row-major array of `sizes`
void keys_kernel(const TensorView& keys, const TensorView& indices, IntArrayRef sizes) {
  const int64_t n = keys.numel;
  auto* key = keys.ptr<int64_t>();
  const auto* from = indices.ptr<const int64_t>();
  parallel_for(0, n, 32768, [&](int64_t begin, int64_t end) {
    std::fill(key + begin, key + end, 0);
    for (size_t d = 0; d < sizes.size(); ++d) {
      const int64_t size = sizes[d], step = indices.strides[1];
      const int64_t* row = from + static_cast<int64_t>(d) * indices.strides[0];
      if (step == 1) {
        for (int64_t i = begin; i < end; ++i) key[i] = key[i] * size + row[i];
      } else {
        for (int64_t i = begin; i < end; ++i) key[i] = key[i] * size + row[i * step];
      }
    }
  });
}

// Positions in the order of their keys, equal ones as they come. Keys and positions share words where they fit.
void sort_positions(int64_t* order, const int64_t* keys, int64_t n, int64_t bound) {
  const int position_bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(n - 1, 1)));
  const int key_bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(bound - 1, 1)));
  if (position_bits + key_bits > 64) {
    for (int64_t i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order, order + n, [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
    return;
  }
  Scratch<uint64_t> words(n), spare(n);
  parallel_for(0, n, 65536, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      words[i] = static_cast<uint64_t>(keys[i]) << position_bits | static_cast<uint64_t>(i);
  });
  uint64_t* at = words.data();
  if (key_bits <= kMaxRadixBits) {
    at = radix_sort(words.data(), spare.data(), n, BitRange{position_bits, key_bits}, get_num_threads());
  } else {
    std::sort(at, at + n);  // no two words are equal
  }
  const uint64_t mask = (uint64_t{1} << position_bits) - 1;
  parallel_for(0, n, 65536, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) order[i] = static_cast<int64_t>(at[i] & mask);
  });
}

// order: positions by key; starts[g]: where group g of equal keys begins in it; starts[groups] = n.
void group_keys_kernel(const TensorView& order, const TensorView& starts, const TensorView& keys, int64_t bound,
                       int64_t* groups) {
  const int64_t n = keys.numel;
  auto* positions = order.ptr<int64_t>();
  auto* start = starts.ptr<int64_t>();
  const auto* key = keys.ptr<const int64_t>();
  bool sorted = true;
  for (int64_t i = 1; i < n && sorted; ++i) sorted = key[i - 1] <= key[i];
  if (sorted) {
    for (int64_t i = 0; i < n; ++i) positions[i] = i;
  } else {
    sort_positions(positions, key, n, bound);
  }
  int64_t count = 0;
  int64_t before = -1;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t k = key[positions[i]];
    start[count] = i;  // stays if a group begins here; otherwise the next group overwrites it
    count += k != before;
    before = k;
  }
  start[count] = n;
  *groups = count;
}

template <class T>
struct Sum {
  using Wide = std::conditional_t<sizeof(T) == 2 && std::is_class_v<T>, float, T>;
};
template <>
struct Sum<bool> {
  using Wide = int;
};
template <>
struct Sum<ComplexHalf> {
  using Wide = complex64;
};

// out[g] = the sum of values[order[i]] for i in group g; rows of `width` elements
void sum_groups_kernel(const TensorView& out, const TensorView& values, const TensorView& order,
                       const TensorView& starts) {
  const int64_t groups = out.sizes[0], width = out.sizes[1];
  const auto *position = order.ptr<const int64_t>(), *start = starts.ptr<const int64_t>();
  if (width == 0) return;
  visit_any("coalesce", out.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_class_v<T> && sizeof(T) == 1) {
      unsupported_dtype("coalesce", out.dtype);
    } else {
      using C = typename Sum<T>::Wide;
      const T* from = values.ptr<const T>();
      T* to = out.ptr<T>();
      parallel_for(0, groups, std::max<int64_t>(1, 16384 / width), [&](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; ++g) {
          const int64_t first = start[g], last = start[g + 1];
          for (int64_t j = 0; j < width; ++j) {
            C sum = static_cast<C>(read_element(from[position[first] * width + j]));
            for (int64_t i = first + 1; i < last; ++i)
              sum = static_cast<C>(sum + static_cast<C>(read_element(from[position[i] * width + j])));
            to[g * width + j] = static_cast<T>(sum);
          }
        }
      });
    }
  });
}

// indices[:, g] = the index whose key is keys[order[starts[g]]]
void unflatten_keys_kernel(const TensorView& indices, const TensorView& keys, const TensorView& order,
                           const TensorView& starts, IntArrayRef sizes) {
  const int64_t groups = indices.sizes[1];
  const auto *key = keys.ptr<const int64_t>(), *position = order.ptr<const int64_t>(),
             *start = starts.ptr<const int64_t>();
  auto* to = indices.ptr<int64_t>();
  const auto dims = static_cast<int64_t>(sizes.size());
  parallel_for(0, groups, 16384, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      int64_t rest = key[position[start[g]]];
      for (int64_t d = dims - 1; d > 0; --d) {
        const int64_t size = sizes[static_cast<size_t>(d)], next = rest / size;
        to[d * indices.strides[0] + g] = rest - next * size;
        rest = next;
      }
      if (dims) to[g] = rest;
    }
  });
}

MICA_REGISTER_CPU(sparse_keys, keys_kernel);
MICA_REGISTER_CPU(sparse_group_keys, group_keys_kernel);
MICA_REGISTER_CPU(sparse_sum_groups, sum_groups_kernel);
MICA_REGISTER_CPU(sparse_unflatten_keys, unflatten_keys_kernel);

}  // namespace
}  // namespace mica::cpu
