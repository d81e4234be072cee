// Sparse tensors from their parts and back. Functions named wrap_* and *_of know nothing of gradients; values_of and
// with_values are operations and do.
#pragma once

#include "core/rare_facts.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/sparse.h"
#include "mica/generated/layers/sparse_implementations.h"
#include "mica/ops.h"

namespace mica::layouts::sparse {

inline bool is_coo(const Tensor& t) { return t.layout() == Layout::SparseCoo; }
inline bool is_sparse(const Tensor& t) { return t.impl()->bits & tensor_bit::kSparse; }
inline bool is_compressed(const Tensor& t) { return is_sparse(t) && !is_coo(t); }
inline bool compresses_rows(Layout l) { return l == Layout::SparseCsr || l == Layout::SparseBsr; }
inline bool has_blocks(Layout l) { return l == Layout::SparseBsr || l == Layout::SparseBsc; }

const char* layout_word(Layout layout);  // as torch's messages name a layout

Tensor wrap_coo(const Tensor& indices, const Tensor& values, IntArrayRef size, bool coalesced);
Tensor wrap_compressed(Layout layout, const Tensor& compressed, const Tensor& plain, const Tensor& values,
                       IntArrayRef size);

// The parts of a sparse tensor, for code that follows its indices. They are checked again where a program has changed
// them.
const SparseParts& parts_of(const Tensor& t);
void require_sparse(const char* op, const Tensor& t);
void require_coo(const char* op, const Tensor& t);

// Checks of parts, with torch's words.
void check_coo(const Tensor& indices, const Tensor& values, IntArrayRef size, bool coalesced);
void check_compressed(Layout layout, const Tensor& compressed, const Tensor& plain, const Tensor& values,
                      IntArrayRef size);

// Operations in the graph: the values, and a tensor of the same indices with other values.
inline Tensor values_of(const Tensor& t) { return mica::_sparse_values(t); }
Tensor with_values(const Tensor& t, const Tensor& values);
inline Tensor coo(const Tensor& indices, const Tensor& values, IntArrayRef size, bool coalesced = false) {
  return mica::_sparse_coo_tensor_unsafe(indices, values, size, coalesced);
}

// Where each index lies in a row-major array of `sizes` (as many as there are rows of indices).
Tensor keys_of(const Tensor& indices, IntArrayRef sizes);

// Positions in the order of their keys, and where each group of equal keys begins (one more entry than groups).
struct Groups {
  Tensor order, starts;
  int64_t count = 0;
};
Groups group_keys(const Tensor& keys, int64_t bound);
Tensor group_numbers(const Groups& groups);  // the number of the group of each position

// A matrix as compressed rows, with int64 indices; indices may repeat and need not be sorted within a row. Not part of
// the graph.
struct Rows {
  Tensor begins, columns, values;
};
Rows rows_of(const Tensor& matrix, bool transposed = false);

// The row and the column of each value of a matrix without blocks.
struct Places {
  Tensor rows, columns;
};
Places places_of(const Tensor& matrix);

// Every index of a compressed tensor (batch, row, column), blocks taken apart: a COO tensor in the graph.
Tensor compressed_to_coo(const Tensor& t);

Tensor int64_indices(const Tensor& indices);

// `made`, with indices of the same width as those of `from`, from which it was made. Both are in the graph.
Tensor with_indices_like(const Tensor& made, const Tensor& from);
int64_t product_of(IntArrayRef sizes);

}  // namespace mica::layouts::sparse
