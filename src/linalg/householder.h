// The QR factorisation, by Householder's reflections.
#pragma once

#include "mica/tensor.h"

namespace mica {

// The reflections that make a matrix of at least as many rows as columns triangular, as LAPACK's geqrf packs them: r in
// the upper triangle, below the diagonal the vectors, whose first elements are 1. In float64.
struct Reflections {
  Tensor packed, tau;
};
Reflections householder_reflections(const Tensor& a);

struct QrFactors {
  Tensor q, r;
};

// The factors of a matrix of at least as many rows as columns: a = q r, q of orthonormal columns, r upper triangular
// and square. Computed and returned in float64. A diagonal element of r has the sign that LAPACK gives it.
QrFactors householder_qr(const Tensor& a);

}  // namespace mica
