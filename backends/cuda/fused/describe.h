#pragma once

#include "mica/backend/fusion.h"

namespace mica::cuda {

bool run_fused(const FusedLoop& loop);

}  // namespace mica::cuda
