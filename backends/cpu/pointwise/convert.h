// Conversions between element types, as torch converts.
#pragma once

#include "backends/cpu/pointwise/run_loop.h"
#include "mica/dtype.h"

namespace mica::cpu {

// The inner loop, over dense operands, that converts between two different dtypes of which neither is a 16-bit float.
InnerLoop conversion_loop(DType to, DType from);

// The same between 64-bit integers and floats by the vectors of this processor; null for other pairs.
InnerLoop wide_integer_conversion(DType to, DType from);

}  // namespace mica::cpu
