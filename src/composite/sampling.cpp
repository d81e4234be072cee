// Samples that carry a gradient to their distribution's parameters.
#include "core/geometry.h"
#include "mica/autograd.h"
#include "mica/backend/layer_backend.h"
#include "mica/generated/layers/sampling.h"
#include "mica/generated/layers/sampling_implementations.h"
#include "mica/ops.h"

namespace mica::composite {

namespace {

using MaybeGenerator = std::optional<Generator>;

Generator chosen(const MaybeGenerator& g, const Tensor& t) { return g ? *g : default_generator(t.device()); }

void check_same(const char* op, const Tensor& first, const Tensor& other) {
  MICA_CHECK(first.dtype() == other.dtype(), op, ": expected scalar type ", info(first.dtype()).legacy, " but found ",
             info(other.dtype()).legacy);
  MICA_CHECK(first.device() == other.device(), op, ": expected all tensors to be on the same device, but found ",
             first.device(), " and ", other.device());
}

}  // namespace

Tensor _standard_gamma(const Tensor& self, const MaybeGenerator& generator) {
  NoGradGuard below;
  const Tensor alpha = self.contiguous();
  const Tensor out = mica::empty_like(alpha);
  if (!out.is_meta()) MICA_LAYER_KERNEL(self.device(), random_standard_gamma)
  (out.view_of(), alpha.view_of(), chosen(generator, out));
  return out;
}

Tensor _standard_gamma_grad(const Tensor& self, const Tensor& output) {
  check_same("_standard_gamma_grad", self, output);
  NoGradGuard below;
  const DimVector shape = broadcast_sizes(self.sizes(), output.sizes());
  const Tensor alpha = self.expand(shape).contiguous(), sample = output.expand(shape).contiguous();
  const Tensor out = mica::empty_like(alpha);
  if (!out.is_meta()) MICA_LAYER_KERNEL(self.device(), standard_gamma_grad)
  (out.view_of(), alpha.view_of(), sample.view_of());
  return out;
}

Tensor _sample_dirichlet(const Tensor& self, const MaybeGenerator& generator) {
  MICA_CHECK_KIND(self.dim() > 0, Index, "Dimension specified as -1 but tensor has no dimensions");
  NoGradGuard below;
  const Tensor alpha = self.contiguous();
  const Tensor out = mica::empty_like(alpha);
  if (!out.is_meta() && out.numel() > 0) {
    const int64_t categories = self.size(-1);
    const Tensor rows = out.view({-1, categories});
    MICA_LAYER_KERNEL(self.device(), random_dirichlet)
    (rows.view_of(), alpha.view({-1, categories}).view_of(), chosen(generator, out));
  }
  return out;
}

Tensor _dirichlet_grad(const Tensor& x, const Tensor& alpha, const Tensor& total) {
  check_same("_dirichlet_grad", x, alpha);
  check_same("_dirichlet_grad", x, total);
  NoGradGuard below;
  const DimVector shape = broadcast_sizes(broadcast_sizes(x.sizes(), alpha.sizes()), total.sizes());
  const Tensor share = x.expand(shape).contiguous(), own = alpha.expand(shape).contiguous(),
               all = total.expand(shape).contiguous();
  const Tensor out = mica::empty_like(share);
  if (!out.is_meta()) MICA_LAYER_KERNEL(x.device(), dirichlet_grad)
  (out.view_of(), share.view_of(), own.view_of(), all.view_of());
  return out;
}

}  // namespace mica::composite
