// Sorting, selecting and searching along rows, on raw memory.
//
// One order serves all of them: NaN is greater than every number, all NaNs are equal, -0.0 equals +0.0. The dtypes are
// bool, all integers, float16, bfloat16, float32 and float64; another raises. Inputs and outputs must not overlap.
#pragma once

#include <cstdint>
#include <span>

#include "mica/dtype.h"

namespace mica::cpu {

inline constexpr int kMaxBatchDims = 64;

// The shape that the operands of a call share: a batch of rows (of any rank: a tensor's dims without the one worked
// along) of n elements each.
struct RowShape {
  std::span<const int64_t> batch;
  int64_t n;

  int64_t rows() const {
    int64_t product = 1;
    for (int64_t size : batch) product *= size;
    return product;
  }
};

// Where an operand's rows lie. Strides count elements and may be zero or negative; batch_strides has an entry per batch
// dim. An output with null data is one that the caller does not want.
template <class T>
struct Rows {
  T* data = nullptr;
  std::span<const int64_t> batch_strides = {};
  int64_t stride = 1;
};

// Stable in both directions: equal elements keep the order of their indices. Values and indices may each be unwanted;
// values alone are sorted about twice as fast.
void sort(DType dtype, const RowShape& shape, Rows<const void> in, Rows<void> values, Rows<int64_t> indices,
          bool descending);

// The first k elements of the stable sort (descending when `largest`), 0 <= k <= n; when not `sorted`, in any order.
void topk(DType dtype, const RowShape& shape, int64_t k, Rows<const void> in, Rows<void> values, Rows<int64_t> indices,
          bool largest, bool sorted);

// The functions below reduce: they write one value and one index per row, the stride of an output row is not used.
// n must be positive. Among equal elements they name the same index as torch.

// The k-th smallest element, 1 <= k <= n.
void kthvalue(DType dtype, const RowShape& shape, int64_t k, Rows<const void> in, Rows<void> values,
              Rows<int64_t> indices);

// The lower median: a NaN anywhere makes it NaN (Propagate), or NaNs are left out as long as there are numbers
// (Ignore).
enum class NanPolicy : uint8_t { Propagate, Ignore };
void median(DType dtype, const RowShape& shape, NanPolicy policy, Rows<const void> in, Rows<void> values,
            Rows<int64_t> indices);

// The most frequent value, the smallest of them if there are several.
void mode(DType dtype, const RowShape& shape, Rows<const void> in, Rows<void> values, Rows<int64_t> indices);

// For each of the `queries_per_row` queries of a row, the first position in its row of `boundaries` (n ascending
// elements, in the order that `sorter` gives if it has data) whose element is not less (Left) or is greater (Right).
// One row of boundaries serves all queries when its batch strides are zero. A NaN query comes after every number.
// Index is int32_t or int64_t.
enum class SearchSide : uint8_t { Left, Right };
template <class Index>
void searchsorted(DType dtype, const RowShape& boundary_shape, Rows<const void> boundaries, Rows<const int64_t> sorter,
                  int64_t queries_per_row, Rows<const void> queries, Rows<Index> positions, SearchSide side);

// The distinct values of n contiguous elements, ascending (unique) or with only neighbours compared
// (unique_consecutive). Writes them to `values`, which has room for n, and returns how many there are. If wanted:
// inverse[i] is the position of in[i] among the values; counts (room for n) says how often each occurs.
// A NaN is distinct from every other NaN, -0.0 and +0.0 are one value: the one that occurs first.
int64_t unique(DType dtype, const void* in, int64_t n, void* values, int64_t* inverse, int64_t* counts);
int64_t unique_consecutive(DType dtype, const void* in, int64_t n, void* values, int64_t* inverse, int64_t* counts);

// The places of n contiguous rows in lexicographic order; equal rows keep theirs. A NaN is neither less nor greater
// than anything here.
void order_rows(DType dtype, const void* rows, int64_t n, int64_t width, int64_t* places);

}  // namespace mica::cpu
