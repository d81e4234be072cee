#include "mica/nn/utils.h"

#include <cmath>

#include "mica/autograd.h"
#include "mica/layers.h"

namespace mica::nn::utils {

static std::vector<Tensor> gradients_of(TensorList parameters) {
  std::vector<Tensor> gradients;
  for (const Tensor& p : parameters)
    if (Tensor gradient = p.grad(); gradient.defined()) gradients.push_back(std::move(gradient));
  return gradients;
}

Tensor get_total_norm(TensorList tensors, double norm_type, bool error_if_nonfinite) {
  NoGradGuard no_grad;
  const Tensor total = _total_norm(tensors, norm_type);
  MICA_CHECK(!error_if_nonfinite || std::isfinite(total.item<double>()), "The total norm of order ", norm_type,
             " for gradients from `parameters` is non-finite, so it cannot be clipped. To disable this error and scale "
             "the gradients by the non-finite norm anyway, set `error_if_nonfinite=False`");
  return total;
}

Tensor clip_grad_norm_(TensorList parameters, double max_norm, double norm_type, bool error_if_nonfinite) {
  NoGradGuard no_grad;
  const std::vector<Tensor> gradients = gradients_of(parameters);
  const Tensor total = get_total_norm(gradients, norm_type, error_if_nonfinite);
  _scale_to_norm_(gradients, max_norm, total);
  return total;
}

void clip_grad_value_(TensorList parameters, double clip_value) {
  NoGradGuard no_grad;
  for (const Tensor& gradient : gradients_of(parameters)) clamp_(gradient, -clip_value, clip_value);
}

static void check_devices(TensorList parameters) {
  for (const Tensor& p : parameters)
    MICA_CHECK_KIND(p.device() == parameters[0].device(), Type,
                    "Found two parameters on different devices, this is currently not supported.");
}

Tensor parameters_to_vector(TensorList parameters) {
  check_devices(parameters);
  std::vector<Tensor> rows;
  for (const Tensor& p : parameters) rows.push_back(p.view({-1}));
  return mica::cat(rows);
}

void vector_to_parameters(const Tensor& vector, TensorList parameters) {
  check_devices(parameters);
  int64_t first = 0;
  for (const Tensor& p : parameters) {
    autograd::set_data(p, vector.narrow(0, first, p.numel()).view(p.sizes()).detach());
    first += p.numel();
  }
}

}  // namespace mica::nn::utils
