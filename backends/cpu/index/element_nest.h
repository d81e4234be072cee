// The loops of gather and scatter over the elements of an index: a nest whose fastest dimension is the inner loop.
// Three operands walk along: the index, the dense tensor (gather's result, scatter's source) and the indexed one, the
// table, which stands still along `dim`.
#pragma once

#include <vector>

#include "mica/backend/kernel_types.h"

namespace mica::cpu {

// One inner loop: element j is index[j * index_stride], dense[j * dense_stride] and, i being the index,
// table[i * dim_stride + j * table_stride]. Strides are in elements.
struct ElementRun {
  const int64_t* index;
  char* dense;
  char* table;
  int64_t index_stride, dense_stride, table_stride;
  int64_t dim_stride;
  int64_t count;
};

struct ElementNest {
  struct Loop {
    int64_t size, index, dense, table;  // strides in elements
    bool is_dim;
  };
  ElementNest(const TensorView& table, int64_t dim, const TensorView& index, const TensorView& dense);

  std::vector<Loop> loops;  // fastest first; at least one
  const int64_t* index;
  char* dense;
  char* table;
  int64_t dim_stride;
  int64_t dim_size;
  int64_t element;  // bytes
  int64_t numel = 1;

  // Restricts a loop to [begin, end).
  ElementNest part(size_t loop, int64_t begin, int64_t end) const;

  // Calls body(run) for elements [begin, end) of the nest, row by row.
  template <class Body>
  void for_range(int64_t begin, int64_t end, const Body& body) const {
    const Loop& inner = loops[0];
    while (begin < end) {
      const int64_t j = begin % inner.size;
      const int64_t count = end - begin < inner.size - j ? end - begin : inner.size - j;
      int64_t rest = begin / inner.size, i = j * inner.index, d = j * inner.dense, t = j * inner.table;
      for (size_t k = 1; k < loops.size(); ++k) {
        const int64_t at = rest % loops[k].size;
        rest /= loops[k].size;
        i += at * loops[k].index;
        d += at * loops[k].dense;
        t += at * loops[k].table;
      }
      body(ElementRun{index + i, dense + d * element, table + t * element, inner.index, inner.dense, inner.table,
                      dim_stride, count});
      begin += count;
    }
  }
};

}  // namespace mica::cpu
