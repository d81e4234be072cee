// Totals and running sums over the threads of a block.
#pragma once

#include "backends/cuda/element.cuh"

namespace mica::cuda {

template <class A>
struct AddOp {
  __device__ A operator()(A a, A b) const { return a + b; }
};
template <class A>
struct MaxOp {
  __device__ A operator()(A a, A b) const { return larger_or_nan(a, b); }
};

// The total over a group of kGroup threads (32, or the whole block), for all of them. A kernel that names a slot uses
// it only once, and saves a barrier by that.
template <int kGroup, int kSlot = -1, class A, class Op>
__device__ A all_reduce(A value, Op op) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, mask));
  if constexpr (kGroup > 32) {
    constexpr int kWarps = kGroup / 32;
    __shared__ A shared[kWarps];
    if constexpr (kSlot < 0) __syncthreads();  // nobody reads the last total any more
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = shared[threadIdx.x % kWarps];
#pragma unroll
    for (int mask = kWarps / 2; mask > 0; mask /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, mask));
  }
  return value;
}

// The sum of the values of the threads before this one, and of all.
template <int kBlock, class A>
__device__ A sum_before(A value, A& total) {
  constexpr int kWarps = kBlock / 32;
  __shared__ A sums[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  auto scan = [lane](A v) {
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const A before = __shfl_up_sync(0xffffffffu, v, distance);
      if (lane >= distance) v += before;
    }
    return v;
  };
  const A up_to = scan(value);
  __syncthreads();  // nobody reads the last sums any more
  if (lane == 31) sums[warp] = up_to;
  __syncthreads();
  const A warps = scan(lane < kWarps ? sums[lane] : A(0));
  total = __shfl_sync(0xffffffffu, warps, kWarps - 1);
  const A earlier = __shfl_sync(0xffffffffu, warps, warp ? warp - 1 : 0);
  return up_to - value + (warp ? earlier : A(0));
}

}  // namespace mica::cuda
