// A long array is first split by its highest digit, all threads together, into buckets that fit a core's cache; each
// bucket is then sorted from the lowest digit up by one thread.
#include "backends/cpu/sort/radix_sort.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/cpu/sort/rows.h"

namespace mica::cpu {
namespace {

// 2^8 open destinations fit the first-level cache.
constexpr int kDigitBits = 8;
constexpr int kMaxPasses = kMaxRadixBits / kDigitBits;
// Splitting by more bits evens out the buckets of floating-point keys, whose highest bits are a skewed exponent.
constexpr int kSplitBits = 11;
constexpr int kMaxOpenBuckets = 512;
// The length up to which one core sorts faster with one pass per digit than by splitting first.
constexpr int64_t kInCacheMax = 32768;
constexpr int64_t kFewKeys = 32;

template <class Word>
void insertion_sort(Word* words, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const Word word = words[i];
    int64_t hole = i;
    for (; hole > 0 && word < words[hole - 1]; --hole) words[hole] = words[hole - 1];
    words[hole] = word;
  }
}

struct Digit {
  int shift;
  uint32_t mask;

  template <class Word>
  uint32_t of(Word word) const {
    return static_cast<uint32_t>(word >> shift) & mask;
  }
};

// From the lowest digit up, one pass each; digits that all words share are skipped.
template <class Word>
Word* sort_in_cache(Word* words, Word* spare, int64_t n, BitRange range) {
  if (n <= kFewKeys) {
    insertion_sort(words, n);
    return words;
  }
  const int passes = (range.count + kDigitBits - 1) / kDigitBits;
  const int bits = (range.count + passes - 1) / passes;
  const int buckets = 1 << bits;
  Digit digits[kMaxPasses];
  int64_t counts[kMaxPasses][1 << kDigitBits];
  for (int pass = 0; pass < passes; ++pass) {
    digits[pass] = {range.low + pass * bits, static_cast<uint32_t>(buckets - 1)};
    std::fill_n(counts[pass], buckets, 0);
  }
  for (int64_t i = 0; i < n; ++i) {
    const Word word = words[i];
    for (int pass = 0; pass < passes; ++pass) ++counts[pass][digits[pass].of(word)];
  }
  for (int pass = 0; pass < passes; ++pass) {
    const Digit digit = digits[pass];
    int64_t* positions = counts[pass];
    if (positions[digit.of(words[0])] == n) continue;
    int64_t position = 0;
    for (int bucket = 0; bucket < buckets; ++bucket) position += std::exchange(positions[bucket], position);
    for (int64_t i = 0; i < n; ++i) {
      const Word word = words[i];
      spare[positions[digit.of(word)]++] = word;
    }
    std::swap(words, spare);
  }
  return words;
}

// Which bucket each word of an array goes to, and where each of the parts puts its share of a bucket.
struct Split {
  Digit digit;
  std::vector<int64_t> begins;     // where each bucket begins, and the end of the last
  std::vector<int64_t> positions;  // [part][bucket]

  int buckets() const { return static_cast<int>(digit.mask) + 1; }
};

template <class Word>
Split plan_split(const Word* words, int64_t n, BitRange range, int parts) {
  int bits = std::min(kSplitBits, range.count);
  int buckets = 1 << bits;
  Split split{{range.low + range.count - bits, static_cast<uint32_t>(buckets - 1)}, {}, {}};
  std::vector<int64_t>& counts = split.positions;
  counts.resize(static_cast<size_t>(parts) * buckets);
  for_each_part(n, parts, [&](int part, int64_t begin, int64_t end) {
    int64_t* mine = counts.data() + static_cast<int64_t>(part) * buckets;
    for (int64_t i = begin; i < end; ++i) ++mine[split.digit.of(words[i])];
  });

  const auto count_open = [&] {
    int open = 0;
    for (int bucket = 0; bucket < buckets; ++bucket) {
      int64_t count = 0;
      for (int part = 0; part < parts; ++part) count += counts[static_cast<int64_t>(part) * buckets + bucket];
      open += count > 0;
    }
    return open;
  };
  if (bits > kDigitBits && count_open() > kMaxOpenBuckets) {
    const int merged = 1 << (bits - kDigitBits);
    for (size_t i = 0; i < counts.size() / merged; ++i) {
      int64_t sum = 0;
      for (int j = 0; j < merged; ++j) sum += counts[i * merged + j];
      counts[i] = sum;
    }
    split.digit.shift += bits - kDigitBits;
    split.digit.mask = (1u << kDigitBits) - 1;
    buckets = 1 << kDigitBits;
    counts.resize(static_cast<size_t>(parts) * buckets);
  }

  int64_t position = 0;
  split.begins.reserve(static_cast<size_t>(buckets) + 1);
  for (int bucket = 0; bucket < buckets; ++bucket) {
    split.begins.push_back(position);
    for (int part = 0; part < parts; ++part) {
      position += std::exchange(counts[static_cast<int64_t>(part) * buckets + bucket], position);
    }
  }
  split.begins.push_back(position);
  return split;
}

template <class Word>
Word* sort_by_splitting(Word* words, Word* spare, int64_t n, BitRange range, int parts) {
  Split split = plan_split(words, n, range, parts);
  for_each_part(n, parts, [&](int part, int64_t begin, int64_t end) {
    int64_t* positions = split.positions.data() + static_cast<int64_t>(part) * split.buckets();
    const Digit digit = split.digit;
    for (int64_t i = begin; i < end; ++i) {
      const Word word = words[i];
      spare[positions[digit.of(word)]++] = word;
    }
  });

  if (split.digit.shift == range.low) return spare;
  const BitRange below{range.low, split.digit.shift - range.low};
  const auto sort_bucket = [&](int64_t begin, int64_t size, int bucket_parts) {
    const Word* sorted = radix_sort(spare + begin, words + begin, size, below, bucket_parts);
    if (sorted != words + begin) std::copy_n(sorted, size, words + begin);
  };
  // Each part takes the buckets that begin in it; those large enough to occupy all threads are left to the end.
  struct Bucket {
    int64_t begin, size;
  };
  std::vector<Bucket> shared;
  std::mutex sharing;
  for_each_part(n, parts, [&](int, int64_t begin, int64_t end) {
    const auto first = std::lower_bound(split.begins.begin(), split.begins.end() - 1, begin);
    for (auto bucket = first; bucket + 1 != split.begins.end() && *bucket < end; ++bucket) {
      const int64_t size = bucket[1] - bucket[0];
      if (size == 0) continue;
      if (parts > 1 && size > 2 * kInCacheMax && size > n / (2 * parts)) {
        const std::lock_guard lock(sharing);
        shared.push_back({*bucket, size});
      } else {
        sort_bucket(*bucket, size, 1);
      }
    }
  });
  for (const Bucket& bucket : shared) sort_bucket(bucket.begin, bucket.size, parts);
  return words;
}

}  // namespace

template <class Word>
Word* radix_sort(Word* words, Word* spare, int64_t n, BitRange range, int parts) {
  if (range.count == 0) return words;
  const bool is_one_pass = parts == 1 && range.count <= kDigitBits;
  const bool fits_cache = n <= (parts > 1 ? kParallelGrain : kInCacheMax);
  if (is_one_pass || fits_cache) return sort_in_cache(words, spare, n, range);
  return sort_by_splitting(words, spare, n, range, parts);
}

template uint32_t* radix_sort(uint32_t*, uint32_t*, int64_t, BitRange, int);
template uint64_t* radix_sort(uint64_t*, uint64_t*, int64_t, BitRange, int);

}  // namespace mica::cpu
