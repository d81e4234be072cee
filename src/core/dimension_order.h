// The order in which dimensions lie in memory.
#pragma once

#include <utility>

#include "mica/core/array_ref.h"

namespace mica {

// All dimensions, fastest first. compare(a, b) is positive if a is slower than b, negative if it is faster, and zero if
// it cannot tell (for a stride of zero, say): such a pair stays as in a contiguous tensor. It sorts by insertion,
// because std::sort cannot take an order with undecided pairs.
template <class Compare>
DimVector fastest_first(int64_t ndim, Compare compare) {
  DimVector order(static_cast<size_t>(ndim));
  for (int64_t i = 0; i < ndim; ++i) order[i] = ndim - 1 - i;
  for (int64_t i = 1; i < ndim; ++i) {
    int64_t moving = i;
    for (int64_t other = i - 1; other >= 0; --other) {
      const int verdict = compare(order[other], order[moving]);
      if (verdict < 0) break;
      if (verdict == 0) continue;
      std::swap(order[other], order[moving]);
      moving = other;
    }
  }
  return order;
}

}  // namespace mica
