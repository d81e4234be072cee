// torch::linalg and torch::fft by their short names: mica::linalg::inv(a) is mica::linalg_inv(a).
#pragma once

#include <utility>

#include "mica/core/linalg_error.h"
#include "mica/generated/layers/decompositions.h"
#include "mica/generated/layers/fft.h"
#include "mica/generated/layers/linalg.h"
#include "mica/generated/layers/linear_systems.h"

namespace mica {

#define MICA_SHORT_NAME(prefix, name)                                                                           \
  template <class... Arguments>                                                                                 \
  auto name(Arguments&&... arguments)->decltype(mica::prefix##_##name(std::forward<Arguments>(arguments)...)) { \
    return mica::prefix##_##name(std::forward<Arguments>(arguments)...);                                        \
  }

namespace linalg {
#define MICA_LINALG(name) MICA_SHORT_NAME(linalg, name)
MICA_LINALG(cholesky)
MICA_LINALG(cholesky_ex)
MICA_LINALG(cond)
MICA_LINALG(cross)
MICA_LINALG(det)
MICA_LINALG(diagonal)
MICA_LINALG(eig)
MICA_LINALG(eigh)
MICA_LINALG(eigvals)
MICA_LINALG(eigvalsh)
MICA_LINALG(householder_product)
MICA_LINALG(inv)
MICA_LINALG(inv_ex)
MICA_LINALG(ldl_factor)
MICA_LINALG(ldl_factor_ex)
MICA_LINALG(ldl_solve)
MICA_LINALG(lstsq)
MICA_LINALG(lu)
MICA_LINALG(lu_factor)
MICA_LINALG(lu_factor_ex)
MICA_LINALG(lu_solve)
MICA_LINALG(matmul)
MICA_LINALG(matrix_exp)
MICA_LINALG(matrix_norm)
MICA_LINALG(matrix_power)
MICA_LINALG(matrix_rank)
MICA_LINALG(multi_dot)
MICA_LINALG(norm)
MICA_LINALG(pinv)
MICA_LINALG(qr)
MICA_LINALG(slogdet)
MICA_LINALG(solve)
MICA_LINALG(solve_ex)
MICA_LINALG(solve_triangular)
MICA_LINALG(svd)
MICA_LINALG(svdvals)
MICA_LINALG(tensorinv)
MICA_LINALG(tensorsolve)
MICA_LINALG(vander)
MICA_LINALG(vecdot)
MICA_LINALG(vector_norm)
#undef MICA_LINALG
}  // namespace linalg

namespace fft {
#define MICA_FFT(name) MICA_SHORT_NAME(fft, name)
MICA_FFT(fft)
MICA_FFT(fft2)
MICA_FFT(fftfreq)
MICA_FFT(fftn)
MICA_FFT(fftshift)
MICA_FFT(hfft)
MICA_FFT(hfft2)
MICA_FFT(hfftn)
MICA_FFT(ifft)
MICA_FFT(ifft2)
MICA_FFT(ifftn)
MICA_FFT(ifftshift)
MICA_FFT(ihfft)
MICA_FFT(ihfft2)
MICA_FFT(ihfftn)
MICA_FFT(irfft)
MICA_FFT(irfft2)
MICA_FFT(irfftn)
MICA_FFT(rfft)
MICA_FFT(rfft2)
MICA_FFT(rfftfreq)
MICA_FFT(rfftn)
#undef MICA_FFT
}  // namespace fft
#undef MICA_SHORT_NAME

}  // namespace mica
