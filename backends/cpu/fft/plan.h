// What a transform of one length needs: factors and roots of unity. Made once, kept for later calls.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace mica::cpu::fft {

struct Pass {
  int radix;
  int64_t before, after;  // products of the radices of earlier and of later passes
  int64_t roots;          // where its twiddle factors begin: (radix - 1) pairs for each of `after` places
};

template <class T>
struct Plan {
  int64_t length = 0;
  std::vector<Pass> passes;
  std::vector<T> roots;                         // twiddle factors of all passes, real and imaginary parts in turn
  std::vector<T> prime_roots;                   // cos, sin of 2 pi k / p for k < p, by prime radix
  std::vector<std::pair<int, int64_t>> primes;  // radix, where its roots begin

  // Lengths with a larger prime factor: a convolution with a chirp (Bluestein), of a length without.
  std::shared_ptr<const Plan> convolution;
  std::vector<T> chirp;     // exp(-i pi k^2 / n), pairs
  std::vector<T> spectrum;  // of the chirp's conjugate, divided by the convolution's length, pairs

  int64_t working_length() const { return convolution ? convolution->length : length; }
};

// The plan of a length, from the cache.
template <class T>
std::shared_ptr<const Plan<T>> plan_of(int64_t length);

// cos and sin of -2 pi k / n, to the last digit of a double.
struct Root {
  double re, im;
};
Root root_of_unity(int64_t k, int64_t n);

// The smallest length not below `least` that has no prime factor above 5.
int64_t good_length(int64_t least);
// Whether no prime factor is above what passes take.
bool is_smooth(int64_t length);

// A table for the cut of one transform of length rows * columns: root (row * column) for every pair, the real parts of
// a row and then its imaginary parts.
template <class T>
std::shared_ptr<const std::vector<T>> cut_roots(int64_t rows, int64_t columns);

}  // namespace mica::cpu::fft
