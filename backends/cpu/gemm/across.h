// Tiles of one row of tiles in one call.
#pragma once

#include <cstdint>

#include "backends/cpu/gemm/kernels.h"

namespace mica::cpu::gemm_impl {

// Runs `tiles` whole tiles of micro_kernel_f32() side by side, beginning with t: of a packed A and panels of B one
// behind the other. Their sums overwrite C.
using AcrossFn = void (*)(const MicroTile& t, int64_t tiles);

// Null where that is no faster than tile by tile.
AcrossFn float_across();

}  // namespace mica::cpu::gemm_impl
