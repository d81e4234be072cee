// silu of a norm in one pass, for compiled functions. The CPU's backend defines it.
#pragma once

#include "mica/backend/pointwise_loop.h"

namespace mica::recording {

// The first operand becomes silu(shift + scale * x) of the three others, all of them float32. Each element has the bits
// that addcmul and then silu give it.
void silu_of_line(const PointwiseLoop& loop);

}  // namespace mica::recording
