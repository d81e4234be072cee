// Transforms of sequences whose elements lie side by side, one after the other.
#pragma once

#include "backends/cpu/fft/dense_plan.h"
#include "backends/cpu/fft/lanes.h"

namespace mica::cpu::fft {

// Transforms `first` to `last` of a batch whose strides are those of adjacent elements. `plan` is that of
// batch.plan_length(), `half_roots` the roots of batch.length where it is halved.
#define MICA_FFT_DENSE(T) \
  void run_dense(const DensePlan<T>& plan, const T* half_roots, const Batch<T>& batch, int64_t first, int64_t last);
MICA_FFT_DENSE(float)
MICA_FFT_DENSE(double)
#undef MICA_FFT_DENSE

}  // namespace mica::cpu::fft
