#include "mica/optim/loss_scale.h"

#include <cmath>
#include <vector>

#include "mica/autograd.h"
#include "mica/backend/layer_backend.h"
#include "mica/core/class_alias.h"
#include "mica/ops.h"

namespace mica::optim {

static void check_single(const Tensor& t, const char* name) {
  MICA_CHECK(t.numel() == 1, name, " must be a 1-element tensor.");
  MICA_CHECK(t.dtype() == DType::Float32, name, " must be a float tensor.");
}

static bool fits_kernel(const Tensor& t) {
  if (dispatch::in_parts) return false;  // a class is asked for operations
  const DType dtype = t.dtype();
  return (dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 || dtype == DType::BFloat16) &&
         !(t.impl()->bits & (tensor_bit::kSpecial | tensor_bit::kInference)) && !t.is_meta() &&
         t.is_non_overlapping_and_dense() && layer_kernel_table(t.device()).unscale_gradients;
}

// For gradients that all lie on one device whose backend needs nothing read back.
static bool unscale_on_device(TensorList gradients, const Tensor& found_inf, const Tensor& inv_scale) {
  const Device device = inv_scale.device();
  if (device.is_cpu() || device.is_meta() || found_inf.device() != device ||
      !layer_kernel_table(device).unscale_on_device)
    return false;
  for (const Tensor& g : gradients)
    if (g.device() != device) return false;
  std::vector<const TensorView*> views;
  const auto run = [&] {
    if (!views.empty()) MICA_LAYER_KERNEL(device, unscale_on_device)(views, found_inf.view_of(), inv_scale.view_of());
    views.clear();
  };
  for (const Tensor& g : gradients) {
    const DType dtype = g.dtype();
    const bool fits =
        (dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 || dtype == DType::BFloat16) &&
        !(g.impl()->bits & (tensor_bit::kSpecial | tensor_bit::kInference)) && g.is_non_overlapping_and_dense();
    if (!fits) {
      found_inf.copy_(maximum(found_inf, isfinite(g).all().logical_not().to(DType::Float32)));
      g.mul_(inv_scale);
      continue;
    }
    if (!views.empty() && views[0]->dtype != dtype) run();
    views.push_back(&g.view_of());
    mark_changed(g);
  }
  run();
  mark_changed(found_inf);
  return true;
}

void unscale_gradients(TensorList gradients, const Tensor& found_inf, const Tensor& inv_scale) {
  check_single(inv_scale, "inv_scale");
  check_single(found_inf, "found_inf");
  NoGradGuard no_grad;
  if (unscale_on_device(gradients, found_inf, inv_scale)) return;
  const double scale = inv_scale.item().to_double();
  bool found = false;
  std::vector<const TensorView*> views;
  const auto run = [&] {
    if (views.empty()) return;
    bool here = false;
    MICA_LAYER_KERNEL(views[0]->device, unscale_gradients)(views, scale, &here);
    found |= here;
    views.clear();
  };
  for (const Tensor& g : gradients) {
    if (fits_kernel(g)) {
      if (!views.empty() && (views[0]->dtype != g.dtype() || views[0]->device != g.device())) run();
      views.push_back(&g.view_of());
      mark_changed(g);
    } else {
      found |= !isfinite(g).all().item().to_bool();
      if (scale != 1) g.mul_(scale);
    }
  }
  run();
  if (found) found_inf.fill_(1);
}

void update_scale(const Tensor& scale, const Tensor& growth_tracker, const Tensor& found_inf, double growth_factor,
                  double backoff_factor, int64_t growth_interval) {
  MICA_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  MICA_CHECK(growth_tracker.dtype() == DType::Int32, "growth_tracker must be an int tensor.");
  check_single(scale, "current_scale");
  check_single(found_inf, "found_inf");
  NoGradGuard no_grad;
  const Device device = scale.device();
  if (!device.is_cpu() && !device.is_meta() && growth_tracker.device() == device && found_inf.device() == device &&
      layer_kernel_table(device).update_scale_on_device) {
    MICA_LAYER_KERNEL(device, update_scale_on_device)
    (scale.view_of(), growth_tracker.view_of(), found_inf.view_of(), growth_factor, backoff_factor, growth_interval);
    mark_changed(scale);
    mark_changed(growth_tracker);
    return;
  }
  if (found_inf.item().to_double() != 0) {
    scale.mul_(backoff_factor);
    growth_tracker.fill_(0);
    return;
  }
  const int64_t successes = growth_tracker.item().to_int() + 1;
  if (successes == growth_interval) {
    const float grown = static_cast<float>(scale.item().to_double()) * static_cast<float>(growth_factor);
    if (std::isfinite(grown)) scale.fill_(grown);
    growth_tracker.fill_(0);
  } else {
    growth_tracker.fill_(successes);
  }
}

}  // namespace mica::optim
