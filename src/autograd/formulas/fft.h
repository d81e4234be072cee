// Derivatives of Fourier transforms.
#pragma once

#include "mica/tensor.h"

namespace mica::formulas {

Tensor fft_r2c_backward(const Tensor& grad, IntArrayRef dim, int64_t normalization, bool onesided, IntArrayRef sizes);
Tensor fft_c2r_backward(const Tensor& grad, IntArrayRef dim, int64_t normalization);

}  // namespace mica::formulas
