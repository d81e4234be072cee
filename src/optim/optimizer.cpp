#include "mica/optim/optimizer.h"

namespace mica::optim {

void Optimizer::zero_grad(bool set_to_none) {
  NoGradGuard no_grad;
  for (size_t g = 0; g < num_groups(); ++g)
    for (const Tensor& p : params(g)) {
      const Tensor grad = p.grad();
      if (!grad.defined()) continue;
      if (set_to_none) {
        p.set_grad(Tensor());
      } else {
        autograd::detach_in_place(grad);
        grad.zero_();
      }
    }
}

Tensor Optimizer::loss_of(const Closure& closure) const {
  if (!closure) return {};
  EnableGradGuard grad;
  return closure();
}

void Optimizer::check_new_params(TensorList params) const {
  MICA_CHECK_KIND(params.size() != 0, Value, "optimizer got an empty parameter list");
  for (const Tensor& p : params) {
    MICA_CHECK_KIND(p.defined(), Type, "optimizer can only optimize Tensors, but one of the params is undefined");
    MICA_CHECK_KIND(p.is_leaf() || p.retains_grad(), Value, "can't optimize a non-leaf Tensor");
    for (size_t g = 0; g < num_groups(); ++g)
      for (const Tensor& known : this->params(g))
        MICA_CHECK_KIND(!known.is_same(p), Value, "some parameters appear in more than one parameter group");
  }
}

// ---- LBFGS

LBFGS::LBFGS(std::vector<Tensor> params, LBFGSOptions options) : options_(std::move(options)) {
  MICA_CHECK_KIND(options_.lr.value() >= 0, Value, "Invalid learning rate: ", options_.lr.value());
  check_new_params(params);
  params_ = std::move(params);
}

Tensor LBFGS::step(const Closure& closure) {
  MICA_CHECK(closure, "LBFGS needs a closure that computes the loss and its gradients");
  Tensor first;
  lbfgs_step(params_, state_, options_, [&] {
    Tensor loss = closure();
    const double value = loss.item().to_double();
    if (!first.defined()) first = std::move(loss);
    return value;
  });
  return first;
}

}  // namespace mica::optim
