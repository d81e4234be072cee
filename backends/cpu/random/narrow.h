// Rounding floats to the 16-bit formats, to nearest even, as Half(float) and BFloat16(float) do.
#pragma once

#include <cstdint>

#include "mica/dtype.h"

namespace mica::cpu {

void narrow(const float* in, Half* out, int64_t count);
void narrow(const float* in, BFloat16* out, int64_t count);

}  // namespace mica::cpu
