// Norms of rows with what a compiled function does before and after them: takes_norm, run_norm and run_norm_gradient of
// the backend's Fusion.
#pragma once

#include "mica/backend/fusion.h"

namespace mica::cuda {

inline constexpr int64_t kMostOfFusedNorm = 4096;  // elements of a row, which threads hold

bool takes_norm(int64_t count);
void run_fused_norm(const FusedNorm& norm);
void run_fused_norm_gradient(const FusedNormGradient& norm);

}  // namespace mica::cuda
