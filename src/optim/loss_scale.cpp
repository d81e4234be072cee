#include "mica/optim/loss_scale.h"

#include <cmath>

#include "mica/autograd.h"
#include "mica/layer_backend.h"
#include "mica/ops.h"

namespace mica::optim {

static void check_single(const Tensor& t, const char* name) {
  MICA_CHECK(t.numel() == 1, name, " must be a 1-element tensor.");
  MICA_CHECK(t.dtype() == DType::Float32, name, " must be a float tensor.");
}

static bool fits_kernel(const Tensor& t) {
  const DType dtype = t.dtype();
  return (dtype == DType::Float32 || dtype == DType::Float64 || dtype == DType::Float16 || dtype == DType::BFloat16) &&
         !(t.impl()->bits & (tensor_bit::kSpecial | tensor_bit::kInference)) && !t.is_meta() &&
         t.is_non_overlapping_and_dense() && layer_kernel_table(t.device()).unscale_gradients;
}

void unscale_gradients(TensorList gradients, const Tensor& found_inf, const Tensor& inv_scale) {
  check_single(inv_scale, "inv_scale");
  check_single(found_inf, "found_inf");
  NoGradGuard no_grad;
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
