#include "mica/generated/layers/distance_implementations.h"
#include "mica/layer_backend.h"
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

}  // namespace mica::shapes
