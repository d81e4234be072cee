#pragma once

#include "mica/backend/fusion.h"

namespace mica::cuda {

void run_fused(const FusedLoop& loop);

}  // namespace mica::cuda
