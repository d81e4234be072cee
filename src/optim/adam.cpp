#include <vector>

#include "optim/rule.h"

namespace mica::optim {

static void by_operations(const AdamItem& item, const AdamOptions& o, double t) {
  const Number lr = o.lr.without_history(), beta1 = o.betas[0].without_history(), beta2 = o.betas[1].without_history();
  if (o.decoupled_weight_decay && o.weight_decay.value() != 0) shrink(item.param, lr, o.weight_decay);
  const Number decay = o.decoupled_weight_decay ? Number(0) : o.weight_decay;
  const Tensor grad = as_real(effective_gradient(item.grad, item.param, o.maximize, decay));
  const Tensor param = as_real(item.param), average = as_real(item.exp_avg), square = as_real(item.exp_avg_sq);

  lerp_to(average, grad, Number(1) - beta1);
  average_square(square, grad, beta2);
  Tensor largest = square;
  if (o.amsgrad) {
    largest = as_real(item.max_exp_avg_sq);
    largest.copy_(maximum(kept(largest, o.differentiable), kept(square, o.differentiable)));
  }
  const Number root = sqrt(Number(1) - pow(beta2, t));
  const Tensor divisor = divided(largest.sqrt(), root).add(o.eps);
  add_quotient(param, kept(average, o.differentiable), divisor, -(lr / (Number(1) - pow(beta1, t))));
}

// A step whose count lies on the device, where the kernel reads it. Nothing comes back to the host, so that the step
// can be captured in a graph. Returns false, and has changed nothing, where a parameter does not fit the kernel.
static bool step_on_device(std::span<AdamItem> items, const AdamOptions& o) {
  if (o.differentiable || items.empty() || o.betas[0].is_tensor() || o.betas[1].is_tensor()) return false;
  const Device device = items[0].param.device();
  if (device.is_cpu() || device.is_meta() || !layer_kernel_table(device).advance_counters) return false;
  const bool lr_on_device = o.lr.is_tensor() && !o.lr.tensor().is_cpu();
  if (lr_on_device && (o.lr.tensor().dtype() != DType::Float32 || o.lr.tensor().device() != device)) return false;
  for (const AdamItem& item : items)
    if (item.param.device() != device || item.param.dtype() != items[0].param.dtype() || !item.step.defined() ||
        item.step.device() != device || item.step.dtype() != DType::Float32)
      return false;
  FusedBatch batch(&LayerKernelTable::adam_step);
  const double beta1 = o.betas[0].value(), beta2 = o.betas[1].value(), lr = lr_on_device ? 0 : o.lr.value();
  const double decay = o.weight_decay.value();
  std::vector<const TensorView*> counters;
  for (AdamItem& item : items) {
    FusedParameter* p =
        o.amsgrad ? batch.add({&item.param, &item.grad, &item.exp_avg, &item.exp_avg_sq, &item.max_exp_avg_sq},
                              flags_of(o) | FusedParameter::kAmsgrad)
                  : batch.add({&item.param, &item.grad, &item.exp_avg, &item.exp_avg_sq}, flags_of(o));
    // Only at the first parameter can the step still be given up.
    if (!p) {
      if (counters.empty()) return false;
      item.step.add_(1);
      by_operations(item, o, item.step.item().to_double());
      continue;
    }
    counters.push_back(&item.step.view_of());
    mark_changed(item.step);
    if (decay != 0) {
      p->flags |= o.decoupled_weight_decay ? FusedParameter::kShrink : FusedParameter::kDecay;
      p->decay = o.decoupled_weight_decay && !lr_on_device ? 1 - lr * decay : decay;
    }
    p->step = static_cast<const float*>(item.step.data_ptr());
    p->lr = lr_on_device ? static_cast<const float*>(o.lr.tensor().data_ptr()) : nullptr;
    p->adam = {1 - beta1, beta2, 1 - beta2, 0, o.eps, lr};
  }
  MICA_LAYER_KERNEL(device, advance_counters)(counters);
  batch.run();
  return true;
}

void adam_step(std::span<AdamItem> items, const AdamOptions& o) {
  refuse_sparse(items, "Adam", ", please consider SparseAdam instead");
  StepMode mode(o.differentiable);
  for (AdamItem& item : items) {
    if (!item.step.defined()) item.step = new_counter(item.param, o.capturable || o.fused);
    if (!item.exp_avg.defined()) item.exp_avg = new_state(item.param);
    if (!item.exp_avg_sq.defined()) item.exp_avg_sq = new_state(item.param);
    if (o.amsgrad && !item.max_exp_avg_sq.defined()) item.max_exp_avg_sq = new_state(item.param);
  }
  if (step_on_device(items, o)) return;
  FusedBatch batch(&LayerKernelTable::adam_step);
  const double lr = o.lr.value(), beta1 = o.betas[0].value(), beta2 = o.betas[1].value();
  const double decay = o.weight_decay.value();
  // The corrections of the last count: most parameters have taken the same number of steps.
  double counted = 0, correction1 = 0, root = 0;
  for (AdamItem& item : items) {
    MICA_CHECK(!o.differentiable || !item.step.requires_grad(),
               "`requires_grad` is not supported for `step` in differentiable mode");
    const double t = advance(item.step);

    FusedParameter* p = nullptr;
    if (!o.differentiable) {
      p = o.amsgrad ? batch.add({&item.param, &item.grad, &item.exp_avg, &item.exp_avg_sq, &item.max_exp_avg_sq},
                                flags_of(o) | FusedParameter::kAmsgrad)
                    : batch.add({&item.param, &item.grad, &item.exp_avg, &item.exp_avg_sq}, flags_of(o));
    }
    if (!p) {
      by_operations(item, o, t);
      continue;
    }
    if (t != counted) {
      counted = t;
      correction1 = 1 - std::pow(beta1, t);
      root = std::sqrt(1 - std::pow(beta2, t));
    }
    set_decay(*p, decay, o.decoupled_weight_decay, lr);
    p->adam = {1 - beta1, beta2, 1 - beta2, root, o.eps, lr / correction1};
  }
  batch.run();
}

void adamw_step(std::span<AdamItem> items, const AdamWOptions& o) {
  adam_step(items, {.lr = o.lr,
                    .betas = o.betas,
                    .eps = o.eps,
                    .weight_decay = o.weight_decay,
                    .amsgrad = o.amsgrad,
                    .maximize = o.maximize,
                    .capturable = o.capturable,
                    .differentiable = o.differentiable,
                    .fused = o.fused,
                    .decoupled_weight_decay = true});
}

}  // namespace mica::optim
