// Several tiles of one row of tiles in one call.
#pragma once

#include <cstdint>

#include "backends/cpu/gemm/kernels.h"

namespace mica::cpu::gemm_impl {

// Runs `tiles` whole tiles of micro_kernel_f32() side by side, beginning with t. A is packed, and the panels of B lie
// one behind the other. The sums overwrite C.
using AcrossFn = void (*)(const MicroTile& t, int64_t tiles);

// Null where this is no faster than tile by tile.
AcrossFn float_across();

}  // namespace mica::cpu::gemm_impl
