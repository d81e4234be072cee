#include <algorithm>
#include <vector>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/rows.h"
#include "backends/cpu/sort/select.h"
#include "backends/cpu/sort/short_rows.h"
#include "backends/cpu/sort/sort.h"
#include "backends/cpu/sort/sort_row.h"
#include "backends/cpu/sort/topk_filter.h"

namespace mica::cpu {
namespace {

// Above this share of the row, selecting the k-th element and sorting what is before it beats filtering.
bool is_large_share(int64_t k, int64_t n) { return k > 64 && k > n / 16; }

template <class T>
struct TopkTask {
  DType dtype;
  int64_t n;
  int64_t k;
  bool largest;
  bool sorted;

  OrderKey<T> flip() const { return static_cast<OrderKey<T>>(largest ? ~OrderKey<T>(0) : 0); }
};

// Leaves in `buffer` the best candidates of [begin, end), k or all of them if fewer, in no order.
template <class T>
void best_of_range(const TopkTask<T>& task, Row<const T> in, int64_t begin, int64_t end,
                   std::vector<Candidate>& buffer) {
  const int64_t k = task.k;
  // A threshold from k of the first `capacity` elements lets about k in capacity of the next pass: the larger, the
  // fewer times the buffer fills, and the longer each selection from it takes.
  const int64_t capacity = std::min(end - begin, 4 * k + 64);
  buffer.resize(static_cast<size_t>(capacity + kFilterBlockMax));
  int64_t at = begin, count = 0;
  for (; count < capacity; ++at, ++count)
    buffer[count] = {static_cast<OrderKey<T>>(order_key(in[at]) ^ task.flip()), at};
  while (count > k) {
    std::nth_element(buffer.begin(), buffer.begin() + (k - 1), buffer.begin() + count);
    count = k;
    // Later elements lose a tie with earlier ones, so only a strictly better key can still enter.
    const uint64_t threshold = buffer[k - 1].key;
    if (in.stride == 1) {
      const FilterResult scanned =
          filter_candidates(task.dtype, in.data, at, end, task.largest, threshold, buffer.data(), count, capacity);
      at = scanned.next;
      count = scanned.count;
    } else {
      for (; at < end && count < capacity; ++at) {
        const OrderKey<T> key = static_cast<OrderKey<T>>(order_key(in[at]) ^ task.flip());
        if (key < threshold) buffer[count++] = {key, at};
      }
    }
  }
  buffer.resize(static_cast<size_t>(count));
}

template <class T>
void topk_by_filter(const TopkTask<T>& task, Row<const T> in, Row<T> values, Row<int64_t> indices, int parts,
                    std::vector<Candidate>& best) {
  const int64_t k = task.k;
  if (parts == 1) {
    best_of_range(task, in, 0, task.n, best);
  } else {
    std::vector<std::vector<Candidate>> best_of_part(static_cast<size_t>(parts));
    for_each_part(task.n, parts, [&](int part, int64_t begin, int64_t end) {
      best_of_range(task, in, begin, end, best_of_part[part]);
    });
    best.clear();
    for (const auto& part : best_of_part) best.insert(best.end(), part.begin(), part.end());
    std::nth_element(best.begin(), best.begin() + (k - 1), best.end());
    best.resize(static_cast<size_t>(k));
  }
  if (task.sorted) std::sort(best.begin(), best.end());
  for (int64_t i = 0; i < k; ++i) {
    if (values.data) values[i] = in[best[i].index];
    if (indices.data) indices[i] = best[i].index;
  }
}

// The best so far are kept in order, and most elements fall at the first comparison.
template <class T>
void topk_by_insertion(const TopkTask<T>& task, Row<const T> in, Row<T> values, Row<int64_t> indices) {
  Candidate best[kFewMax];
  const int64_t k = task.k;
  if (in.stride == 1) {
    best_few(task.dtype, in.data, task.n, k, task.largest, best);
  } else {
    const auto candidate = [&](int64_t i) {
      return Candidate{static_cast<OrderKey<T>>(order_key(in[i]) ^ task.flip()), i};
    };
    for (int64_t i = 0; i < k; ++i) insert_candidate(best, i, candidate(i));
    for (int64_t i = k; i < task.n; ++i) {
      const Candidate next = candidate(i);
      if (next.key < best[k - 1].key) insert_candidate(best, k - 1, next);
    }
  }
  for (int64_t i = 0; i < k; ++i) {
    if (values.data) values[i] = in[best[i].index];
    if (indices.data) indices[i] = best[i].index;
  }
}

template <class T>
void topk_of_short_row(const TopkTask<T>& task, Row<const T> in, Row<T> values, Row<int64_t> indices) {
  uint8_t positions[kShortRowMax];
  rank_short_row(in, task.n, task.largest, positions);
  for (int64_t i = 0; i < task.n; ++i) {
    if (positions[i] >= task.k) continue;
    if (values.data) values[positions[i]] = in[i];
    if (indices.data) indices[positions[i]] = i;
  }
}

template <class T>
void topk_by_selection(const TopkTask<T>& task, Row<const T> in, Row<T> values, Row<int64_t> indices, int parts,
                       SortScratch& scratch) {
  using K = OrderKey<T>;
  const auto key = [&](int64_t i) { return static_cast<K>(order_key(in[i]) ^ task.flip()); };
  ScratchArray<K> keys(task.n);
  for (int64_t i = 0; i < task.n; ++i) keys[i] = key(i);
  const K last_key = select_key(keys.data(), task.n, task.k - 1);

  int64_t ties_left = task.k;
  for (int64_t i = 0; i < task.n; ++i) ties_left -= key(i) < last_key;
  ScratchArray<T> chosen(task.k);
  ScratchArray<int64_t> chosen_index(task.k);
  int64_t count = 0;
  for (int64_t i = 0; i < task.n; ++i) {
    const K k = key(i);
    if (k < last_key || (k == last_key && ties_left-- > 0)) {
      chosen[count] = in[i];
      chosen_index[count++] = i;
    }
  }

  if (task.sorted) {
    ScratchArray<int64_t> order(task.k);
    sort_row_with_indices<T>({chosen.data(), 1}, task.k, task.largest, values, {order.data(), 1}, scratch, parts);
    if (indices.data) {
      for (int64_t i = 0; i < task.k; ++i) indices[i] = chosen_index[order[i]];
    }
    return;
  }
  for (int64_t i = 0; i < task.k; ++i) {
    if (values.data) values[i] = chosen[i];
    if (indices.data) indices[i] = chosen_index[i];
  }
}

}  // namespace

void topk(DType dtype, const RowShape& shape, int64_t k, Rows<const void> in, Rows<void> values, Rows<int64_t> indices,
          bool largest, bool sorted) {
  check_batch_rank("topk", shape);
  const int64_t rows = shape.rows(), n = shape.n;
  MICA_CHECK(k >= 0 && k <= n, "selected index k out of range: topk() got k = ", k, " for a dimension of size ", n);
  if (k == 0) return;
  const int parts = parts_per_row(rows, n);
  visit_ordered("topk", dtype, [&]<class T>() {
    const TopkTask<T> task{dtype, n, k, largest, sorted};
    for_each_row_range(rows, n, parts, [&](int64_t first, int64_t last) {
      SortScratch scratch;
      std::vector<Candidate> best;
      RowCursor<3> at(shape.batch, {in.batch_strides, values.batch_strides, indices.batch_strides}, first);
      for (int64_t row = first; row < last; ++row, at.next()) {
        const Row<const T> in_row{static_cast<const T*>(in.data) + at.offset(0), in.stride};
        const Row<T> values_row{values.data ? static_cast<T*>(values.data) + at.offset(1) : nullptr, values.stride};
        const Row<int64_t> indices_row{indices.data ? indices.data + at.offset(2) : nullptr, indices.stride};
        if (k <= kFewMax && parts == 1) {
          topk_by_insertion(task, in_row, values_row, indices_row);
        } else if (n <= kShortRowMax) {
          topk_of_short_row(task, in_row, values_row, indices_row);
        } else if (is_large_share(k, n)) {
          topk_by_selection(task, in_row, values_row, indices_row, parts, scratch);
        } else {
          topk_by_filter(task, in_row, values_row, indices_row, parts, best);
        }
      }
    });
  });
}

}  // namespace mica::cpu
