// The element of a given rank, without sorting.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/radix_sort.h"

namespace mica::cpu {

// The key of rank `rank` (0 is the smallest). Reorders and discards the keys: each round keeps those that share the
// highest varying digit with the answer, so the work after the first round is small for all but contrived inputs.
template <class K>
K select_key(K* keys, int64_t n, int64_t rank) {
  constexpr int kDigitBits = 11;
  constexpr int64_t kComparisonMax = 512;
  while (n > kComparisonMax) {
    VaryingBits<K> varying;
    for (int64_t i = 0; i < n; ++i) varying.add(keys[i]);
    const BitRange range = varying.range();
    if (range.count == 0) return keys[0];
    const int shift = std::max(range.low, range.low + range.count - kDigitBits);
    const auto digit = [shift](K key) { return static_cast<uint32_t>(key >> shift) & ((1u << kDigitBits) - 1); };

    int64_t counts[1 << kDigitBits] = {};
    for (int64_t i = 0; i < n; ++i) ++counts[digit(keys[i])];
    uint32_t bucket = 0;
    for (; rank >= counts[bucket]; ++bucket) rank -= counts[bucket];

    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      const K key = keys[i];
      keys[kept] = key;
      kept += digit(key) == bucket;
    }
    n = kept;
  }
  std::nth_element(keys, keys + rank, keys + n);
  return keys[rank];
}

}  // namespace mica::cpu
