#include <algorithm>
#include <cstring>
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

// A call of topk() for elements whose keys have the type K. The dtype decides only how keys are read, and how k chosen
// elements that lie side by side are sorted.
template <class K>
struct TopkTask {
  DType dtype;
  int64_t n;
  int64_t k;
  bool largest;
  bool sorted;
  ReadKeys<K> read;
  void (*sort)(const void* chosen, int64_t k, bool descending, RowBytes<char> values, int64_t* order,
               SortScratch& scratch, int parts);

  // Reads keys so that the first elements of the wanted order have the smallest.
  void read_keys(RowBytes<const char> in, int64_t begin, int64_t count, K* keys) const {
    read(in.data, in.stride, begin, count, keys);
    if (!largest) return;
    for (int64_t i = 0; i < count; ++i) keys[i] = static_cast<K>(~keys[i]);
  }
};

template <class T>
void sort_chosen(const void* chosen, int64_t k, bool descending, RowBytes<char> values, int64_t* order,
                 SortScratch& scratch, int parts) {
  sort_row_with_indices<T>({static_cast<const T*>(chosen), 1}, k, descending,
                           {reinterpret_cast<T*>(values.data), values.stride}, {order, 1}, scratch, parts);
}

// A row of the input, and where its results go; null data marks results that are not wanted.
struct TopkRow {
  RowBytes<const char> in;
  RowBytes<char> values;
  Row<int64_t> indices;

  template <class K>
  void put(int64_t position, int64_t index) const {
    constexpr int kBytes = sizeof(K);
    if (values.data) std::memcpy(values.at<kBytes>(position), in.at<kBytes>(index), kBytes);
    if (indices.data) indices[position] = index;
  }
};

constexpr int64_t kKeysTogether = 64;

// Leaves in `buffer` the best candidates of [begin, end), k or all of them if fewer, in no order.
template <class K>
void best_of_range(const TopkTask<K>& task, RowBytes<const char> in, int64_t begin, int64_t end,
                   std::vector<Candidate>& buffer) {
  const int64_t k = task.k;
  // A threshold from k of the first `capacity` elements lets about k in capacity of the next pass: the larger, the
  // fewer times the buffer fills, and the longer each selection from it takes.
  const int64_t capacity = std::min(end - begin, 4 * k + 64);
  buffer.resize(static_cast<size_t>(capacity + kFilterBlockMax));
  K keys[kKeysTogether];
  int64_t at = begin, count = 0;
  while (count < capacity) {
    const int64_t together = std::min(kKeysTogether, capacity - count);
    task.read_keys(in, at, together, keys);
    for (int64_t i = 0; i < together; ++i) buffer[count + i] = {keys[i], at + i};
    count += together;
    at += together;
  }
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
      while (at < end && count < capacity) {
        const int64_t together = std::min(kKeysTogether, end - at);
        task.read_keys(in, at, together, keys);
        for (int64_t i = 0; i < together && count < capacity; ++i, ++at)
          if (keys[i] < threshold) buffer[count++] = {keys[i], at};
      }
    }
  }
  buffer.resize(static_cast<size_t>(count));
}

template <class K>
void topk_by_filter(const TopkTask<K>& task, const TopkRow& row, int parts, std::vector<Candidate>& best) {
  const int64_t k = task.k;
  if (parts == 1) {
    best_of_range(task, row.in, 0, task.n, best);
  } else {
    std::vector<std::vector<Candidate>> best_of_part(static_cast<size_t>(parts));
    for_each_part(task.n, parts, [&](int part, int64_t begin, int64_t end) {
      best_of_range(task, row.in, begin, end, best_of_part[part]);
    });
    best.clear();
    for (const auto& part : best_of_part) best.insert(best.end(), part.begin(), part.end());
    std::nth_element(best.begin(), best.begin() + (k - 1), best.end());
    best.resize(static_cast<size_t>(k));
  }
  if (task.sorted) std::sort(best.begin(), best.end());
  for (int64_t i = 0; i < k; ++i) row.put<K>(i, best[i].index);
}

// Keeps the best elements in order; most elements fail at the first comparison.
template <class K>
void topk_by_insertion(const TopkTask<K>& task, const TopkRow& row) {
  Candidate best[kFewMax];
  const int64_t k = task.k;
  if (row.in.stride == 1) {
    best_few(task.dtype, row.in.data, task.n, k, task.largest, best);
  } else {
    K keys[kKeysTogether];
    int64_t count = 0;
    for (int64_t at = 0; at < task.n;) {
      const int64_t together = std::min(kKeysTogether, task.n - at);
      task.read_keys(row.in, at, together, keys);
      for (int64_t i = 0; i < together; ++i, ++at) {
        if (count < k) {
          insert_candidate(best, count++, {keys[i], at});
        } else if (keys[i] < best[k - 1].key) {
          insert_candidate(best, k - 1, {keys[i], at});
        }
      }
    }
  }
  for (int64_t i = 0; i < k; ++i) row.put<K>(i, best[i].index);
}

template <class K>
void topk_of_short_row(const TopkTask<K>& task, const TopkRow& row) {
  uint8_t positions[kShortRowMax];
  K keys[kShortRowMax];
  task.read(row.in.data, row.in.stride, 0, task.n, keys);
  rank_keys(keys, task.n, task.largest, positions);
  for (int64_t i = 0; i < task.n; ++i)
    if (positions[i] < task.k) row.put<K>(positions[i], i);
}

template <class K>
void topk_by_selection(const TopkTask<K>& task, const TopkRow& row, int parts, SortScratch& scratch) {
  constexpr int kBytes = sizeof(K);
  ScratchArray<K> keys(task.n), work(task.n);
  task.read_keys(row.in, 0, task.n, keys.data());
  std::copy_n(keys.data(), task.n, work.data());
  const K last_key = select_key(work.data(), task.n, task.k - 1);

  int64_t ties_left = task.k;
  for (int64_t i = 0; i < task.n; ++i) ties_left -= keys[i] < last_key;
  ScratchArray<int64_t> chosen(task.k);
  int64_t count = 0;
  for (int64_t i = 0; i < task.n; ++i)
    if (keys[i] < last_key || (keys[i] == last_key && ties_left-- > 0)) chosen[count++] = i;

  if (!task.sorted) {
    for (int64_t i = 0; i < task.k; ++i) row.put<K>(i, chosen[i]);
    return;
  }
  ScratchArray<char> elements(task.k * kBytes);
  for (int64_t i = 0; i < task.k; ++i) std::memcpy(elements.data() + i * kBytes, row.in.at<kBytes>(chosen[i]), kBytes);
  ScratchArray<int64_t> order(task.k);
  task.sort(elements.data(), task.k, task.largest, row.values, order.data(), scratch, parts);
  if (row.indices.data) {
    for (int64_t i = 0; i < task.k; ++i) row.indices[i] = chosen[order[i]];
  }
}

struct TopkRows {
  const RowShape& shape;
  Rows<const void> in;
  Rows<void> values;
  Rows<int64_t> indices;
};

template <class K>
void topk_of_rows(const TopkTask<K>& task, const TopkRows& rows) {
  constexpr int64_t kBytes = sizeof(K);
  const int64_t count = rows.shape.rows(), n = task.n, k = task.k;
  const int parts = parts_per_row(count, n);
  for_each_row_range(count, n, parts, [&](int64_t first, int64_t last) {
    SortScratch scratch;
    std::vector<Candidate> best;
    RowCursor<3> at(rows.shape.batch, {rows.in.batch_strides, rows.values.batch_strides, rows.indices.batch_strides},
                    first);
    for (int64_t i = first; i < last; ++i, at.next()) {
      const TopkRow row{{static_cast<const char*>(rows.in.data) + at.offset(0) * kBytes, rows.in.stride},
                        {rows.values.data ? static_cast<char*>(rows.values.data) + at.offset(1) * kBytes : nullptr,
                         rows.values.stride},
                        {rows.indices.data ? rows.indices.data + at.offset(2) : nullptr, rows.indices.stride}};
      if (k <= kFewMax && parts == 1) {
        topk_by_insertion(task, row);
      } else if (n <= kShortRowMax) {
        topk_of_short_row(task, row);
      } else if (is_large_share(k, n)) {
        topk_by_selection(task, row, parts, scratch);
      } else {
        topk_by_filter(task, row, parts, best);
      }
    }
  });
}

}  // namespace

void topk(DType dtype, const RowShape& shape, int64_t k, Rows<const void> in, Rows<void> values, Rows<int64_t> indices,
          bool largest, bool sorted) {
  check_batch_rank("topk", shape);
  const int64_t n = shape.n;
  MICA_CHECK(k >= 0 && k <= n, "selected index k out of range: topk() got k = ", k, " for a dimension of size ", n);
  if (k == 0) return;
  visit_ordered("topk", dtype, [&]<class T>() {
    topk_of_rows<OrderKey<T>>({dtype, n, k, largest, sorted, read_keys<T>, sort_chosen<T>},
                              {shape, in, values, indices});
  });
}

}  // namespace mica::cpu
