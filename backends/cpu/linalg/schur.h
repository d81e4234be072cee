// The real Schur form of a Hessenberg matrix, H = Z T Z^T, and the eigenvalues. Matrices are column-major.
#pragma once

#include <cstdint>

namespace mica::cpu::schur {

template <class T>
struct Problem {
  T* h;  // `n` rows and columns, `lead` apart; it becomes T
  int64_t lead, n;
  T* z;  // multiplied from the right by the transforms of h; may be null
  int64_t z_lead, z_rows;
  T *real, *imaginary;  // the eigenvalues
  bool whole;           // false: only the eigenvalues are wanted, and h does not become T
};

// Rows `first` to `last`, both included, are a block of their own: elements to the left of it and below are zero. If T
// is not wanted, the other eigenvalues are not looked for either. Returns false where the iteration does not end.
bool run(const Problem<float>& problem, int64_t first, int64_t last);
bool run(const Problem<double>& problem, int64_t first, int64_t last);

}  // namespace mica::cpu::schur
