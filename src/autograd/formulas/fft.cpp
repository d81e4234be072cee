#include "autograd/formulas/fft.h"

#include "mica/generated/layers/fft.h"
#include "mica/ops.h"

namespace mica::formulas {

// Half of the spectrum was dropped: its gradient is zero. The signal was real: so is its gradient.
Tensor fft_r2c_backward(const Tensor& grad, IntArrayRef dim, int64_t normalization, bool onesided, IntArrayRef sizes) {
  Tensor whole = grad;
  if (onesided) {
    const int64_t last = dim[dim.size() - 1], at = last < 0 ? last + grad.dim() : last;
    const int64_t missing = sizes[static_cast<size_t>(at)] - grad.size(at);
    if (missing > 0) {
      DimVector pad;
      for (int64_t d = grad.dim() - 1; d >= at; --d) {
        pad.push_back(0);
        pad.push_back(d == at ? missing : 0);
      }
      whole = constant_pad_nd(grad, pad);
    }
  }
  return real(_fft_c2c(whole, dim, normalization, false).resolve_conj());
}

// An element that stands for its conjugate too counts twice.
Tensor fft_c2r_backward(const Tensor& grad, IntArrayRef dim, int64_t normalization) {
  const Tensor half = _fft_r2c(grad, dim, normalization, true);
  const int64_t last = dim[dim.size() - 1];
  const int64_t doubled = grad.size(last) - half.size(last);
  if (doubled <= 0) return half;
  const int64_t rest = half.size(last) - 1 - doubled;
  const Tensor parts[] = {half.narrow(last, 0, 1), half.narrow(last, 1, doubled) * Scalar(2),
                          half.narrow(last, 1 + doubled, rest)};
  return cat(TensorList(parts, 3), last);
}

}  // namespace mica::formulas
