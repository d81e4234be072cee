// The scan of topk: which elements of a contiguous row beat the worst of the best so far.
#pragma once

#include <cstdint>

#include "mica/dtype.h"

namespace mica::cpu {

// An element by its rank key (its order key, complemented when the largest are wanted, so that smaller is better).
struct Candidate {
  uint64_t key;
  int64_t index;
  bool operator<(const Candidate& other) const { return key != other.key ? key < other.key : index < other.index; }
};

struct FilterResult {
  int64_t next;   // the first index not yet looked at
  int64_t count;  // candidates in the buffer
};

// At most this number of elements is looked at together.
inline constexpr int64_t kFilterBlockMax = 256;

// Appends to `buffer`, which holds `count`, the elements of [begin, end) whose rank key is below `threshold`, until it
// holds `capacity` or more; it has room for capacity + kFilterBlockMax candidates.
FilterResult filter_candidates(DType dtype, const void* row, int64_t begin, int64_t end, bool largest,
                               uint64_t threshold, Candidate* buffer, int64_t count, int64_t capacity);

// At most this number of candidates is kept in order while a row is scanned.
inline constexpr int64_t kFewMax = 16;

// The k best elements of a contiguous row of n, in order; k is at most n and kFewMax.
void best_few(DType dtype, const void* row, int64_t n, int64_t k, bool largest, Candidate* best);

// Puts a candidate that comes later than all others into the ordered best[0, count), which becomes one longer.
inline void insert_candidate(Candidate* best, int64_t count, Candidate candidate) {
  int64_t hole = count;
  for (; hole > 0 && candidate.key < best[hole - 1].key; --hole) best[hole] = best[hole - 1];
  best[hole] = candidate;
}

}  // namespace mica::cpu
