// Kernels that other kernels call.
#pragma once

#include "mica/backend/pointwise_loop.h"
#include "mica/backend/tensor_view.h"
#include "mica/core/scalar.h"

namespace mica::cuda {

void copy(const PointwiseLoop& loop);
void logical_not(const PointwiseLoop& loop);
void maximum(const PointwiseLoop& loop);
void minimum(const PointwiseLoop& loop);
void add(const PointwiseLoop& loop, Scalar alpha);
void reduce_any(const TensorView& out, const TensorView& self, uint64_t dims);
void reduce_all(const TensorView& out, const TensorView& self, uint64_t dims);
void reduce_count_nonzero(const TensorView& out, const TensorView& self, uint64_t dims);
// Every number becomes the sum of those up to it.
void sum_up(int64_t* numbers, int64_t count, int device);

// A number as one element of the dtype, in the memory of the host; what does not fit wraps.
void write_number(const Scalar& value, DType dtype, void* to);

}  // namespace mica::cuda
