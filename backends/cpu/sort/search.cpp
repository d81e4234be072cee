#include <algorithm>
#include <cstdint>
#include <limits>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/rows.h"
#include "backends/cpu/sort/sort.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {
namespace {

// So many queries are searched in step, to wait for memory together.
constexpr int kInStep = 16;

// How many of the n boundary keys come before each query: less than it (Left), or not greater (Right).
// Every search takes the same steps whatever it finds, so no branch can be mispredicted.
template <SearchSide side, class K, class KeyAt>
void count_before(const KeyAt& boundary_key, int64_t n, const K* queries, int64_t* counts) {
  const auto is_before = [](K boundary, K query) {
    return side == SearchSide::Left ? boundary < query : boundary <= query;
  };
  std::fill_n(counts, kInStep, 0);
  if (n == 0) return;
  int64_t length = n;
  while (length > 1) {
    const int64_t half = length / 2;
    for (int q = 0; q < kInStep; ++q) {
      counts[q] += half & -static_cast<int64_t>(is_before(boundary_key(counts[q] + half - 1), queries[q]));
    }
    length -= half;
  }
  for (int q = 0; q < kInStep; ++q) counts[q] += is_before(boundary_key(counts[q]), queries[q]);
}

// A row of boundaries to search, and queries of it.
template <class T, class Index>
struct RowSearch {
  using K = OrderKey<T>;
  Row<const T> boundaries;
  Row<const int64_t> sorter;
  int64_t n;
  Row<const T> queries;
  Row<Index> positions;

  K boundary_key(int64_t i) const { return order_key(boundaries[sorter.data ? sorter[i] : i]); }

  template <SearchSide side, class KeyAt>
  void run(const KeyAt& key_at, int64_t begin, int64_t end) const {
    K keys[kInStep] = {};
    int64_t counts[kInStep];
    for (; begin < end; begin += kInStep) {
      const int64_t together = std::min<int64_t>(kInStep, end - begin);
      for (int64_t q = 0; q < together; ++q) keys[q] = order_key(queries[begin + q]);
      count_before<side>(key_at, n, keys, counts);
      for (int64_t q = 0; q < together; ++q) positions[begin + q] = static_cast<Index>(counts[q]);
    }
  }

  template <SearchSide side>
  void run(int64_t begin, int64_t end, ScratchArray<K>& keys) const {
    if (end - begin < n / 4) return run<side>([this](int64_t i) { return boundary_key(i); }, begin, end);
    // With many queries it pays to compute every boundary's key once.
    keys.reserve(n);
    for (int64_t i = 0; i < n; ++i) keys[i] = boundary_key(i);
    run<side>([data = keys.data()](int64_t i) { return data[i]; }, begin, end);
  }
};

}  // namespace

template <class Index>
void searchsorted(DType dtype, const RowShape& boundary_shape, Rows<const void> boundaries, Rows<const int64_t> sorter,
                  int64_t queries_per_row, Rows<const void> queries, Rows<Index> positions, SearchSide side) {
  check_batch_rank("searchsorted", boundary_shape);
  const int64_t n = boundary_shape.n, total = boundary_shape.rows() * queries_per_row;
  MICA_CHECK(n <= std::numeric_limits<Index>::max(), "searchsorted(): positions in ", n,
             " boundaries do not fit the int32 that was asked for; use int64");
  if (total == 0) return;
  visit_ordered("searchsorted", dtype, [&]<class T>() {
    // All queries of all rows form one range to split, so that one long row keeps every thread busy too.
    parallel_for(0, total, kParallelGrain / 8, [&](int64_t first, int64_t last) {
      ScratchArray<OrderKey<T>> keys;
      RowCursor<4> at(boundary_shape.batch,
                      {boundaries.batch_strides, sorter.batch_strides, queries.batch_strides, positions.batch_strides},
                      first / queries_per_row);
      int64_t begin = first % queries_per_row;
      while (first < last) {
        const RowSearch<T, Index> search{{static_cast<const T*>(boundaries.data) + at.offset(0), boundaries.stride},
                                         {sorter.data ? sorter.data + at.offset(1) : nullptr, sorter.stride},
                                         n,
                                         {static_cast<const T*>(queries.data) + at.offset(2), queries.stride},
                                         {positions.data + at.offset(3), positions.stride}};
        const int64_t end = std::min(queries_per_row, begin + (last - first));
        if (side == SearchSide::Left) {
          search.template run<SearchSide::Left>(begin, end, keys);
        } else {
          search.template run<SearchSide::Right>(begin, end, keys);
        }
        first += end - begin;
        begin = 0;
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
