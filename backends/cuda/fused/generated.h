// Fused loops as code that is made for them: PTX, which the driver translates. No tool of CUDA is needed for that, and
// the driver keeps what it has translated on disk.
#pragma once

#include "backends/cuda/fused/layout.h"

namespace mica::cuda {

// Runs the loop by its own code. Returns false where it has none: a loop of this kind runs for the first time, or the
// driver cannot translate. The loop's device is current.
bool run_generated(const FusedLoop& loop, const FusedLayout& layout);

// Fusion::takes_sum and run_sequence.
bool takes_sum(const FusedSum& sum);
bool run_sequence(Device device, const FusedPart* parts, int count);

}  // namespace mica::cuda
