// batch_norm in evaluation as compiled functions put it off.
#pragma once

#include <algorithm>

#include "core/recorded_call.h"

namespace mica::recording {

// Operands of the call: the result and the input as (outer, channels, inner), then weight, bias, mean and variance as
// (outer, channels).
struct RecordedBatchNorm {
  static constexpr const char* kName = "batch_norm";
  using Kernel = void(const TensorView& out, const TensorView& mean, const TensorView& rstd,
                      const TensorView& running_mean, const TensorView& running_var, const TensorView& input,
                      const TensorView& weight, const TensorView& bias, bool training, double momentum, double eps);
  Kernel* kernel;
  double eps;

  // A piece is some examples, or some channels of one.
  void operator()(const TensorView* views, int dropped) const {
    int64_t sizes[] = {1, 0, 0}, strides[] = {0, 0, 1};
    TensorView wide[] = {views[0], views[1]};
    if (dropped) {
      std::copy(views[0].sizes, views[0].sizes + 2, sizes + 1);
      strides[1] = sizes[2];
      for (TensorView& v : wide) v.sizes = sizes, v.strides = strides, v.ndim = 3;
    }
    TensorView channel[4];
    for (int i = 0; i < 4; ++i) {
      TensorView& v = channel[i] = views[2 + i];
      const int last = v.ndim - 1;
      v.sizes += last, v.strides += last, v.ndim = 1, v.numel = v.sizes[0];
    }
    kernel(wide[0], {}, {}, channel[2], channel[3], wide[1], channel[0], channel[1], false, 0, eps);
  }
};

}  // namespace mica::recording
