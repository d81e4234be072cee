// The reduction of a real matrix to Hessenberg form, in one thread, by vectors down the columns.
#pragma once

#include <cstdint>

namespace mica::cpu::hessenberg {

// Does what gehrd does, for rows and columns `first` to `last` of `n`, both included: leaves H, with the reflectors
// below it. Columns are `lead` apart, which is a multiple of 64 bytes; they begin at such a multiple, and hold zeros
// below row `n`.
void reduce(float* a, int64_t lead, int64_t n, int64_t first, int64_t last, float* tau);
void reduce(double* a, int64_t lead, int64_t n, int64_t first, int64_t last, double* tau);

}  // namespace mica::cpu::hessenberg
