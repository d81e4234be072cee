// Kernels that other kernels call.
#pragma once

#include "mica/kernel_types.h"

namespace mica::cuda {

void copy(const PointwiseLoop& loop);
void maximum(const PointwiseLoop& loop);
void minimum(const PointwiseLoop& loop);
void add(const PointwiseLoop& loop, Scalar alpha);

// A number as one element of the dtype, in the memory of the host; what does not fit wraps.
void write_number(const Scalar& value, DType dtype, void* to);

}  // namespace mica::cuda
