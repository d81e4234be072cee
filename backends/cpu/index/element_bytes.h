// Elements that are only moved, for which only their size counts.
#pragma once

#include <cstdint>

#include "backends/cpu/visit_dtype.h"

namespace mica::cpu {

struct Bytes16 {
  uint64_t low, high;
};

// Calls f with a Tag of a type of that many bytes.
template <class F>
auto visit_element_size(int64_t size, const F& f) {
  return visit_bytes<Bytes16>(size, f);
}

}  // namespace mica::cpu
