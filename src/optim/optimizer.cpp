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

// ---- options

static void check_lr(const Number& lr) {
  MICA_CHECK_KIND(lr.value() >= 0, Value, "Invalid learning rate: ", lr.value());
}
static void check_not_negative(double value, const char* name) {
  MICA_CHECK_KIND(value >= 0, Value, "Invalid ", name, " value: ", value);
}
template <class Options>
static void check_adam(const Options& o) {
  check_lr(o.lr);
  check_not_negative(o.eps, "epsilon");
  for (size_t i = 0; i < 2; ++i)
    MICA_CHECK_KIND(o.betas[i].value() >= 0 && o.betas[i].value() < 1, Value, "Invalid beta parameter at index ", i,
                    ": ", o.betas[i].value());
  check_not_negative(o.weight_decay.value(), "weight_decay");
}

void check_options(const SGDOptions& o) {
  check_lr(o.lr);
  check_not_negative(o.momentum, "momentum");
  check_not_negative(o.weight_decay.value(), "weight_decay");
  MICA_CHECK_KIND(!o.nesterov || (o.momentum > 0 && o.dampening == 0), Value,
                  "Nesterov momentum requires a momentum and zero dampening");
}
void check_options(const AdamOptions& o) { check_adam(o); }
void check_options(const AdamWOptions& o) { check_adam(o); }
void check_options(const AdamaxOptions& o) { check_adam(o); }
void check_options(const RAdamOptions& o) { check_adam(o); }
void check_options(const NAdamOptions& o) {
  check_adam(o);
  check_not_negative(o.momentum_decay, "momentum_decay");
}
void check_options(const RMSpropOptions& o) {
  check_lr(o.lr);
  check_not_negative(o.eps, "epsilon");
  check_not_negative(o.momentum, "momentum");
  check_not_negative(o.weight_decay.value(), "weight_decay");
  check_not_negative(o.alpha, "alpha");
}
void check_options(const AdagradOptions& o) {
  check_lr(o.lr);
  check_not_negative(o.lr_decay, "lr_decay");
  check_not_negative(o.weight_decay.value(), "weight_decay");
  check_not_negative(o.initial_accumulator_value, "initial_accumulator_value");
  check_not_negative(o.eps, "epsilon");
}
void check_options(const AdadeltaOptions& o) {
  check_lr(o.lr);
  MICA_CHECK_KIND(o.rho >= 0 && o.rho <= 1, Value, "Invalid rho value: ", o.rho);
  check_not_negative(o.eps, "epsilon");
  check_not_negative(o.weight_decay.value(), "weight_decay");
}
void check_options(const RpropOptions& o) {
  check_lr(o.lr);
  MICA_CHECK_KIND(0 < o.etas[0] && o.etas[0] < 1 && 1 < o.etas[1], Value, "Invalid eta values: ", o.etas[0], ", ",
                  o.etas[1]);
}
void check_options(const ASGDOptions& o) {
  check_lr(o.lr);
  check_not_negative(o.weight_decay.value(), "weight_decay");
}
void check_options(const AdafactorOptions& o) {
  MICA_CHECK_KIND(o.lr.value() >= 0, Value, "Learning rate should be >= 0 but is: ", o.lr.value());
  MICA_CHECK_KIND(o.beta2_decay <= 0, Value, "beta2_decay should be <= 0 but is: ", o.beta2_decay);
  MICA_CHECK_KIND(!o.eps1 || *o.eps1 >= 0, Value, "epsilon1 should be >= 0 but is: ", o.eps1.value_or(0));
  MICA_CHECK_KIND(o.eps2 >= 0, Value, "epsilon2 should be >= 0 but is: ", o.eps2);
  MICA_CHECK_KIND(o.d >= 1, Value, "Clipping threshold d should be >= 1 but is: ", o.d);
  MICA_CHECK_KIND(o.weight_decay >= 0, Value, "weight_decay should be >= 0 but is: ", o.weight_decay);
}
void check_options(const MuonOptions& o) {
  MICA_CHECK_KIND(o.lr.value() >= 0, Value, "Learning rate should be >= 0 but is: ", o.lr.value());
  MICA_CHECK_KIND(o.momentum >= 0, Value, "momentum should be >= 0 but is: ", o.momentum);
  MICA_CHECK_KIND(o.weight_decay >= 0, Value, "weight decay should be >= 0 but is: ", o.weight_decay);
  MICA_CHECK_KIND(o.adjust_lr_fn == "original" || o.adjust_lr_fn == "match_rms_adamw", Value,
                  "Adjust learning rate function ", o.adjust_lr_fn, " is not supported");
}

void adamw_step(std::span<AdamItem> items, const AdamWOptions& o) {
  adam_step(items, {.lr = o.lr,
                    .betas = o.betas,
                    .eps = o.eps,
                    .weight_decay = o.weight_decay,
                    .amsgrad = o.amsgrad,
                    .decoupled_weight_decay = true,
                    .maximize = o.maximize,
                    .differentiable = o.differentiable,
                    .capturable = o.capturable,
                    .fused = o.fused});
}

// ---- LBFGS

LBFGS::LBFGS(std::vector<Tensor> params, LBFGSOptions options) : options_(std::move(options)) {
  check_lr(options_.lr);
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
