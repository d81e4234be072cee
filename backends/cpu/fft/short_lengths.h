// The lengths that have a transform of their own, and constants about them for the compiler.
#pragma once

#include <cstdint>

#include "backends/cpu/fft/plan.h"

namespace mica::cpu::fft {

constexpr int kShortLengths[] = {8,  9,  10, 12, 14, 15, 16, 18, 20, 21, 24, 25,
                                 27, 28, 30, 32, 36, 40, 48, 50, 60, 64, 128};

// Vectors of fewer lanes use passes, which were faster where they were measured.
constexpr bool takes_short(int64_t lanes) { return lanes >= 8; }

constexpr bool has_butterfly(int n) { return n <= 5 || n == 7 || n == 8 || n == 11 || n == 13; }
constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }
// The inverse of a modulo n; a and n have no common divisor.
constexpr int inverse(int a, int n) {
  for (int k = 1; k < n; ++k)
    if (a * k % n == 1) return k;
  return 0;
}

// The first of two factors. For unrolled lengths, one that has no common divisor with the other, if there is one.
constexpr int short_factor(int n) {
  switch (n) {
    case 16:
    case 32:
      return 4;
    case 128:
    case 64:
    case 40:
    case 48:
      return 8;
    default:
      break;
  }
  int best = 1;
  for (int a = 2; a * a <= n; ++a)
    if (n % a == 0 && (n > 30 || common_divisor(a, n / a) == 1)) best = a;
  for (int a = 2; best == 1 && a * a <= n; ++a)
    if (n % a == 0) best = a;
  return best;
}

// Whether a length is unrolled instead of written as loops, and whether its values about fit the registers.
constexpr bool is_unrolled(int n) { return n <= 30 && common_divisor(short_factor(n), n / short_factor(n)) == 1; }
constexpr bool has_values(int n) { return n <= 12 || n == 16; }

// exp(-2 pi i k / n), computed by the compiler.
constexpr Root constant_root(int k, int n) {
  k %= n;
  // Whole quarters of a turn, and the rest: at most half of one to either side.
  const int64_t quarters = (int64_t{8} * k + n) / (2 * int64_t{n});
  const double x = 1.5707963267948966192 * static_cast<double>(4 * int64_t{k} - quarters * n) / static_cast<double>(n);
  double cosines[12] = {}, sines[12] = {}, cosine = 0, sine = 0, term = 1;
  for (int m = 0; m < 12; ++m) {
    cosines[m] = term;
    term *= x / (2 * m + 1);
    sines[m] = term;
    term *= -x / (2 * m + 2);
  }
  for (int m = 11; m >= 0; --m) cosine += cosines[m], sine += sines[m];  // the smallest first
  switch (quarters % 4) {
    case 0:
      return {cosine, -sine};
    case 1:
      return {-sine, -cosine};
    case 2:
      return {-cosine, sine};
    default:
      return {sine, cosine};
  }
}

// The cost of such a transform, in vector operations. Where it is cut, elements go to the stack and back.
constexpr int short_cost(int n) {
  if (n == 1) return 0;
  if (has_butterfly(n)) {
    constexpr int kCosts[] = {0, 0, 4, 12, 16, 32, 0, 66, 52, 0, 0, 150, 0, 204};
    return kCosts[n];
  }
  const int first = short_factor(n), second = n / first;
  const bool products = n > 30 || common_divisor(first, second) > 1;
  return second * short_cost(first) + first * short_cost(second) + (products ? 4 * (first - 1) * (second - 1) : 0) +
         (n > 8 ? 2 * n : 0);
}
constexpr bool has_short(int64_t n) {
  for (const int length : kShortLengths)
    if (length == n) return true;
  return false;
}

}  // namespace mica::cpu::fft
