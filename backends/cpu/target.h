// The instruction set that kernels run with: the best that is compiled and that the machine has. The environment
// variable ATEN_CPU_CAPABILITY, which torch reads too, asks for a lower one: with `avx2` a machine that has AVX-512
// runs what older machines run.
#pragma once

namespace mica::cpu {

// Whether kernels may use AVX-512, and the units that come with it (VNNI, bfloat16 products, tiles).
bool may_use_avx512();

}  // namespace mica::cpu
