// What a GradScaler is made of: 16-bit gradients of a scaled loss are brought back, and the scale follows their range.
#pragma once

#include "mica/tensor.h"

namespace mica::optim {

// Multiplies the gradients by inv_scale in place, and sets found_inf to one if an element was infinite or NaN. Both are
// float32 tensors of one element.
void unscale_gradients(TensorList gradients, const Tensor& found_inf, const Tensor& inv_scale);

// Shrinks the scale after a step that was skipped, lets it grow after growth_interval steps in a row that were not.
void update_scale(const Tensor& scale, const Tensor& growth_tracker, const Tensor& found_inf, double growth_factor,
                  double backoff_factor, int64_t growth_interval);

}  // namespace mica::optim
