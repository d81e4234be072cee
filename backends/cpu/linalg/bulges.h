// The inner part of a sweep of the QR iteration with several double shifts: a chain of bulges moves down a window of a
// Hessenberg matrix. Matrices are column-major.
#pragma once

#include <cstdint>

namespace mica::cpu::bulges {

constexpr int64_t kSpacing = 3;  // rows from one bulge to the next, so that their reflectors have none in common

template <class T>
struct Window {
  T* h;          // `size` rows and columns of the matrix; one more row and column of zeros
  T* u;          // multiplied by the reflectors from the right, as large; may be null
  int64_t lead;  // elements from one column to the next, whole vectors
  int64_t size;
  int64_t top, bottom;  // the first and last row of the block that is iterated on, counted from the window's first
  int64_t pairs;        // pairs of shifts, each with a bulge
  const T *real, *imaginary;
  int64_t above = 0;  // rows before this one are not wanted
};

// Steps `first` to `last` of a sweep. In step t the bulge of pair b leaves column top - 1 + t - 3 b; one that leaves
// top - 1 is made.
void chase(const Window<float>& window, int64_t first, int64_t last);
void chase(const Window<double>& window, int64_t first, int64_t last);

}  // namespace mica::cpu::bulges
