// Radix sort of unsigned integers by a range of their bits.
#pragma once

#include <bit>
#include <cstdint>

namespace mica::cpu {

// Bits [low, low + count) of a word.
struct BitRange {
  int low = 0;
  int count = 0;
};

// Gathers which bits vary in a stream of keys.
template <class K>
struct VaryingBits {
  K all_or = 0;
  K all_and = static_cast<K>(~K(0));

  void add(K key) {
    all_or |= key;
    all_and &= key;
  }
  void merge(const VaryingBits& other) {
    all_or |= other.all_or;
    all_and &= other.all_and;
  }
  BitRange range() const {
    const K varying = static_cast<K>(all_or & ~all_and);
    if (varying == 0) return {};
    const int low = std::countr_zero(varying);
    return {low, static_cast<int>(std::bit_width(varying)) - low};
  }
};

inline constexpr int kMaxRadixBits = 32;

// Sorts words by the bits of `range`, at most kMaxRadixBits of them. The words agree in all higher bits. Words that are
// equal in these bits keep their order or, in short runs, are ordered by the bits below; callers put an index there, so
// that it is the same. `spare` has room for n words. Returns the one of the two arrays that holds the result.
template <class Word>
Word* radix_sort(Word* words, Word* spare, int64_t n, BitRange range, int parts);

extern template uint32_t* radix_sort(uint32_t*, uint32_t*, int64_t, BitRange, int);
extern template uint64_t* radix_sort(uint64_t*, uint64_t*, int64_t, BitRange, int);

}  // namespace mica::cpu
