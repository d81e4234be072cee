// Adamax, NAdam and RAdam.
#include "optim/rule.h"

namespace mica::optim {

// ---- Adamax

static void by_operations(const AdamaxItem& item, const AdamaxOptions& o, double t) {
  const Number lr = o.lr.without_history(), beta1 = o.betas[0].without_history(), beta2 = o.betas[1].without_history();
  const Tensor grad = as_real(effective_gradient(item.grad, item.param, o.maximize, o.weight_decay));
  const Tensor average = as_real(item.exp_avg), norm = as_real(item.exp_inf);
  lerp_to(average, grad, Number(1) - beta1);
  norm.copy_(maximum(multiplied(norm, beta2), grad.abs().add(o.eps)));
  add_quotient(as_real(item.param), kept(average, o.differentiable), kept(norm, o.differentiable),
               -(lr / (Number(1) - pow(beta1, t))));
}

void adamax_step(std::span<AdamaxItem> items, const AdamaxOptions& o) {
  refuse_sparse(items, "Adamax");
  StepMode mode(o.differentiable);
  FusedBatch batch(&LayerKernelTable::adamax_step);
  const double lr = o.lr.value(), beta1 = o.betas[0].value(), beta2 = o.betas[1].value();
  const double decay = o.weight_decay.value();
  for (AdamaxItem& item : items) {
    if (!item.step.defined()) item.step = new_counter(item.param, o.capturable);
    if (!item.exp_avg.defined()) item.exp_avg = new_state(item.param);
    if (!item.exp_inf.defined()) item.exp_inf = new_state(item.param);
    const double t = advance(item.step);
    FusedParameter* p =
        o.differentiable ? nullptr : batch.add({&item.param, &item.grad, &item.exp_avg, &item.exp_inf}, flags_of(o));
    if (!p) {
      by_operations(item, o, t);
      continue;
    }
    set_decay(*p, decay, false, lr);
    p->adamax = {1 - beta1, beta2, o.eps, lr / (1 - std::pow(beta1, t))};
  }
  batch.run();
}

// ---- NAdam

// The momentum of step t.
static Number scheduled_momentum(const Number& beta1, double t, double decay) {
  return beta1 * Number(1 - 0.5 * std::pow(0.96, t * decay));
}

static void by_operations(const NAdamItem& item, const NAdamOptions& o, double t) {
  const Number lr = o.lr.without_history(), beta1 = o.betas[0].without_history(), beta2 = o.betas[1].without_history();
  if (o.decoupled_weight_decay && o.weight_decay.value() != 0) shrink(item.param, lr, o.weight_decay);
  const Number decay = o.decoupled_weight_decay ? Number(0) : o.weight_decay;
  const Tensor grad = as_real(effective_gradient(item.grad, item.param, o.maximize, decay));
  const Tensor param = as_real(item.param), average = as_real(item.exp_avg), square = as_real(item.exp_avg_sq);

  const Number mu = scheduled_momentum(beta1, t, o.momentum_decay);
  const Number next_mu = scheduled_momentum(beta1, t + 1, o.momentum_decay);
  if (mu.is_tensor()) {
    item.mu_product.mul_(mu.tensor());
  } else {
    item.mu_product.mul_(mu.value());
  }
  const Number product = Number(kept(item.mu_product, o.differentiable)).without_history();
  lerp_to(average, grad, Number(1) - beta1);
  average_square(square, grad, beta2);
  const Tensor divisor = divided(square, Number(1) - pow(beta2, t)).sqrt().add(o.eps);
  add_quotient(param, grad, divisor, -(lr * (Number(1) - mu) / (Number(1) - product)));
  add_quotient(param, kept(average, o.differentiable), divisor, -(lr * next_mu / (Number(1) - product * next_mu)));
}

void nadam_step(std::span<NAdamItem> items, const NAdamOptions& o) {
  refuse_sparse(items, "NAdam");
  StepMode mode(o.differentiable);
  FusedBatch batch(&LayerKernelTable::nadam_step);
  const double lr = o.lr.value(), beta1 = o.betas[0].value(), beta2 = o.betas[1].value();
  const double decay = o.weight_decay.value();
  for (NAdamItem& item : items) {
    if (!item.step.defined()) item.step = new_counter(item.param, o.capturable);
    if (!item.mu_product.defined()) item.mu_product = new_counter(item.param, o.capturable, 1);
    if (!item.exp_avg.defined()) item.exp_avg = new_state(item.param);
    if (!item.exp_avg_sq.defined()) item.exp_avg_sq = new_state(item.param);
    const double t = advance(item.step);
    FusedParameter* p =
        o.differentiable ? nullptr : batch.add({&item.param, &item.grad, &item.exp_avg, &item.exp_avg_sq}, flags_of(o));
    if (!p) {
      by_operations(item, o, t);
      continue;
    }
    const double mu = scheduled_momentum(beta1, t, o.momentum_decay).value();
    const double next_mu = scheduled_momentum(beta1, t + 1, o.momentum_decay).value();
    scale(item.mu_product, mu);
    const double product = read(item.mu_product);
    set_decay(*p, decay, o.decoupled_weight_decay, lr);
    p->nadam = {1 - beta1,
                beta2,
                1 - beta2,
                1 - std::pow(beta2, t),
                o.eps,
                -lr * (1 - mu) / (1 - product),
                -lr * next_mu / (1 - product * next_mu)};
  }
  batch.run();
}

// ---- RAdam

// The factor by which the adaptive step is rectified after t steps; zero while its variance is not known.
static double rectification(double beta2, double t) {
  const double most = 2 / (1 - beta2) - 1;
  const double length = most - 2 * t * std::pow(beta2, t) / (1 - std::pow(beta2, t));
  if (!(length > 5)) return 0;
  return std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
}

static void by_operations(const RAdamItem& item, const RAdamOptions& o, double t) {
  const Number lr = o.lr.without_history(), beta1 = o.betas[0].without_history(), beta2 = o.betas[1].without_history();
  if (o.decoupled_weight_decay && o.weight_decay.value() != 0) shrink(item.param, lr, o.weight_decay);
  const Number decay = o.decoupled_weight_decay ? Number(0) : o.weight_decay;
  const Tensor grad = as_real(effective_gradient(item.grad, item.param, o.maximize, decay));
  const Tensor average = as_real(item.exp_avg), square = as_real(item.exp_avg_sq);

  lerp_to(average, grad, Number(1) - beta1);
  average_square(square, grad, beta2);
  Tensor update = multiplied(divided(kept(average, o.differentiable), Number(1) - pow(beta1, t)), lr);
  if (const double factor = rectification(beta2.value(), t); factor != 0) {
    const Number root = sqrt(Number(1) - pow(beta2, t));
    update = multiplied(update * square.sqrt().add(o.eps).reciprocal(), root) * Scalar(factor);
  }
  as_real(item.param).sub_(update);
}

void radam_step(std::span<RAdamItem> items, const RAdamOptions& o) {
  refuse_sparse(items, "RAdam");
  StepMode mode(o.differentiable);
  FusedBatch batch(&LayerKernelTable::radam_step);
  const double lr = o.lr.value(), beta1 = o.betas[0].value(), beta2 = o.betas[1].value();
  const double decay = o.weight_decay.value();
  for (RAdamItem& item : items) {
    if (!item.step.defined()) item.step = new_counter(item.param, o.capturable);
    if (!item.exp_avg.defined()) item.exp_avg = new_state(item.param);
    if (!item.exp_avg_sq.defined()) item.exp_avg_sq = new_state(item.param);
    const double t = advance(item.step);
    const double factor = rectification(beta2, t);
    const uint32_t flags = flags_of(o) | (factor != 0 ? FusedParameter::kRectified : 0);
    FusedParameter* p =
        o.differentiable ? nullptr : batch.add({&item.param, &item.grad, &item.exp_avg, &item.exp_avg_sq}, flags);
    if (!p) {
      by_operations(item, o, t);
      continue;
    }
    set_decay(*p, decay, o.decoupled_weight_decay, lr);
    const double correction1 = 1 - std::pow(beta1, t), root = std::sqrt(1 - std::pow(beta2, t));
    p->radam = {1 - beta1, beta2, 1 - beta2, correction1, root, o.eps, lr, factor};
  }
  batch.run();
}

}  // namespace mica::optim
