// cuFFT's plans, kept for each device, shape and layout.
#pragma once

#include <cstdint>

#include "backends/cuda/fft/cufft.h"

namespace mica::cuda::fft {

inline constexpr int kMostDims = 3;  // of one plan

// Where the elements of one side lie: along the last dimension `stride` apart, with `embed[k]` places for each step
// along dimension k - 1, and `distance` between the batch's parts.
struct Layout {
  long long embed[kMostDims] = {};
  long long stride = 1, distance = 1;
};

struct Call {
  int type = 0, rank = 0;
  long long n[kMostDims] = {};  // of the real side, if there is one
  long long batch = 1;
  Layout in, out;
};

// Queues a transform on the current stream, with memory of the allocator to work in.
void run(const Call& call, void* in, void* out, bool forward, int device);

}  // namespace mica::cuda::fft
