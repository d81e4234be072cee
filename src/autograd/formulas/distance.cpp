#include "autograd/formulas/distance.h"

#include <cmath>

#include "mica/autograd.h"
#include "mica/backend/layer_backend.h"
#include "mica/core/dispatch.h"
#include "mica/ops.h"

namespace mica::formulas {

Tensor pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& distances) {
  if (grad_enabled() || dispatch::active) {
    // The same distances as operations. Their gradient is recorded, and a mode sees them.
    const Tensor pairs = triu_indices(self.size(0), self.size(0), 1, TensorOptions(self.device()));
    const Tensor first = pairs[0], second = pairs[1];
    const Tensor difference = self.index_select(0, first) - self.index_select(0, second), d = distances.unsqueeze(1);
    const Tensor apart = d.ne(Scalar(0)), divisor = where(apart, d, ones_like(d));
    Tensor slope;
    if (p == 0) {
      slope = zeros_like(difference);
    } else if (std::isinf(p)) {
      slope = sgn(difference) * difference.abs().eq(d).to(self.dtype());
    } else {
      slope = sgn(difference) * pow(difference.abs() / divisor, Scalar(p - 1));
    }
    const Tensor pulled = where(apart, slope, zeros_like(slope)) * grad.unsqueeze(1);
    return zeros_like(self).index_add(0, first, pulled).index_add(0, second, -pulled);
  }
  const Tensor result = zeros(self.sizes(), self.options());
  if (result.numel() == 0 || distances.numel() == 0 || result.is_meta()) return result;
  const Tensor g = grad.contiguous(), x = self.contiguous(), d = distances.contiguous();
  MICA_LAYER_KERNEL(self.device(), pdist_backward)(result.view_of(), g.view_of(), x.view_of(), d.view_of(), p);
  return result;
}

Tensor cdist_backward(const Tensor& grad, const Tensor& x1, const Tensor& x2, double p, const Tensor& distances) {
  const Tensor apart = distances.ne(Scalar(0));
  if (p == 2) {
    // (a - b) / |a - b|, summed over b with its weights: no difference is written down.
    const Tensor weights = where(apart, grad / where(apart, distances, ones_like(distances)), zeros_like(distances));
    return x1 * weights.sum(2, true) - bmm(weights, x2);
  }
  if (grad_enabled() || dispatch::active) {
    // The same distances as operations. Their gradient is recorded, and a mode sees them.
    const Tensor difference = x1.unsqueeze(2) - x2.unsqueeze(1), d = distances.unsqueeze(3);
    const Tensor far = apart.unsqueeze(3), divisor = where(far, d, ones_like(d));
    Tensor slope;
    if (p == 0) {
      slope = zeros_like(difference);
    } else if (std::isinf(p)) {
      slope = sgn(difference) * difference.abs().eq(d).to(x1.dtype());
    } else {
      slope = sgn(difference) * pow(difference.abs() / divisor, Scalar(p - 1));
    }
    return (where(far, slope, zeros_like(slope)) * grad.unsqueeze(3)).sum(2);
  }
  const Tensor result = zeros(x1.sizes(), x1.options());
  if (result.numel() == 0 || distances.numel() == 0 || result.is_meta()) return result;
  const Tensor g = grad.contiguous(), a = x1.contiguous(), b = x2.contiguous(), d = distances.contiguous();
  MICA_LAYER_KERNEL(x1.device(), cdist_backward)
  (result.view_of(), g.view_of(), a.view_of(), b.view_of(), d.view_of(), p);
  return result;
}

}  // namespace mica::formulas
