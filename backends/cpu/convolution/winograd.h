// 3 x 3 convolutions of stride one by Winograd's F(2x2, 3x3), which needs 2.25 times fewer multiplications. The
// transforms only add and halve, so that errors stay as small as those of a plain sum.
#pragma once

#include "backends/cpu/convolution/correlation.h"

namespace mica::cpu::convolution {

bool suits_winograd(const Correlation& c);
void convolve_winograd(const Correlation& c);
// Fills the weight of the forward problem from its input and the gradient of its output.
void weight_gradient_winograd(const Problem& p);

}  // namespace mica::cpu::convolution
