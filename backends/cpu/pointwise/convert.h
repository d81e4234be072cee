// Conversions between element types, as torch converts.
#pragma once

#include "backends/cpu/pointwise/run_loop.h"
#include "mica/dtype.h"

namespace mica::cpu {

// The inner loop, over dense operands, that converts between two different dtypes of which neither is a 16-bit float.
InnerLoop conversion_loop(DType to, DType from);

}  // namespace mica::cpu
