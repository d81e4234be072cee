// The parts of a blocked factorization that products cannot do, in one thread, by vectors down the columns. Matrices
// are column-major; `lead` is the distance between columns.
#pragma once

#include <cstdint>

#include "backends/cpu/linalg/lapack.h"

namespace mica::cpu::panels {

#define MICA_PANELS(T)                                                                                             \
  /* A = P L U of `rows` >= `columns`, as getrf leaves it: pivots from 1; 0 or the first zero on U's diagonal. */  \
  lapack::Integer lu(T* a, int64_t lead, int64_t rows, int64_t columns, lapack::Integer* pivots);                  \
  /* A = Q R of `rows` >= `columns`, as geqrf leaves it. Returns how many columns were done: it stops at one whose \
     norm's square leaves the range of T. */                                                                       \
  int64_t qr(T* a, int64_t lead, int64_t rows, int64_t columns, T* tau);                                           \
  /* X = U^-1 L^-1 X for the factors of a square matrix of `n` columns; X has as many rows, `n` apart. */          \
  void solve_lu(const T* lu, int64_t n, T* x, int64_t columns);                                                    \
  /* The inverse of a triangle of `n` columns, zeros in the other triangle; `inverse` is dense. */                 \
  void invert_triangle(const T* a, int64_t lead, int64_t n, bool upper, bool unit, T* inverse);
MICA_PANELS(float)
MICA_PANELS(double)
#undef MICA_PANELS

}  // namespace mica::cpu::panels
