#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/rows.h"
#include "backends/cpu/sort/sort.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {
namespace {

// The number of queries that are searched in step, so that they wait for memory together.
constexpr int kInStep = 16;

// How many of the n boundary keys are less than each query. Every search takes the same steps whatever it finds, so no
// branch can be mispredicted.
template <class K, class KeyAt>
void count_less(const KeyAt& boundary_key, int64_t n, const K* given, int64_t* result) {
  if (n == 0) {
    std::fill_n(result, kInStep, 0);
    return;
  }
  // Arrays of its own, which the compiler keeps in registers.
  K queries[kInStep];
  int64_t counts[kInStep] = {};
  std::copy_n(given, kInStep, queries);
  int64_t length = n;
  while (length > 1) {
    const int64_t half = length / 2;
    for (int q = 0; q < kInStep; ++q) {
      counts[q] += half & -static_cast<int64_t>(boundary_key(counts[q] + half - 1) < queries[q]);
    }
    length -= half;
  }
  for (int q = 0; q < kInStep; ++q) counts[q] += boundary_key(counts[q]) < queries[q];
  std::copy_n(counts, kInStep, result);
}

// A row of boundaries; the stride counts elements.
struct Boundaries {
  const char* data;
  int64_t stride;
  Row<const int64_t> sorter;
  int64_t n;
};

// The functions that depend on the dtype: reading keys, and searching boundaries in place. Everything else depends on
// the width of the keys alone, and is compiled once for each.
template <class K>
struct KeyReads {
  ReadKeys<K> run;
  void (*sorted)(const Boundaries& boundaries, K* keys);  // all of them, in the sorter's order
  void (*count)(const Boundaries& boundaries, const K* queries, int64_t* counts);
};

template <class T>
void read_sorted(const Boundaries& boundaries, OrderKey<T>* keys) {
  const Row<const T> row{reinterpret_cast<const T*>(boundaries.data), boundaries.stride};
  for (int64_t i = 0; i < boundaries.n; ++i) keys[i] = order_key(row[boundaries.sorter[i]]);
}
template <class T>
void count_where_they_lie(const Boundaries& boundaries, const OrderKey<T>* queries, int64_t* counts) {
  const Row<const T> row{reinterpret_cast<const T*>(boundaries.data), boundaries.stride};
  const auto key_at = [row, sorter = boundaries.sorter](int64_t i) {
    return order_key(row[sorter.data ? sorter[i] : i]);
  };
  count_less(key_at, boundaries.n, queries, counts);
}
template <class T>
constexpr KeyReads<OrderKey<T>> kKeyReads = {read_keys<T>, read_sorted<T>, count_where_they_lie<T>};

// A call of searchsorted(). One of the two positions has data.
struct SearchCall {
  const RowShape& shape;
  Rows<const void> boundaries;
  Rows<const int64_t> sorter;
  int64_t queries_per_row;
  Rows<const void> queries;
  Rows<int32_t> narrow;
  Rows<int64_t> wide;
  SearchSide side;

  int64_t total() const { return shape.rows() * queries_per_row; }
};

// A row of boundaries to search, and queries of it.
template <class K>
struct RowSearch {
  const KeyReads<K>& read;
  Boundaries boundaries;
  Row<const char> queries;
  Row<int32_t> narrow;
  Row<int64_t> wide;
  SearchSide side;

  // `all` holds the keys of all boundaries, or is null.
  void run(const K* all, int64_t begin, int64_t end) const {
    // The keys not greater than a key are those less than the next key. The greatest key has no next one: all come
    // before it.
    constexpr K kGreatest = std::numeric_limits<K>::max();
    const bool right = side == SearchSide::Right;
    K keys[kInStep] = {};
    int64_t counts[kInStep], least[kInStep] = {};
    for (; begin < end; begin += kInStep) {
      const int64_t together = std::min<int64_t>(kInStep, end - begin);
      read.run(queries.data, queries.stride, begin, together, keys);
      if (right) {
        for (int q = 0; q < kInStep; ++q) least[q] = keys[q] == kGreatest ? boundaries.n : 0;
        for (int q = 0; q < kInStep; ++q) keys[q] = static_cast<K>(keys[q] + (keys[q] != kGreatest));
      }
      if (all) {
        count_less([all](int64_t i) { return all[i]; }, boundaries.n, keys, counts);
      } else {
        read.count(boundaries, keys, counts);
      }
      if (right) {
        for (int q = 0; q < kInStep; ++q) counts[q] = std::max(counts[q], least[q]);
      }
      if (wide.data) {
        for (int64_t q = 0; q < together; ++q) wide[begin + q] = counts[q];
      } else {
        for (int64_t q = 0; q < together; ++q) narrow[begin + q] = static_cast<int32_t>(counts[q]);
      }
    }
  }

  void run(int64_t begin, int64_t end, ScratchArray<K>& keys) const {
    if (end - begin < boundaries.n / 4) return run(nullptr, begin, end);
    // With many queries it pays to compute every boundary's key once.
    keys.reserve(boundaries.n);
    if (boundaries.sorter.data) {
      read.sorted(boundaries, keys.data());
    } else {
      read.run(boundaries.data, boundaries.stride, 0, boundaries.n, keys.data());
    }
    run(keys.data(), begin, end);
  }
};

template <class K>
void search_rows(const SearchCall& call, const KeyReads<K>& read) {
  const auto row_of = [](auto rows, int64_t offset) {
    return Row<std::remove_pointer_t<decltype(rows.data)>>{rows.data ? rows.data + offset : nullptr, rows.stride};
  };
  const auto bytes_of = [](Rows<const void> rows, int64_t offset) {
    return Row<const char>{static_cast<const char*>(rows.data) + offset * static_cast<int64_t>(sizeof(K)), rows.stride};
  };
  // All queries of all rows form one range to split, so that one long row keeps every thread busy too.
  parallel_for(0, call.total(), kParallelGrain / 8, [&](int64_t first, int64_t last) {
    ScratchArray<K> keys;
    RowCursor<4> at(call.shape.batch,
                    {call.boundaries.batch_strides, call.sorter.batch_strides, call.queries.batch_strides,
                     call.wide.data ? call.wide.batch_strides : call.narrow.batch_strides},
                    first / call.queries_per_row);
    int64_t begin = first % call.queries_per_row;
    while (first < last) {
      const Row<const char> boundaries = bytes_of(call.boundaries, at.offset(0));
      const RowSearch<K> search{read,
                                {boundaries.data, boundaries.stride, row_of(call.sorter, at.offset(1)), call.shape.n},
                                bytes_of(call.queries, at.offset(2)),
                                row_of(call.narrow, at.offset(3)),
                                row_of(call.wide, at.offset(3)),
                                call.side};
      const int64_t end = std::min(call.queries_per_row, begin + (last - first));
      search.run(begin, end, keys);
      first += end - begin;
      begin = 0;
      at.next();
    }
  });
}

}  // namespace

template <class Index>
void searchsorted(DType dtype, const RowShape& boundary_shape, Rows<const void> boundaries, Rows<const int64_t> sorter,
                  int64_t queries_per_row, Rows<const void> queries, Rows<Index> positions, SearchSide side) {
  check_batch_rank("searchsorted", boundary_shape);
  MICA_CHECK(boundary_shape.n <= std::numeric_limits<Index>::max(), "searchsorted(): positions in ", boundary_shape.n,
             " boundaries do not fit the int32 that was asked for; use int64");
  SearchCall call{boundary_shape, boundaries, sorter, queries_per_row, queries, {}, {}, side};
  if constexpr (sizeof(Index) == 4) {
    call.narrow = positions;
  } else {
    call.wide = positions;
  }
  if (call.total() == 0) return;
  visit_ordered("searchsorted", dtype, [&]<class T>() { search_rows<OrderKey<T>>(call, kKeyReads<T>); });
}

template void searchsorted(DType, const RowShape&, Rows<const void>, Rows<const int64_t>, int64_t, Rows<const void>,
                           Rows<int32_t>, SearchSide);
template void searchsorted(DType, const RowShape&, Rows<const void>, Rows<const int64_t>, int64_t, Rows<const void>,
                           Rows<int64_t>, SearchSide);

}  // namespace mica::cpu
