// Convolutions with as many groups as channels, in float32: every filter sees one channel, so there is no matrix to
// multiply with.
#pragma once

#include "backends/cpu/convolution/correlation.h"

namespace mica::cpu::convolution {

inline bool is_depthwise(const Problem& p) { return p.groups > 1 && p.channels == 1; }

void convolve_depthwise(const Problem& p);
// The same where source and result have their channels side by side, though their tensors do not say so.
bool suits_depthwise_interleaved(const Problem& p);
void convolve_depthwise_interleaved(const Problem& p);
void input_gradient_depthwise(const Problem& p);   // fills the input, which begins with the bias
void weight_gradient_depthwise(const Problem& p);  // fills the weight

}  // namespace mica::cpu::convolution
