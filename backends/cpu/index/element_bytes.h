// Elements that are only moved: what counts is their size.
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
  switch (size) {
    case 1:
      return f(Tag<uint8_t>{});
    case 2:
      return f(Tag<uint16_t>{});
    case 4:
      return f(Tag<uint32_t>{});
    case 8:
      return f(Tag<uint64_t>{});
    default:
      return f(Tag<Bytes16>{});
  }
}

}  // namespace mica::cpu
