// RMSprop, Adagrad and Adadelta.
#include "mica/generated/layers/sparse.h"
#include "optim/rule.h"

namespace mica::optim {

// ---- RMSprop

static void by_operations(const RMSpropItem& item, const RMSpropOptions& o) {
  const Number size = -o.lr.without_history();
  const Tensor grad = as_real(effective_gradient(item.grad, item.param, o.maximize, o.weight_decay));
  const Tensor param = as_real(item.param), square = as_real(item.square_avg);
  average_square(square, grad, o.alpha);
  Tensor divisor = square;
  if (o.centered) {
    const Tensor mean = as_real(item.grad_avg);
    lerp_to(mean, grad, 1 - o.alpha);
    const Tensor now = kept(mean, o.differentiable);
    divisor = square.addcmul(now, now, -1);
  }
  divisor = divisor.sqrt().add(o.eps);
  if (o.momentum > 0) {
    const Tensor buffer = as_real(item.momentum_buffer);
    buffer.mul_(o.momentum).addcdiv_(grad, divisor);
    add_scaled(param, kept(buffer, o.differentiable), size);
  } else {
    add_quotient(param, grad, divisor, size);
  }
}

void rmsprop_step(std::span<RMSpropItem> items, const RMSpropOptions& o) {
  refuse_sparse(items, "RMSprop");
  StepMode mode(o.differentiable);
  FusedBatch batch(&LayerKernelTable::rmsprop_step);
  const double lr = o.lr.value(), decay = o.weight_decay.value();
  const uint32_t flags =
      flags_of(o) | (o.momentum > 0 ? FusedParameter::kMomentum : 0) | (o.centered ? FusedParameter::kCentered : 0);
  for (RMSpropItem& i : items) {
    if (!i.step.defined()) i.step = new_counter(i.param, o.capturable);
    if (!i.square_avg.defined()) i.square_avg = new_state(i.param);
    if (o.momentum > 0 && !i.momentum_buffer.defined()) i.momentum_buffer = new_state(i.param);
    if (o.centered && !i.grad_avg.defined()) i.grad_avg = new_state(i.param);
    advance(i.step);
    FusedParameter* p = nullptr;
    if (o.differentiable) {
    } else if (o.momentum > 0 && o.centered) {
      p = batch.add({&i.param, &i.grad, &i.square_avg, &i.grad_avg, &i.momentum_buffer}, flags);
    } else if (o.momentum > 0) {
      p = batch.add({&i.param, &i.grad, &i.square_avg, &i.momentum_buffer}, flags);
    } else if (o.centered) {
      p = batch.add({&i.param, &i.grad, &i.square_avg, &i.grad_avg}, flags);
    } else {
      p = batch.add({&i.param, &i.grad, &i.square_avg}, flags);
    }
    if (!p) {
      by_operations(i, o);
      continue;
    }
    set_decay(*p, decay, false, lr);
    p->rmsprop = {o.alpha, 1 - o.alpha, o.eps, o.momentum, lr};
  }
  batch.run();
}

// ---- Adagrad

void adagrad_init(AdagradItem& item, const AdagradOptions& o) {
  if (!item.step.defined()) item.step = new_counter(item.param, o.fused);
  if (item.sum.defined()) return;
  const double start = o.initial_accumulator_value;
  const Scalar value = item.param.is_complex() ? Scalar(complex128(start, start)) : Scalar(start);
  item.sum = full_like(item.param, value, {}, MemoryFormat::Preserve).detach();
}

static void by_operations(const AdagradItem& item, const AdagradOptions& o, double t) {
  const Number rate = o.lr.without_history() / Number(1 + (t - 1) * o.lr_decay);
  const Tensor grad = as_real(effective_gradient(item.grad, item.param, o.maximize, o.weight_decay));
  const Tensor sum = as_real(item.sum);
  sum.addcmul_(grad, grad, 1);
  add_quotient(as_real(item.param), grad, sum.sqrt().add(o.eps), -rate);
}

// A sparse gradient changes only the elements that it holds.
static void by_elements(const AdagradItem& item, const AdagradOptions& o, double t) {
  const Tensor grad = (o.maximize ? -item.grad : item.grad).coalesce();
  const Tensor values = grad._values();
  const auto at_its_places = [&](const Tensor& t) {
    return _sparse_coo_tensor_unsafe(grad._indices(), t, grad.sizes(), true);
  };
  item.sum.add_(at_its_places(values * values));
  const Tensor divisor = item.sum.sparse_mask(grad)._values().sqrt().add(o.eps);
  item.param.add_(at_its_places(values / divisor), -o.lr.value() / (1 + (t - 1) * o.lr_decay));
}

static void check_sparse(std::span<AdagradItem> items, const AdagradOptions& o) {
  for (const AdagradItem& item : items) {
    if (!item.grad.is_sparse()) continue;
    MICA_CHECK(!o.fused, "`fused` does not support sparse grad or complex param");
    MICA_CHECK(o.weight_decay.value() == 0, "weight_decay option is not compatible with sparse gradients");
  }
}

void adagrad_step(std::span<AdagradItem> items, const AdagradOptions& o) {
  check_sparse(items, o);
  StepMode mode(o.differentiable);
  FusedBatch batch(&LayerKernelTable::adagrad_step);
  const double lr = o.lr.value(), decay = o.weight_decay.value();
  for (AdagradItem& item : items) {
    adagrad_init(item, o);
    const double t = advance(item.step);
    if (item.grad.is_sparse()) {
      by_elements(item, o, t);
      continue;
    }
    FusedParameter* p = o.differentiable ? nullptr : batch.add({&item.param, &item.grad, &item.sum}, flags_of(o));
    if (!p) {
      by_operations(item, o, t);
      continue;
    }
    set_decay(*p, decay, false, lr);
    p->adagrad = {lr / (1 + (t - 1) * o.lr_decay), o.eps};
  }
  batch.run();
}

// ---- Adadelta

static void by_operations(const AdadeltaItem& item, const AdadeltaOptions& o) {
  const Tensor grad = as_real(effective_gradient(item.grad, item.param, o.maximize, o.weight_decay));
  const Tensor square = as_real(item.square_avg), updates = as_real(item.acc_delta);
  average_square(square, grad, o.rho);
  const Tensor delta = updates.add(o.eps).sqrt() / square.add(o.eps).sqrt() * grad;
  average_square(updates, delta, o.rho);
  add_scaled(as_real(item.param), delta, -o.lr.without_history());
}

void adadelta_step(std::span<AdadeltaItem> items, const AdadeltaOptions& o) {
  refuse_sparse(items, "Adadelta");
  StepMode mode(o.differentiable);
  FusedBatch batch(&LayerKernelTable::adadelta_step);
  const double lr = o.lr.value(), decay = o.weight_decay.value();
  for (AdadeltaItem& item : items) {
    if (!item.step.defined()) item.step = new_counter(item.param, o.capturable);
    if (!item.square_avg.defined()) item.square_avg = new_state(item.param);
    if (!item.acc_delta.defined()) item.acc_delta = new_state(item.param);
    advance(item.step);
    FusedParameter* p = o.differentiable
                            ? nullptr
                            : batch.add({&item.param, &item.grad, &item.square_avg, &item.acc_delta}, flags_of(o));
    if (!p) {
      by_operations(item, o);
      continue;
    }
    set_decay(*p, decay, false, lr);
    p->adadelta = {o.rho, 1 - o.rho, o.eps, lr};
  }
  batch.run();
}

}  // namespace mica::optim
