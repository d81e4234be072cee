#include "optim/rule.h"

namespace mica::optim {

static void by_operations(SGDItem& item, const SGDOptions& o) {
  const Tensor& param = item.param;
  Tensor grad = effective_gradient(item.grad, param, o.maximize, o.weight_decay);
  if (o.momentum != 0) {
    if (!item.momentum_buffer.defined()) {
      item.momentum_buffer = grad.detach().clone();
    } else {
      item.momentum_buffer.mul_(o.momentum).add_(grad, 1 - o.dampening);
    }
    grad = o.nesterov ? grad.add(item.momentum_buffer, o.momentum) : item.momentum_buffer;
  }
  const Number size = -o.lr.without_history();
  add_scaled(param, size.is_tensor() ? kept(grad, o.differentiable) : grad, size);
}

void sgd_step(std::span<SGDItem> items, const SGDOptions& o) {
  if (o.fused) refuse_sparse(items, "`_fused_sgd`");
  StepMode mode(o.differentiable);
  FusedBatch batch(&LayerKernelTable::sgd_step);
  const double lr = o.differentiable ? 0 : o.lr.value(), decay = o.differentiable ? 0 : o.weight_decay.value();
  for (SGDItem& item : items) {
    if (o.differentiable) {
      by_operations(item, o);
      continue;
    }
    FusedParameter* p;
    if (o.momentum == 0) {
      p = batch.add({&item.param, &item.grad}, flags_of(o));
    } else {
      uint32_t flags = flags_of(o) | FusedParameter::kMomentum | (o.nesterov ? FusedParameter::kNesterov : 0);
      const bool first = !item.momentum_buffer.defined();
      if (first) {
        item.momentum_buffer = empty_like(item.param, {}, MemoryFormat::Preserve).detach();
        flags |= FusedParameter::kFirst;
      }
      p = batch.add({&item.param, &item.grad, &item.momentum_buffer}, flags);
      if (!p && first) item.momentum_buffer = {};
    }
    if (!p) {
      by_operations(item, o);
      continue;
    }
    set_decay(*p, decay, false, lr);
    p->sgd = {lr, o.momentum, 1 - o.dampening};
  }
  batch.run();
}

}  // namespace mica::optim
