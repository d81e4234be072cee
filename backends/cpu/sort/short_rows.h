// Rows short enough to be ranked by comparing every element with every other: no branch depends on the data, no memory
// is allocated, and the comparisons are vectors.
#pragma once

#include <cstdint>
#include <limits>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {

inline constexpr int64_t kShortRowMax = 128;

// Writes to positions[i] where the stable sort of n keys puts key i. The keys are not const, since g++ 12 would warn of
// an array that it cannot see to be filled.
template <class K>
[[gnu::noinline]] void rank_keys(K* given, int64_t n, bool descending, uint8_t* positions) {
  // Signed, since that is what vectors compare; at least 16 bits, to count up to n in.
  using Lane = std::conditional_t<sizeof(K) == 8, int64_t, std::conditional_t<sizeof(K) == 4, int32_t, int16_t>>;
  constexpr Lane kLaneMax = std::numeric_limits<Lane>::max();
  constexpr int kBlock = 64 / sizeof(Lane);
  alignas(64) Lane keys[kShortRowMax + kBlock];
  const K flip = static_cast<K>(descending ? ~K(0) : 0);
  const K to_signed = sizeof(K) == 1 ? 0 : static_cast<K>(K(1) << (8 * sizeof(K) - 1));
  for (int64_t i = 0; i < n; ++i) keys[i] = static_cast<Lane>(static_cast<K>(given[i] ^ flip ^ to_signed));
  const int64_t padded = (n + kBlock - 1) / kBlock * kBlock;
  for (int64_t i = n; i < padded; ++i) keys[i] = kLaneMax;

  alignas(64) Lane ranks[kShortRowMax + kBlock];
  for (int64_t block = 0; block < padded; block += kBlock) {
    Lane smaller[kBlock] = {};
    for (int64_t i = 0; i < n; ++i) {
      const Lane key = keys[i];
      for (int lane = 0; lane < kBlock; ++lane) smaller[lane] += key < keys[block + lane];
    }
    for (int lane = 0; lane < kBlock; ++lane) ranks[block + lane] = smaller[lane];
  }
  uint8_t equals_before[kShortRowMax] = {};
  for (int64_t i = 0; i < n; ++i) positions[i] = static_cast<uint8_t>(ranks[i] + equals_before[ranks[i]]++);
}

template <class T>
void sort_short_row(Row<const T> in, int64_t n, bool descending, Row<T> values, Row<int64_t> indices) {
  uint8_t positions[kShortRowMax];
  OrderKey<T> keys[kShortRowMax];
  read_keys<T>(in.data, in.stride, 0, n, keys);
  rank_keys(keys, n, descending, positions);
  if (values.data) {
    for (int64_t i = 0; i < n; ++i) values[positions[i]] = in[i];
  }
  if (indices.data) {
    for (int64_t i = 0; i < n; ++i) indices[positions[i]] = i;
  }
}

}  // namespace mica::cpu
