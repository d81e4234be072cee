// The facts about a convolution that cuDNN needs, and the plan that is kept for it.
#pragma once

#include "mica/backend/kernel_types.h"

namespace mica::cuda {

enum class ConvolutionTask : int { Forward, InputGradient, WeightGradient };

inline constexpr int kMaxDims = 5;

// A tensor as cuDNN sees it.
struct ConvolutionShape {
  int sizes[kMaxDims], strides[kMaxDims];
};
struct ConvolutionKey {
  int task, device, dtype, dims, groups, channels_last, tf32, repeatable, benchmark, alignment;
  ConvolutionShape image, result;
  int filter[kMaxDims], stride[3], padding[3], dilation[3];
};

// Runs the convolution on memory laid out as the key says, with the engine that was chosen when the problem was first
// met: the heuristic's first, or a faster one as far as there was time to compare; with `benchmark` always the fastest;
// where results have to repeat, the first that repeats them.
void run_convolution(const ConvolutionKey& key, void* image, void* filter, void* result);

}  // namespace mica::cuda
