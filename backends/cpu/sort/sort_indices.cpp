// Sorting with indices. A row becomes an array of 64-bit words, 32 key bits above 32 index bits, whatever the dtype:
// one radix sort serves all, and moves the index for free. 64-bit keys are sorted by the 32 bits below the highest one
// in which they differ; the few runs that agree in all of those are then put in order by the rest.
#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>
#include <vector>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/radix_sort.h"
#include "backends/cpu/sort/rows.h"
#include "backends/cpu/sort/short_rows.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {
namespace {

constexpr int kIndexBits = 32;
// Runs up to this length are put in order by insertion, which reads few keys a second time.
constexpr int64_t kInsertionMax = 24;
constexpr int64_t kMaxPackedRow = std::numeric_limits<uint32_t>::max();

inline uint32_t packed_index(uint64_t word) { return static_cast<uint32_t>(word); }
inline uint32_t packed_key(uint64_t word) { return static_cast<uint32_t>(word >> kIndexBits); }
inline uint64_t pack(uint64_t key, int64_t index) { return key << kIndexBits | static_cast<uint64_t>(index); }

// Reads the keys of a row; complemented to sort downwards.
template <class T>
struct KeyReader {
  Row<const T> in;
  OrderKey<T> flip;

  KeyReader(Row<const T> row, bool descending)
      : in(row), flip(static_cast<OrderKey<T>>(descending ? ~OrderKey<T>(0) : 0)) {}

  OrderKey<T> operator()(int64_t i) const { return static_cast<OrderKey<T>>(order_key(in[i]) ^ flip); }

  // Calls visit(i, key); contiguous rows get a loop of their own, which vectorises.
  template <class Visit>
  void for_each(int64_t begin, int64_t end, Visit&& visit) const {
    if (in.stride == 1) {
      const T* elements = in.data;
      for (int64_t i = begin; i < end; ++i) visit(i, static_cast<OrderKey<T>>(order_key(elements[i]) ^ flip));
    } else {
      for (int64_t i = begin; i < end; ++i) visit(i, (*this)(i));
    }
  }
};

template <class T, class PerElement>
BitRange varying_bits_of(const KeyReader<T>& key, int64_t n, int parts, PerElement&& per_element) {
  VaryingBits<OrderKey<T>> total;
  std::mutex merging;
  for_each_part(n, parts, [&](int, int64_t begin, int64_t end) {
    VaryingBits<OrderKey<T>> mine;
    key.for_each(begin, end, [&](int64_t i, OrderKey<T> k) {
      mine.add(k);
      per_element(i, k);
    });
    const std::lock_guard lock(merging);
    total.merge(mine);
  });
  return total.range();
}

// The 32 bits of the keys that the words hold, and the value of the other bits if it is the same in all.
template <class K>
struct KeyWindow {
  int shift = 0;
  bool is_whole = true;
  K constant_bits = 0;
};

// The element of a word. Where the word tells its whole key, the element is computed from that, since fetching it by
// its index is a cache miss. It is fetched where the key stands for several values (zeros, NaNs) or is only a part of
// the element's.
template <class T>
T value_of_word(uint64_t word, const KeyReader<T>& key, const KeyWindow<OrderKey<T>>& window) {
  using K = OrderKey<T>;
  if (window.is_whole) {
    const K k = static_cast<K>((static_cast<K>(packed_key(word)) << window.shift | window.constant_bits) ^ key.flip);
    if (!kHasNan<T> || (k != kZeroKey<T> && k != kNanKey<T>)) return value_of_key<T>(k);
  }
  return key.in[packed_index(word)];
}

// Sorts the words of a run whose packed keys are equal by the low `bits` bits of their full keys.
template <class T>
void refine_run(uint64_t* run, int64_t length, const KeyReader<T>& key, int bits, SortScratch& scratch, int parts) {
  const auto low_key = [&](uint64_t word) {
    return key(packed_index(word)) & static_cast<OrderKey<T>>((uint64_t{1} << bits) - 1);
  };
  if (length <= kInsertionMax) {
    for (int64_t i = 1; i < length; ++i) {
      const uint64_t word = run[i];
      const auto word_key = low_key(word);
      int64_t hole = i;
      for (; hole > 0 && word_key < low_key(run[hole - 1]); --hole) run[hole] = run[hole - 1];
      run[hole] = word;
    }
    return;
  }
  for_each_part(length, parts, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run[i] = pack(low_key(run[i]), packed_index(run[i]));
  });
  const uint64_t* sorted = radix_sort(run, scratch.words(1, length), length, BitRange{kIndexBits, bits}, parts);
  if (sorted != run) std::copy_n(sorted, length, run);
}

// Orders every run of equal packed keys by the low bits that did not fit. Each part takes the runs that begin in it;
// runs long enough to be shared among the threads are left to the end.
template <class T>
void refine_runs(uint64_t* words, int64_t n, const KeyReader<T>& key, int bits, SortScratch& scratch, int parts) {
  struct Run {
    int64_t begin, length;
  };
  std::vector<Run> shared_runs;
  std::mutex sharing;
  for_each_part(n, parts, [&](int, int64_t begin, int64_t end) {
    SortScratch own_scratch;
    SortScratch& run_scratch = parts == 1 ? scratch : own_scratch;
    int64_t at = begin;
    if (begin > 0) {
      while (at < n && packed_key(words[at]) == packed_key(words[begin - 1])) ++at;
    }
    while (at < end) {
      const uint32_t run_key = packed_key(words[at]);
      int64_t run_end = at + 1;
      while (run_end < n && packed_key(words[run_end]) == run_key) ++run_end;
      if (parts > 1 && run_end - at >= 2 * kParallelGrain) {
        const std::lock_guard lock(sharing);
        shared_runs.push_back({at, run_end - at});
      } else if (run_end - at > 1) {
        refine_run(words + at, run_end - at, key, bits, run_scratch, 1);
      }
      at = run_end;
    }
  });
  for (const Run& run : shared_runs) refine_run(words + run.begin, run.length, key, bits, scratch, parts);
}

// The stable order of n elements by `key(i)`, with a call for each comparison: rows that are so long are rare.
void order_by_keys(int64_t* order, int64_t n, FunctionRef<uint64_t(int64_t)> key) {
  std::iota(order, order + n, int64_t{0});
  std::stable_sort(order, order + n, [&](int64_t a, int64_t b) { return key(a) < key(b); });
}

}  // namespace

template <class T>
void sort_row_with_indices(Row<const T> in, int64_t n, bool descending, Row<T> values, Row<int64_t> indices,
                           SortScratch& scratch, int parts) {
  if (n <= kShortRowMax) return sort_short_row(in, n, descending, values, indices);
  if (n > kMaxPackedRow) return sort_huge_row_with_indices(in, n, descending, values, indices);

  // The output serves as one half of the ping-pong where its layout allows.
  uint64_t* const home = indices.stride == 1 ? reinterpret_cast<uint64_t*>(indices.data) : scratch.words(0, n);
  uint64_t* words = home;
  const KeyReader<T> key(in, descending);
  KeyWindow<OrderKey<T>> window;
  BitRange range;
  if constexpr (sizeof(T) <= 4) {
    range = varying_bits_of(key, n, parts, [&](int64_t i, OrderKey<T> k) { words[i] = pack(k, i); });
  } else {
    range = varying_bits_of(key, n, parts, [](int64_t, OrderKey<T>) {});
    window.shift = std::max(0, range.low + range.count - kIndexBits);
    window.is_whole = range.low >= window.shift;
    window.constant_bits = key(0) & ~(uint64_t{0xffffffff} << window.shift);
    for_each_part(n, parts, [&](int, int64_t begin, int64_t end) {
      key.for_each(begin, end, [&](int64_t i, OrderKey<T> k) { words[i] = pack(k >> window.shift, i); });
    });
    range = window.is_whole ? BitRange{range.low - window.shift, range.count} : BitRange{0, kIndexBits};
  }

  range.low += kIndexBits;
  words = radix_sort(words, scratch.words(1, n), n, range, parts);
  if constexpr (sizeof(T) > 4) {
    if (!window.is_whole) {
      // Refining needs the spare half again.
      if (words != home) std::copy_n(words, n, home);
      words = home;
      refine_runs(words, n, key, window.shift, scratch, parts);
    }
  }

  for_each_part(n, parts, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t word = words[i];
      const int64_t index = packed_index(word);
      if (values.data) values[i] = value_of_word(word, key, window);
      indices[i] = index;
    }
  });
}

template <class T>
void sort_huge_row_with_indices(Row<const T> in, int64_t n, bool descending, Row<T> values, Row<int64_t> indices) {
  const KeyReader<T> key(in, descending);
  std::vector<int64_t> order(static_cast<size_t>(n));
  order_by_keys(order.data(), n, [&](int64_t i) { return uint64_t{key(i)}; });
  for (int64_t i = 0; i < n; ++i) {
    if (values.data) values[i] = in[order[i]];
    indices[i] = order[i];
  }
}

#define MICA_INSTANTIATE(T, Name)                                                                            \
  template void sort_row_with_indices(Row<const T>, int64_t, bool, Row<T>, Row<int64_t>, SortScratch&, int); \
  template void sort_huge_row_with_indices(Row<const T>, int64_t, bool, Row<T>, Row<int64_t>);
MICA_FORALL_INTEGRAL(MICA_INSTANTIATE)
MICA_FORALL_UNSIGNED(MICA_INSTANTIATE)
MICA_FORALL_FLOATING(MICA_INSTANTIATE)
#undef MICA_INSTANTIATE

}  // namespace mica::cpu
