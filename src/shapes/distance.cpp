#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/distance_implementations.h"
#include "mica/ops.h"

namespace mica::shapes {

void _pdist_forward(Out& out, const Tensor& self, double p) {
  const int64_t n = self.size(0);
  if (self.dtype() != DType::Float32 && self.dtype() != DType::Float64) unsupported_dtype("pdist", self.dtype());
  const Tensor& result = out.set({n > 1 ? n * (n - 1) / 2 : 0}, self.dtype(), self.device());
  if (!out.needs_kernel()) return;
  const Tensor x = self.contiguous();
  MICA_LAYER_KERNEL(self.device(), pdist)(result.view_of(), x.view_of(), p);
}

void _cdist_forward(Out& out, const Tensor& x1, const Tensor& x2, double p, bool by_product) {
  if (x1.dtype() != DType::Float32 && x1.dtype() != DType::Float64) unsupported_dtype("cdist", x1.dtype());
  const Tensor& result = out.set({x1.size(0), x1.size(1), x2.size(1)}, x1.dtype(), x1.device());
  if (!out.needs_kernel()) return;
  if (x1.size(2) == 0) {
    result.zero_();
    return;
  }
  if (by_product) {  // |a - b|^2 = |a|^2 - 2 a b + |b|^2
    const Tensor squares1 = (x1 * x1).sum(2, true), squares2 = (x2 * x2).sum(2, true).transpose(1, 2);
    result.copy_(mica::baddbmm(squares1 + squares2, x1, x2.transpose(1, 2), 1, -2).clamp_min_(0).sqrt_());
    return;
  }
  const Tensor a = x1.contiguous(), b = x2.contiguous();
  MICA_LAYER_KERNEL(x1.device(), cdist)(result.view_of(), a.view_of(), b.view_of(), p);
}

}  // namespace mica::shapes
