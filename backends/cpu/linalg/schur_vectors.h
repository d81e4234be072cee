// Eigenvectors of a real Schur form: a triangle with blocks of two rows on its diagonal.
#pragma once

#include <cstdint>

namespace mica::cpu::schur {

// The eigenvectors X of the columns of T, n x n and column-major. X is row-major, a column for each eigenvalue; of a
// conjugate pair the first column holds the real parts, the second the imaginary ones. Their lengths are not 1.
void vectors(const float* t, int64_t lead, int64_t n, const float* real, const float* imaginary, float* x);
void vectors(const double* t, int64_t lead, int64_t n, const double* real, const double* imaginary, double* x);

}  // namespace mica::cpu::schur
