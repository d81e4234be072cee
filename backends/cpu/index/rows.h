// Rows that move between an indexed tensor, the table, and a dense one, the rows. A row is what the dimensions behind
// the indexed ones hold; the dimensions before them are outer loops.
#pragma once

#include <vector>

#include "mica/backend/kernel_types.h"

namespace mica::cpu {

// The table's dimensions that are indexed. Offsets into the table are in bytes.
struct IndexedDims {
  IndexedDims(const TensorView& table, int64_t first, TensorViewList indices);

  struct Dim {
    const int64_t* index;
    int64_t size;
    int64_t stride;
  };
  std::vector<Dim> dims;
  int64_t first;
  int64_t positions;

  // Writes the offsets of positions [begin, end). Throws for an index outside its dimension.
  void offsets(int64_t begin, int64_t end, int64_t* out) const;
  // Checks the indices only.
  void check() const;
};

// Positions of one outer slice: position p is the row at table + offsets[p] and at rows + (row_offsets[p] or p *
// row_stride).
struct RowBlock {
  char* table;
  char* rows;
  const int64_t* offsets;
  const int64_t* row_offsets;
  int64_t row_stride;
  int64_t count;
  int64_t run;  // elements of a row, and the bytes between them
  int64_t run_table;
  int64_t run_rows;

  char* row(int64_t p) const { return rows + (row_offsets ? row_offsets[p] : p * row_stride); }
};
using RowLoop = void (*)(const RowBlock& block, const void* context);

// The loops around and inside the positions, for a table whose dimensions [first, first + indexed) are replaced by
// `replaced` dimensions of the rows.
class RowMove {
 public:
  RowMove(const TensorView& table, const TensorView& rows, int64_t first, int64_t indexed, int64_t replaced);

  // The loop gets every position of every outer slice once, on any thread.
  void read(const IndexedDims& dims, RowLoop loop) const;
  // The same, but all positions with equal offsets go to one thread, in their order. All indices are checked before the
  // first call.
  void write(const IndexedDims& dims, RowLoop loop, const void* context) const;

 private:
  struct Loop {
    int64_t size, table, rows;
  };
  int64_t work() const { return outer_count_ * positions_ * run_.size; }
  RowBlock block(int64_t outer) const;
  void read_range(const IndexedDims& dims, const int64_t* offsets, RowLoop loop, int64_t begin, int64_t end) const;
  int64_t row_offset(int64_t p) const { return row_offsets_.empty() ? p * row_stride_ : row_offsets_[p]; }
  void write_slices(const int64_t* offsets, RowLoop loop, const void* context, int64_t begin, int64_t end) const;
  bool write_grouped(const IndexedDims& dims, const int64_t* offsets, RowLoop loop, const void* context) const;
  void write_columns(const int64_t* offsets, RowLoop loop, const void* context) const;
  void write_owned(const int64_t* offsets, RowLoop loop, const void* context) const;

  char* table_;
  char* rows_;
  std::vector<Loop> outer_;  // fastest first
  Loop run_;
  int64_t outer_count_ = 1;
  int64_t positions_ = 1;
  int64_t row_stride_ = 0;
  std::vector<int64_t> row_offsets_;  // used where no single stride leads through the positions
};

// Positions sorted by the row that they name, those of one row in their order: order[begin[r]] to order[begin[r + 1]].
struct PositionsByRow {
  PositionsByRow(const int64_t* rows, int64_t count, int64_t num_rows);  // a negative row counts from the end
  // The first row before which lie `part` of `parts` equal parts of the positions.
  int64_t row_at(int64_t part, int64_t parts) const;

  std::vector<int64_t> begin, order;
  int64_t largest = 0;  // the number of positions of the most frequent row
};

// Loops for elements of a given size: rows <- table and table <- rows.
RowLoop row_reader(int64_t element_size);
RowLoop row_writer(int64_t element_size);

// table += alpha * rows
struct RowAdder {
  RowAdder(const char* op, DType dtype, Scalar alpha);
  RowLoop loop;
  alignas(16) unsigned char alpha[16];
};

}  // namespace mica::cpu
