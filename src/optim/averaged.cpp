// Averaged SGD and Rprop.
#include "optim/rule.h"

namespace mica::optim {

// ---- ASGD

static void by_operations(const ASGDItem& item, const ASGDOptions& o, double eta, double mu) {
  const Tensor grad = as_real(effective_gradient(item.grad, item.param, o.maximize, o.weight_decay));
  const Tensor param = as_real(item.param), mean = as_real(item.ax);
  param.mul_(1 - o.lambd * eta).add_(grad, -eta);
  if (mu != 1) {
    mean.add_(param.sub(mean).mul(mu));
  } else {
    mean.copy_(param);
  }
}

void asgd_step(std::span<ASGDItem> items, const ASGDOptions& o) {
  refuse_sparse(items, "ASGD");
  StepMode mode(o.differentiable);
  FusedBatch batch(&LayerKernelTable::asgd_step);
  const double lr = o.lr.value(), decay = o.weight_decay.value();
  for (ASGDItem& item : items) {
    if (!item.step.defined()) item.step = new_counter(item.param, true);
    if (!item.eta.defined()) item.eta = new_counter(item.param, true, lr);
    if (!item.mu.defined()) item.mu = new_counter(item.param, true, 1);
    if (!item.ax.defined()) item.ax = new_state(item.param);
    const double t = advance(item.step), eta = read(item.eta), mu = read(item.mu);
    const uint32_t flags = flags_of(o) | (mu != 1 ? FusedParameter::kAveraging : 0);
    FusedParameter* p = o.differentiable ? nullptr : batch.add({&item.param, &item.grad, &item.ax}, flags);
    if (p) {
      set_decay(*p, decay, false, lr);
      p->asgd = {1 - o.lambd * eta, eta, mu};
    } else {
      by_operations(item, o, eta, mu);
    }
    write(item.eta, lr / std::pow(1 + o.lambd * lr * t, o.alpha));
    write(item.mu, 1 / std::max(1.0, t - o.t0));
  }
  batch.run();
}

// ---- Rprop

static void by_operations(const RpropItem& item, const RpropOptions& o) {
  Tensor grad = as_real(o.maximize ? -item.grad : item.grad);
  const Tensor before = as_real(item.prev), size = as_real(item.step_size);
  const Tensor agreement = grad.mul(kept(before, o.differentiable));
  const Tensor turned = agreement.lt(0);
  Tensor factor = ones_like(agreement.detach());
  factor.masked_fill_(agreement.gt(0), o.etas[1]).masked_fill_(turned, o.etas[0]);
  size.mul_(factor).clamp_(Scalar(o.step_sizes[0]), Scalar(o.step_sizes[1]));
  grad = grad.masked_fill(turned, 0);
  as_real(item.param).addcmul_(grad.sign(), kept(size, o.differentiable), -1);
  before.copy_(grad);
}

void rprop_step(std::span<RpropItem> items, const RpropOptions& o) {
  refuse_sparse(items, "Rprop");
  StepMode mode(o.differentiable);
  FusedBatch batch(&LayerKernelTable::rprop_step);
  for (RpropItem& item : items) {
    if (!item.step.defined()) item.step = new_counter(item.param, o.capturable);
    if (!item.prev.defined()) item.prev = new_state(item.param);
    if (!item.step_size.defined()) {
      const double lr = o.lr.value();
      const Scalar start = item.param.is_complex() ? Scalar(complex128(lr, lr)) : Scalar(lr);
      item.step_size = full_like(item.grad, start, {}, MemoryFormat::Preserve).detach();
    }
    advance(item.step);
    FusedParameter* p =
        o.differentiable ? nullptr : batch.add({&item.param, &item.grad, &item.prev, &item.step_size}, flags_of(o));
    if (!p) {
      by_operations(item, o);
      continue;
    }
    p->rprop = {o.etas[0], o.etas[1], o.step_sizes[0], o.step_sizes[1]};
  }
  batch.run();
}

}  // namespace mica::optim
