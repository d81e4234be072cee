// The real Schur form of a Hessenberg matrix, H = Z T Z^T, and the eigenvalues. Matrices are column-major.
#pragma once

#include <cstdint>

namespace mica::cpu::schur {

template <class T>
struct Problem {
  T* h;  // `n` rows and columns, `lead` apart; T in the end
  int64_t lead, n;
  T* z;  // multiplied from the right by what is done to h; none where null
  int64_t z_lead, z_rows;
  T *real, *imaginary;  // the eigenvalues
  bool whole;           // else only the eigenvalues are wanted, and what else is in h is not T
};

// Rows `first` to `last`, both included, are a block of their own: zero to the left of it and below. Without T the
// other eigenvalues are not looked for either. False where the iteration does not end.
bool run(const Problem<float>& problem, int64_t first, int64_t last);
bool run(const Problem<double>& problem, int64_t first, int64_t last);

}  // namespace mica::cpu::schur
