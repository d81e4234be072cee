// The QR factorisation, by Householder's reflections.
#pragma once

#include "mica/tensor.h"

namespace mica {

struct QrFactors {
  Tensor q, r;
};

// The factors of a matrix of at least as many rows as columns: a = q r, q of orthonormal columns, r upper triangular
// and square. Computed and returned in float64. A diagonal element of r has the sign that LAPACK gives it.
QrFactors householder_qr(const Tensor& a);

}  // namespace mica
