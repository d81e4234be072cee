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

// How many of the n boundary keys are less than each query. Every search takes the same steps whatever it finds, so no
// branch can be mispredicted.
template <class K, class KeyAt>
void count_less(const KeyAt& boundary_key, int64_t n, const K* queries, int64_t* counts) {
  std::fill_n(counts, kInStep, 0);
  if (n == 0) return;
  int64_t length = n;
  while (length > 1) {
    const int64_t half = length / 2;
    for (int q = 0; q < kInStep; ++q) {
      counts[q] += half & -static_cast<int64_t>(boundary_key(counts[q] + half - 1) < queries[q]);
    }
    length -= half;
  }
  for (int q = 0; q < kInStep; ++q) counts[q] += boundary_key(counts[q]) < queries[q];
}

// Where positions are written: one of the two has data.
struct Positions {
  Row<int32_t> narrow;
  Row<int64_t> wide;
};

// A row of boundaries to search, and queries of it.
template <class T>
struct RowSearch {
  using K = OrderKey<T>;
  Row<const T> boundaries;
  Row<const int64_t> sorter;
  int64_t n;
  Row<const T> queries;
  Positions positions;
  SearchSide side;

  K boundary_key(int64_t i) const { return order_key(boundaries[sorter.data ? sorter[i] : i]); }

  template <class KeyAt>
  void run(const KeyAt& key_at, int64_t begin, int64_t end) const {
    // Those not greater than a key are those less than the next one. The greatest key has no next: all are before it.
    constexpr K kGreatest = std::numeric_limits<K>::max();
    const bool right = side == SearchSide::Right;
    K keys[kInStep] = {};
    int64_t counts[kInStep], least[kInStep] = {};
    for (; begin < end; begin += kInStep) {
      const int64_t together = std::min<int64_t>(kInStep, end - begin);
      for (int64_t q = 0; q < together; ++q) keys[q] = order_key(queries[begin + q]);
      if (right) {
        for (int q = 0; q < kInStep; ++q) least[q] = keys[q] == kGreatest ? n : 0;
        for (int q = 0; q < kInStep; ++q) keys[q] = static_cast<K>(keys[q] + (keys[q] != kGreatest));
      }
      count_less(key_at, n, keys, counts);
      if (right) {
        for (int q = 0; q < kInStep; ++q) counts[q] = std::max(counts[q], least[q]);
      }
      if (positions.wide.data) {
        for (int64_t q = 0; q < together; ++q) positions.wide[begin + q] = counts[q];
      } else {
        for (int64_t q = 0; q < together; ++q) positions.narrow[begin + q] = static_cast<int32_t>(counts[q]);
      }
    }
  }

  [[gnu::noinline]] void run(int64_t begin, int64_t end, ScratchArray<K>& keys) const {
    if (end - begin < n / 4) return run([this](int64_t i) { return boundary_key(i); }, begin, end);
    // With many queries it pays to compute every boundary's key once.
    keys.reserve(n);
    for (int64_t i = 0; i < n; ++i) keys[i] = boundary_key(i);
    run([data = keys.data()](int64_t i) { return data[i]; }, begin, end);
  }
};

Positions positions_at(Rows<int32_t> rows, int64_t offset) { return {{rows.data + offset, rows.stride}, {nullptr, 0}}; }
Positions positions_at(Rows<int64_t> rows, int64_t offset) { return {{nullptr, 0}, {rows.data + offset, rows.stride}}; }

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
        const RowSearch<T> search{{static_cast<const T*>(boundaries.data) + at.offset(0), boundaries.stride},
                                  {sorter.data ? sorter.data + at.offset(1) : nullptr, sorter.stride},
                                  n,
                                  {static_cast<const T*>(queries.data) + at.offset(2), queries.stride},
                                  positions_at(positions, at.offset(3)),
                                  side};
        const int64_t end = std::min(queries_per_row, begin + (last - first));
        search.run(begin, end, keys);
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
