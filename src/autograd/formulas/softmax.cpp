// Softmax: fused kernels for first derivatives, compositions where the derivative is itself differentiated.
#include "autograd/formulas/formulas.h"
#include "autograd/formulas/seen.h"
#include "core/geometry.h"
#include "core/kernel_arguments.h"
#include "mica/backend.h"

namespace mica::formulas {

Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, DType input_dtype) {
  if (is_seen())
    return seen_one("_softmax_backward_data", {grad, output, dim, input_dtype}, {grad, output},
                    [=](const TensorVec& t) -> TensorVec { return {softmax_backward(t[0], t[1], dim, input_dtype)}; });
  if (grad_enabled()) return (output * (grad - sum(grad * output, dim, true))).to(input_dtype);
  const Tensor g = grad.contiguous(), y = output.contiguous();
  Tensor result = empty_like(y);
  if (has_work(y))
    MICA_KERNEL(y.device(), softmax_backward)(result.view_of(), g.view_of(), y.view_of(), wrap_dim(dim, y.dim()));
  return result.to(input_dtype);
}

Tensor log_softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, DType input_dtype) {
  if (is_seen())
    return seen_one(
        "_log_softmax_backward_data", {grad, output, dim, input_dtype}, {grad, output},
        [=](const TensorVec& t) -> TensorVec { return {log_softmax_backward(t[0], t[1], dim, input_dtype)}; });
  if (grad_enabled()) return (grad - exp(output) * sum(grad, dim, true)).to(input_dtype);
  const Tensor g = grad.contiguous(), y = output.contiguous();
  Tensor result = empty_like(y);
  if (has_work(y))
    MICA_KERNEL(y.device(), log_softmax_backward)(result.view_of(), g.view_of(), y.view_of(), wrap_dim(dim, y.dim()));
  return result.to(input_dtype);
}

}  // namespace mica::formulas
