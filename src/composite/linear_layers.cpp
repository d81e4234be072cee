#include "mica/core/grad_mode.h"
#include "mica/generated/layers/linear_layers_implementations.h"
#include "mica/ops.h"
#include "mica/warning.h"

namespace mica::composite {

Tensor _linear(const Tensor& bias, const Tensor& input, const Tensor& weight) {
  MICA_CHECK(input.dtype() == weight.dtype(), "mat1 and mat2 must have the same dtype, but got ",
             info(input.dtype()).legacy, " and ", info(weight.dtype()).legacy,
             " for the input and the weight of linear");
  return addmm(bias, input, weight.t());
}

Tensor bilinear(const Tensor& input1, const Tensor& input2, const Tensor& weight, const Tensor& bias) {
  MICA_CHECK(input1.dim() == input2.dim(), "bilinear(): input dimensions do not match: got ", input1.dim(), " and ",
             input2.dim());
  MICA_CHECK(input1.dim() > 0 && weight.dim() == 3,
             "bilinear(): expected inputs of at least 1 dimension and a weight of ", "3, but got ", input1.sizes(),
             " and ", weight.sizes());
  const int64_t batch_dims = input1.dim() - 1;
  for (int64_t i = 0; i < batch_dims; ++i)
    MICA_CHECK(input1.size(i) == input2.size(i), "bilinear(): input batch dimensions do not match at dim ", i, ": got ",
               input1.size(i), " and ", input2.size(i));
  const int64_t outputs = weight.size(0), n1 = weight.size(1), n2 = weight.size(2);
  MICA_CHECK(input1.size(-1) == n1, "bilinear(): input1 size does not match weight size: got ", input1.size(-1),
             " but expected ", n1);
  MICA_CHECK(input2.size(-1) == n2, "bilinear(): input2 size does not match weight size: got ", input2.size(-1),
             " but expected ", n2);
  MICA_CHECK(!bias.defined() || bias.size(0) == outputs, "bilinear(): bias size does not match weight size: got ",
             bias.defined() ? bias.size(0) : 0, " but expected ", outputs);
  const DType dtype = weight.dtype();
  MICA_CHECK(input1.dtype() == dtype && input2.dtype() == dtype && (!bias.defined() || bias.dtype() == dtype),
             "All tensors must have the same dtype, got input1: ", input1.dtype(), ", input2: ", input2.dtype(),
             ", weight: ", dtype, bias.defined() ? mica::cat(", bias: ", bias.dtype()) : std::string());

  DimVector sizes(input1.sizes());
  sizes.back() = outputs;
  // One product multiplies x1 with the matrices of all outputs; x2 is multiplied with the rows of that.
  const Tensor rows = matmul(input1.reshape({-1, n1}), weight.transpose(0, 1).reshape({n1, outputs * n2}));
  const Tensor products = mul(rows.view({-1, outputs, n2}), input2.reshape({-1, 1, n2}));
  const Tensor result = products.sum({-1}, false, products.dtype()).view(sizes);  // integers keep their width
  return bias.defined() ? add(result, bias) : result;
}

Tensor gumbel_softmax(const Tensor& logits, double tau, bool hard, double eps, int64_t dim) {
  if (eps != 1e-10) warn("`eps` parameter is deprecated and has no effect.");
  const auto options = TensorOptions(logits.dtype()).device(logits.device());
  const Tensor noise = empty(logits.sizes(), options).exponential_().log().neg();
  const Tensor soft = softmax(div(add(logits, noise), tau), dim);
  if (!hard) return soft;
  const Tensor chosen = argmax(soft, dim, /*keepdim=*/true);
  const Tensor one_hot = zeros(logits.sizes(), options).scatter_(dim, chosen, 1.0);
  return add(sub(one_hot, soft.detach()), soft);
}

Tensor _weight_norm(const Tensor& v, const Tensor& g, int64_t dim) {
  MICA_CHECK(v.device() == g.device(), "weight_norm: expected v and g to be on the same device, but v is on ",
             v.device(), " and g on ", g.device());
  return mul(v, div(g, norm_except_dim(v, 2, dim)));
}

// ---- clipping of gradients

Tensor _total_norm(TensorList tensors, double norm_type) {
  if (tensors.empty()) return zeros({});
  NoGradGuard no_grad;
  std::vector<Tensor> norms;
  norms.reserve(tensors.size());
  for (const Tensor& each : tensors) norms.push_back(norm(each, norm_type).to(tensors[0].device()));
  return norm(stack(TensorList(norms)), norm_type);
}

Tensor _scale_to_norm_(TensorList gradients, double max_norm, const Tensor& total_norm) {
  NoGradGuard no_grad;
  const Tensor factor = clamp(mul(reciprocal(add(total_norm, 1e-6)), max_norm), std::nullopt, 1.0);
  for (const Tensor& gradient : gradients) gradient.mul_(factor.to(gradient.device()));
  return factor;
}

}  // namespace mica::composite
