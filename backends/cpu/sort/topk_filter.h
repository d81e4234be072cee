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

// Appends to `buffer`, which holds `count` and has room for `capacity` candidates, the elements of [begin, end) whose
// rank key is below `threshold`; stops early rather than overflow.
FilterResult filter_candidates(DType dtype, const void* row, int64_t begin, int64_t end, bool largest,
                               uint64_t threshold, Candidate* buffer, int64_t count, int64_t capacity);

}  // namespace mica::cpu
