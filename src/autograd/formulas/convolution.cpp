#include "autograd/formulas/convolution.h"

#include "autograd/formulas/formulas.h"
#include "mica/generated/layers/convolution.h"

namespace mica::formulas {

namespace {

Tensor added(const Tensor& sum, const Tensor& term) { return sum.defined() ? sum + term : term; }

}  // namespace

std::tuple<Tensor, Tensor, Tensor> convolution_gradients(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                         IntArrayRef bias_sizes, IntArrayRef stride,
                                                         IntArrayRef padding, IntArrayRef dilation, bool transposed,
                                                         IntArrayRef output_padding, int64_t groups,
                                                         const std::array<bool, 3>& wanted) {
  return mica::convolution_backward(grad, conj_of(input), conj_of(weight), bias_sizes, stride, padding, dilation,
                                    transposed, output_padding, groups, ArrayRef<bool>(wanted.data(), wanted.size()));
}

// A convolution and its two gradients are the same trilinear form of input, weight and the output's gradient. So every
// further derivative is one of the three again.
std::tuple<Tensor, Tensor, Tensor> convolution_backward_gradients(
    const Tensor& ggi, const Tensor& ggw, const Tensor& ggb, const Tensor& grad_output, const Tensor& input,
    const Tensor& weight, IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool transposed,
    IntArrayRef output_padding, int64_t groups, const std::array<bool, 3>& wanted) {
  const auto forward = [&](const Tensor& x, const Tensor& w, const Tensor& b) {
    return mica::convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups);
  };
  const auto backward = [&](const Tensor& x, const Tensor& w, bool of_input) {
    const bool mask[3] = {of_input, !of_input, false};
    return mica::convolution_backward(conj_of(grad_output), x, w, std::nullopt, stride, padding, dilation, transposed,
                                      output_padding, groups, ArrayRef<bool>(mask));
  };
  Tensor grad_grad, grad_input, grad_weight;
  if (wanted[0]) {
    if (ggi.defined()) grad_grad = forward(ggi, conj_of(weight), ggb);
    if (ggw.defined()) grad_grad = added(grad_grad, forward(conj_of(input), ggw, ggi.defined() ? Tensor() : ggb));
    if (ggb.defined() && !grad_grad.defined()) {
      DimVector one(static_cast<size_t>(grad_output.dim()), 1);
      one[1] = -1;
      grad_grad = ggb.reshape(one).expand(grad_output.sizes());
    }
  }
  if (wanted[1] && ggw.defined()) grad_input = std::get<0>(backward(input, ggw, true));
  if (wanted[2] && ggi.defined()) grad_weight = std::get<1>(backward(ggi, weight, false));
  return {grad_grad, grad_input, grad_weight};
}

Tensor im2col_backward(const Tensor& grad, IntArrayRef sizes, IntArrayRef kernel_size, IntArrayRef dilation,
                       IntArrayRef padding, IntArrayRef stride) {
  return mica::col2im(grad, sizes.slice(sizes.size() - 2, 2), kernel_size, dilation, padding, stride);
}

}  // namespace mica::formulas
