// Types of elements for the kernels of every backend: a type as a value, and the types chosen by size alone or by the
// set that torch's pooling takes.
#pragma once

#include <cstdint>

#include "mica/dtype.h"

namespace mica {

template <class T>
struct Tag {
  using type = T;
};

// For elements that are only moved: calls f with a Tag of a type of that many bytes. For 16 bytes it is Wide.
template <class Wide, class F>
auto visit_bytes(int64_t size, const F& f) {
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
      return f(Tag<Wide>{});
  }
}

// int8 to int64 and uint8; `others` is asked about every other dtype.
template <class F, class Others>
void visit_pooled_integers(DType dtype, const F& f, const Others& others) {
  switch (dtype) {
    case DType::UInt8:
      return f(Tag<uint8_t>{});
    case DType::Int8:
      return f(Tag<int8_t>{});
    case DType::Int16:
      return f(Tag<int16_t>{});
    case DType::Int32:
      return f(Tag<int32_t>{});
    case DType::Int64:
      return f(Tag<int64_t>{});
    default:
      others();
  }
}

}  // namespace mica
