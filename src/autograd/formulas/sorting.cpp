#include "autograd/formulas/sorting.h"

#include "autograd/formulas/seen.h"
#include "mica/ops.h"

namespace mica::formulas {

Tensor value_selecting_backward(const Tensor& grad, int64_t dim, const Tensor& indices, IntArrayRef sizes,
                                bool keepdim) {
  if (sizes.empty()) return grad;
  const bool lifted = !keepdim;
  return zeros_like_gradient(grad, sizes)
      .scatter(dim, lifted ? indices.unsqueeze(dim) : indices, lifted ? grad.unsqueeze(dim) : grad);
}

}  // namespace mica::formulas
