// Kernels of linear algebra that others call.
#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda {

void linalg_lu_factor(const TensorView& a, const TensorView& pivots, const TensorView& info);
void linalg_geqrf(const TensorView& a, const TensorView& tau);
void linalg_ormqr(const TensorView& a, const TensorView& tau, const TensorView& c, bool left, bool transpose);

namespace linalg {

// Triangles of n rows, with their own distances between columns and between matrices, by cuBLAS.
void solve_triangular(const TensorView& a, int64_t n, int64_t lead, int64_t a_step, const TensorView& b, int64_t b_rows,
                      int64_t b_lead, int64_t b_step, bool left, bool upper, int64_t transpose, bool unit);
// info: the place of the first zero among the first n elements of each diagonal, or zero.
void zero_on_diagonal(const TensorView& a, int64_t n, const TensorView& info);

// Eigenvalues and singular values by Jacobi's iteration, where it is the way to take.
bool suits_small_eigh(const TensorView& a);
void small_eigh(const TensorView& a, const TensorView& eigenvalues, const TensorView& info, bool upper, bool vectors);
bool suits_small_svd(const TensorView& a);
void small_svd(const TensorView& a, const TensorView& u, const TensorView& s, const TensorView& vh,
               const TensorView& info, int64_t vectors);

}  // namespace linalg
}  // namespace mica::cuda
