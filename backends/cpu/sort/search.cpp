#include <cstdint>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/rows.h"
#include "backends/cpu/sort/sort.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {
namespace {

// A key in which NaNs come first: a bisection passes over boundaries that are NaN, as torch's does.
template <class T>
OrderKey<T> boundary_key(T value) {
  return static_cast<OrderKey<T>>(order_key(value) + kHasNan<T>);
}

// Bisects with two conditional moves per step; the loop's length does not depend on the data's order.
template <class T, SearchSide side, bool permuted>
int64_t bisect(Row<const T> boundaries, Row<const int64_t> sorter, int64_t n, T query) {
  const OrderKey<T> query_key = boundary_key(query);
  if (kHasNan<T> && query_key == 0) return n;
  int64_t begin = 0, end = n;
  while (begin < end) {
    const int64_t middle = begin + (end - begin) / 2;
    const OrderKey<T> key = boundary_key(boundaries[permuted ? sorter[middle] : middle]);
    const bool is_after = side == SearchSide::Left ? key < query_key : key <= query_key;
    begin = is_after ? middle + 1 : begin;
    end = is_after ? end : middle;
  }
  return begin;
}

}  // namespace

template <class Index>
void searchsorted(DType dtype, const RowShape& boundary_shape, Rows<const void> boundaries, Rows<const int64_t> sorter,
                  int64_t queries_per_row, Rows<const void> queries, Rows<Index> positions, SearchSide side) {
  check_batch_rank("searchsorted", boundary_shape);
  const int64_t n = boundary_shape.n, total = boundary_shape.rows() * queries_per_row;
  if (total == 0) return;
  MICA_CHECK(n <= std::numeric_limits<Index>::max(), "searchsorted(): positions in ", n,
             " boundaries do not fit the int32 that was asked for; use int64");
  visit_ordered("searchsorted", dtype, [&]<class T>() {
    using Bisect = int64_t (*)(Row<const T>, Row<const int64_t>, int64_t, T);
    const bool right = side == SearchSide::Right;
    const Bisect find =
        sorter.data
            ? (right ? Bisect(bisect<T, SearchSide::Right, true>) : Bisect(bisect<T, SearchSide::Left, true>))
            : (right ? Bisect(bisect<T, SearchSide::Right, false>) : Bisect(bisect<T, SearchSide::Left, false>));
    // All queries of all rows form one range to split, so that one long row keeps every thread busy too.
    parallel_for(0, total, kParallelGrain / 16, [&](int64_t first, int64_t last) {
      RowCursor<4> at(boundary_shape.batch,
                      {boundaries.batch_strides, sorter.batch_strides, queries.batch_strides, positions.batch_strides},
                      first / queries_per_row);
      int64_t query = first % queries_per_row;
      while (first < last) {
        const Row<const T> boundary_row{static_cast<const T*>(boundaries.data) + at.offset(0), boundaries.stride};
        const Row<const int64_t> sorter_row{sorter.data ? sorter.data + at.offset(1) : nullptr, sorter.stride};
        const Row<const T> query_row{static_cast<const T*>(queries.data) + at.offset(2), queries.stride};
        const Row<Index> position_row{positions.data + at.offset(3), positions.stride};
        const int64_t row_end = std::min(queries_per_row, query + (last - first));
        first += row_end - query;
        for (; query < row_end; ++query) {
          position_row[query] = static_cast<Index>(find(boundary_row, sorter_row, n, query_row[query]));
        }
        query = 0;
        at.next();
      }
    });
  });
}

template void searchsorted(DType, const RowShape&, Rows<const void>, Rows<const int64_t>, int64_t, Rows<const void>,
                           Rows<int32_t>, SearchSide);
template void searchsorted(DType, const RowShape&, Rows<const void>, Rows<const int64_t>, int64_t, Rows<const void>,
                           Rows<int64_t>, SearchSide);

}  // namespace mica::cpu
