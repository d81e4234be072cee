// Sorting values alone: the keys themselves are sorted, with no index beside them.
#include <algorithm>
#include <mutex>

#include "backends/cpu/sort/order_key.h"
#include "backends/cpu/sort/radix_sort.h"
#include "backends/cpu/sort/rows.h"
#include "backends/cpu/sort/short_rows.h"
#include "backends/cpu/sort/sort_row.h"

namespace mica::cpu {
namespace {

// The key of zeros and the key of NaNs each stand for several bit patterns. Writes those of the input, in its order,
// over the run of `sorted_keys` equal to `key`: what a stable sort of the elements would leave there.
template <class T, class Word>
void restore_equal_run(Row<const T> in, int64_t n, OrderKey<T> key, OrderKey<T> flip, const Word* sorted_keys,
                       Row<T> values) {
  const auto [first, last] = std::equal_range(sorted_keys, sorted_keys + n, static_cast<Word>(OrderKey<T>(key ^ flip)));
  int64_t to = first - sorted_keys;
  const int64_t end = last - sorted_keys;
  for (int64_t i = 0; to < end; ++i) {
    if (order_key(in[i]) == key) values[to++] = in[i];
  }
}

// Long ranges are sorted by their upper bits; what agrees in those is then put in order run by run.
template <class Word>
Word* sort_words(Word* words, Word* spare, int64_t n, BitRange range, int parts) {
  if (range.count <= kMaxRadixBits) return radix_sort(words, spare, n, range, parts);
  const BitRange upper{range.low + range.count - kMaxRadixBits, kMaxRadixBits};
  Word* sorted = radix_sort(words, spare, n, upper, parts);
  const auto same_upper = [&](int64_t a, int64_t b) { return sorted[a] >> upper.low == sorted[b] >> upper.low; };
  for_each_part(n, parts, [&](int, int64_t begin, int64_t end) {
    while (begin > 0 && begin < end && same_upper(begin, begin - 1)) ++begin;
    while (begin < end) {
      int64_t run_end = begin + 1;
      while (run_end < n && same_upper(run_end, begin)) ++run_end;
      if (run_end - begin > 1) std::sort(sorted + begin, sorted + run_end);
      begin = run_end;
    }
  });
  return sorted;
}

}  // namespace

template <class T>
void sort_row_values(Row<const T> in, int64_t n, bool descending, Row<T> values, SortScratch& scratch, int parts) {
  using K = OrderKey<T>;
  if (n <= kShortRowMax) return sort_short_row(in, n, descending, values, {nullptr, 1});

  // Radix passes move 32- or 64-bit words; narrower keys are widened.
  using Word = std::conditional_t<sizeof(K) == 8, uint64_t, uint32_t>;
  const K flip = static_cast<K>(descending ? ~K(0) : 0);
  const int64_t spare_words = (n * static_cast<int64_t>(sizeof(Word)) + 7) / 8;

  Word* words = reinterpret_cast<Word*>(scratch.words(0, spare_words));
  Word* spare = reinterpret_cast<Word*>(scratch.words(1, spare_words));

  VaryingBits<K> varying;
  bool restores = false;
  std::mutex merging;
  for_each_part(n, parts, [&](int, int64_t begin, int64_t end) {
    VaryingBits<K> mine;
    bool ambiguous = false;
    for (int64_t i = begin; i < end; ++i) {
      const T value = in[i];
      const K key = order_key(value);
      if constexpr (kHasNan<T>) {
        ambiguous |= std::bit_cast<K>(value) == kSignBit<T> || key == kNanKey<T>;
      }
      const K flipped = static_cast<K>(key ^ flip);
      mine.add(flipped);
      words[i] = flipped;
    }
    const std::lock_guard lock(merging);
    varying.merge(mine);
    restores |= ambiguous;
  });

  words = sort_words(words, spare, n, varying.range(), parts);
  for_each_part(n, parts, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] = value_of_key<T>(static_cast<K>(static_cast<K>(words[i]) ^ flip));
  });
  if constexpr (kHasNan<T>) {
    if (restores) {
      restore_equal_run<T>(in, n, kZeroKey<T>, flip, words, values);
      restore_equal_run<T>(in, n, kNanKey<T>, flip, words, values);
    }
  }
}

#define MICA_INSTANTIATE(T, Name) template void sort_row_values(Row<const T>, int64_t, bool, Row<T>, SortScratch&, int);
MICA_FORALL_INTEGRAL(MICA_INSTANTIATE)
MICA_FORALL_UNSIGNED(MICA_INSTANTIATE)
MICA_FORALL_FLOATING(MICA_INSTANTIATE)
#undef MICA_INSTANTIATE

}  // namespace mica::cpu
