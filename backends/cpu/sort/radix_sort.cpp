#include "backends/cpu/sort/radix_sort.h"

#include <memory>

namespace mica::cpu {
namespace {

// 2^11 open destinations are what the second-level TLB and cache hold; short rows cannot repay clearing that many
// counters.
constexpr int kWideDigit = 11;
constexpr int kNarrowDigit = 8;
constexpr int64_t kWideDigitMin = 6000;

struct Digit {
  int shift;
  uint32_t mask;

  template <class E>
  uint32_t of(E element) const {
    return static_cast<uint32_t>(element >> shift) & mask;
  }
};

// Turns counts[part * buckets + bucket] into the position where that part's first element of the bucket goes.
// Returns false when all elements share one bucket, so that the pass would move nothing.
template <class Count>
bool counts_to_positions(Count* counts, int parts, int buckets, int64_t n) {
  Count position = 0;
  for (int bucket = 0; bucket < buckets; ++bucket) {
    const Count bucket_begin = position;
    for (int part = 0; part < parts; ++part) {
      Count& slot = counts[static_cast<int64_t>(part) * buckets + bucket];
      const Count count = slot;
      slot = position;
      position += count;
    }
    if (static_cast<int64_t>(position - bucket_begin) == n) return false;
  }
  return true;
}

template <class Count, class E>
bool radix_pass(const E* from, E* to, int64_t n, Digit digit, int parts, Count* counts) {
  const int buckets = static_cast<int>(digit.mask) + 1;
  for_each_part(n, parts, [&](int part, int64_t begin, int64_t end) {
    Count* mine = counts + static_cast<int64_t>(part) * buckets;
    std::fill_n(mine, buckets, Count{0});
    for (int64_t i = begin; i < end; ++i) ++mine[digit.of(from[i])];
  });
  if (!counts_to_positions(counts, parts, buckets, n)) return false;
  for_each_part(n, parts, [&](int part, int64_t begin, int64_t end) {
    Count* mine = counts + static_cast<int64_t>(part) * buckets;
    for (int64_t i = begin; i < end; ++i) {
      const E element = from[i];
      to[mine[digit.of(element)]++] = element;
    }
  });
  return true;
}

template <class Count, class E>
E* radix_passes(E* data, E* spare, int64_t n, BitRange range, int digit_bits, int parts, Count* counts) {
  const Digit first{range.low, (1u << digit_bits) - 1};
  for (int done = 0; done < range.count; done += digit_bits) {
    if (radix_pass(data, spare, n, Digit{first.shift + done, first.mask}, parts, counts)) std::swap(data, spare);
  }
  return data;
}

}  // namespace

template <class E>
E* radix_sort(E* data, E* spare, int64_t n, BitRange range, int parts) {
  if (n < 2 || range.count == 0) return data;
  const int widest = n >= kWideDigitMin ? kWideDigit : kNarrowDigit;
  const int passes = (range.count + widest - 1) / widest;
  const int digit_bits = (range.count + passes - 1) / passes;
  if (parts == 1 && n <= INT32_MAX) {
    uint32_t counts[1 << kWideDigit];
    return radix_passes(data, spare, n, range, digit_bits, 1, counts);
  }
  const auto counts = std::make_unique_for_overwrite<int64_t[]>(static_cast<size_t>(parts) << digit_bits);
  return radix_passes(data, spare, n, range, digit_bits, parts, counts.get());
}

template uint32_t* radix_sort(uint32_t*, uint32_t*, int64_t, BitRange, int);
template uint64_t* radix_sort(uint64_t*, uint64_t*, int64_t, BitRange, int);

}  // namespace mica::cpu
