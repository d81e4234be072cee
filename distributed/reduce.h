// Element by element reductions of the buffers of several ranks.
#pragma once

#include "call.h"

namespace mica::distributed {

// out[i] = the reduction of inputs[0][i], inputs[1][i], ... in this order, so that every rank that computes it gets the
// same bits. `out` may be one of the inputs. 16-bit floats are added in float and rounded once.
void reduce(DType dtype, Reduction reduction, double factor, const std::vector<const std::byte*>& inputs,
            std::byte* out, size_t count);

// Divides floating or complex values in place.
void divide(DType dtype, std::byte* values, size_t count, int by);

}  // namespace mica::distributed
