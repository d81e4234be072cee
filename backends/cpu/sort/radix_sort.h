// Least-significant-digit radix sort of unsigned integers by a range of their bits.
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/sort/rows.h"

namespace mica::cpu {

// The bits in which a set of keys differ: [low, low + count).
struct BitRange {
  int low = 0;
  int count = 0;
};

// Gathers which bits vary in a stream of keys.
template <class K>
struct VaryingBits {
  K all_or = 0;
  K all_and = static_cast<K>(~K(0));

  void add(K key) {
    all_or |= key;
    all_and &= key;
  }
  void merge(const VaryingBits& other) {
    all_or |= other.all_or;
    all_and &= other.all_and;
  }
  BitRange range() const {
    const uint64_t varying = static_cast<K>(all_or & ~all_and);
    if (varying == 0) return {};
    const int low = __builtin_ctzll(varying);
    return {low, 64 - __builtin_clzll(varying) - low};
  }
};

template <class E>
void insertion_sort(E* data, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const E element = data[i];
    int64_t hole = i;
    for (; hole > 0 && element < data[hole - 1]; --hole) data[hole] = data[hole - 1];
    data[hole] = element;
  }
}

// Rows up to this length are sorted by insertion, on the stack.
inline constexpr int64_t kInsertionSortMax = 48;

// Sorts stably by the bits in `range`, using `spare` (room for n) as the other half of a ping-pong, in as few passes as
// digits of cache-friendly width allow. Returns the one of the two that holds the result.
template <class E>
E* radix_sort(E* data, E* spare, int64_t n, BitRange range, int parts);

extern template uint32_t* radix_sort(uint32_t*, uint32_t*, int64_t, BitRange, int);
extern template uint64_t* radix_sort(uint64_t*, uint64_t*, int64_t, BitRange, int);

}  // namespace mica::cpu
