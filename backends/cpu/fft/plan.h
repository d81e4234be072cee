// The plan of a transform of one length: factors and roots of unity. It is made once and kept for later calls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace mica::cpu::fft {

struct Pass {
  int radix;
  int64_t before, after;  // products of the radices of earlier and of later passes
  int64_t roots;          // where its twiddle factors begin: (radix - 1) pairs for each of `after` places
};

// Turns a length that has no passes of its own into a cyclic convolution of a length that has.
template <class T>
struct Convolution {
  int64_t length = 0;
  // Rader, for a prime p where p - 1 has passes: the elements but the first, in the order of the powers of a primitive
  // root going in and of those of its inverse coming out.
  std::vector<int32_t> from, to;
  // Bluestein, for all others: products with exp(-i pi k^2 / n) going in and coming out, pairs.
  std::vector<T> chirp;
  std::vector<T> spectrum;  // the transform of the other factor, divided by the convolution's length, in pairs

  int64_t size() const;  // in units of 8 bytes
};
// `padded` is the convolution's length where it is Bluestein's: at least 2 length - 1.
template <class T>
Convolution<T> convolution_for(int64_t length, int64_t padded);
// Whether Rader's method can be used.
bool has_rader(int64_t length);

template <class T>
struct Plan {
  int64_t length = 0;
  std::vector<Pass> passes;
  std::vector<T> roots;                         // twiddle factors of all passes, real and imaginary parts in turn
  std::vector<T> prime_roots;                   // cos, sin of 2 pi k / p for k < p, by prime radix
  std::vector<std::pair<int, int64_t>> primes;  // radix, where its roots begin
  std::vector<std::pair<int, std::vector<T>>> prime_rows;  // radix, its factors_of_sums

  // Lengths with a larger prime factor: a convolution of a length without.
  std::shared_ptr<const Plan> convolution;
  Convolution<T> factor;

  int64_t working_length() const { return convolution ? std::max(length, convolution->length) : length; }
  const T* roots_of(int radix) const {
    for (const auto& [prime, at] : primes)
      if (prime == radix) return prime_roots.data() + at;
    return nullptr;
  }
  const T* rows_of(int radix) const {
    for (const auto& [prime, rows] : prime_rows)
      if (prime == radix) return rows.data();
    return nullptr;
  }
};

// The plan of a length, from the cache.
template <class T>
std::shared_ptr<const Plan<T>> plan_of(int64_t length);

// cos and sin of -2 pi k / n, to the last digit of a double.
struct Root {
  double re, im;
};
Root root_of_unity(int64_t k, int64_t n);

// The largest prime that has a pass. A pass takes half as many products for each element as the prime has elements. For
// a much larger prime, that takes longer than a convolution.
constexpr int kLargestRadix = 97;

// The factors of the sums of an odd radix: for each k up to half of it, cos of 2 pi k m / radix for m from 1 to half,
// and then sin. Each list is filled up with zeros to a multiple of four.
constexpr int padded_half(int radix) { return (radix / 2 + 3) / 4 * 4; }
template <class T>
std::vector<T> factors_of_sums(int radix);

// The radices of a length's passes. The last one is -1 where a prime factor is larger than passes take.
std::vector<int> factors_of(int64_t length);

// The smallest length not below `least` that has no prime factor above 5.
int64_t good_length(int64_t least);
// Whether passes take all prime factors.
bool is_smooth(int64_t length);

// A table for the cut of one transform of length rows * columns: root (row * column) for every pair, the real parts of
// a row and then its imaginary parts.
template <class T>
std::shared_ptr<const std::vector<T>> cut_roots(int64_t rows, int64_t columns);

}  // namespace mica::cpu::fft
