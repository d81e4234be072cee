#include "autograd/formulas/sampling.h"

#include "mica/generated/layers/sampling.h"
#include "mica/ops.h"

namespace mica::formulas {

// When one concentration changes, the other shares keep their proportions: what one share gains, all others lose in
// proportion.
Tensor sample_dirichlet_backward(const Tensor& grad, const Tensor& concentration, const Tensor& sample) {
  const Tensor total = concentration.sum(IntArrayRef(-1), true).expand(concentration.sizes());
  const Tensor lost = (sample * grad).sum(IntArrayRef(-1), true);
  return mica::_dirichlet_grad(sample, concentration, total) * (grad - lost);
}

}  // namespace mica::formulas
