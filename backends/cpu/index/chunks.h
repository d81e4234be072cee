// A tensor's elements in row-major order, cut into the chunks of a table of offsets: see the slot nonzero_offsets.
#pragma once

#include "mica/backend/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {

// Calls body(begin, end, first, last) for every chunk: elements [begin, end), of which the nonzero ones are [first,
// last) of all.
template <class Body>
void for_each_chunk(int64_t numel, const TensorView& offsets, const Body& body) {
  const int64_t chunks = offsets.numel - 1, size = (numel + chunks - 1) / chunks;
  auto* table = offsets.ptr<const int64_t>();
  parallel_for(0, chunks, 1, [&](int64_t from, int64_t to) {
    for (int64_t c = from; c < to; ++c) {
      const int64_t begin = c * size < numel ? c * size : numel;
      const int64_t end = begin + size < numel ? begin + size : numel;
      body(begin, end, table[c], table[c + 1]);
    }
  });
}

}  // namespace mica::cpu
