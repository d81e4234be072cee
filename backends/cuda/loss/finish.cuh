// The end of a loss: losses and weights of rows, or of parts, become one number.
#pragma once

#include "backends/cuda/block.cuh"
#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"
#include "mica/backend/pair_loss.h"

namespace mica::cuda {

// out = the sum of losses, over that of weights for a mean; total = the sum of weights. One block, in a fixed order.
template <class T, class W>
__global__ void __launch_bounds__(1024)
    finish_loss(const double* losses, const double* weights, int64_t n, T* out, W* total, double divisor, bool mean) {
  double loss = 0, weight = 0;
  for (int64_t i = threadIdx.x; i < n; i += 1024) {
    loss += losses[i];
    if (weights) weight += weights[i];
  }
  loss = all_reduce<1024>(loss, AddOp<double>{});
  if (weights) weight = all_reduce<1024>(weight, AddOp<double>{});
  if (threadIdx.x) return;
  if (out) out[0] = convert<T>(mean ? loss / (weights ? weight : divisor) : loss);
  if (total) total[0] = convert<W>(weight);
}

// The class labels of a loss: int64 or uint8, one for every row.
struct Labels {
  const int64_t* wide;
  const uint8_t* narrow;
  int64_t classes, ignored;

  Labels(const TensorView& target, int64_t classes_of, int64_t ignore_index)
      : wide(target.dtype == DType::Int64 ? target.ptr<const int64_t>() : nullptr),
        narrow(target.ptr<const uint8_t>()),
        classes(classes_of),
        ignored(ignore_index) {}
#if defined(__CUDACC__)
  // -1 for a row that does not count. A label outside is reported, and counts for nothing.
  template <class B>
  __device__ int64_t at(int64_t row, const B& bounds) const {
    const int64_t label = wide ? wide[row] : narrow[row];
    if (label == ignored) return -1;
    if (label >= 0 && label < classes) return label;
    bounds.checked(label, classes, 1, false);
    return -1;
  }
#endif
};

}  // namespace mica::cuda
