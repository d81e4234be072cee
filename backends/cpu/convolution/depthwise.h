// Convolutions with as many groups as channels, in float32: every filter sees one channel, so there is no matrix to
// multiply with.
#pragma once

#include "backends/cpu/convolution/correlation.h"

namespace mica::cpu::convolution {

inline bool is_depthwise(const Problem& p) { return p.groups > 1 && p.channels == 1; }

void convolve_depthwise(const Problem& p);
void input_gradient_depthwise(const Problem& p);   // fills the input, which begins with the bias
void weight_gradient_depthwise(const Problem& p);  // fills the weight

}  // namespace mica::cpu::convolution
