// Where one element of each of several tensors lies, for kernels that walk over tensors of any strides.
#pragma once

#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

inline constexpr int kPlaceDims = 16;  // after neighbouring dimensions have been joined

// A few dimensions, the fastest first, with a stride for each of N tensors, in elements.
template <int N>
struct Places {
  int ndim = 0;
  int64_t numel = 1;
  bool narrow = true;  // positions fit 31 bits, whose division is cheap
  Divider dividers[kPlaceDims];
  int64_t sizes[kPlaceDims];
  int64_t strides[kPlaceDims][N];

  // The next slower dimension. What continues the one before is joined to it.
  void add(int64_t size, const int64_t (&step)[N]) {
    numel *= size;
    if (size == 1) return;
    bool joins = ndim > 0;
    for (int k = 0; joins && k < N; ++k) joins = strides[ndim - 1][k] * sizes[ndim - 1] == step[k];
    if (joins) {
      sizes[ndim - 1] *= size;
      return;
    }
    MICA_CHECK(ndim < kPlaceDims, "CUDA kernels take tensors of at most ", kPlaceDims,
               " dimensions that cannot be joined");
    sizes[ndim] = size;
    for (int k = 0; k < N; ++k) strides[ndim][k] = step[k];
    ++ndim;
  }
  void finish() {
    narrow = numel < (int64_t{1} << 31);
    for (int d = 0; d < ndim && narrow && numel; ++d) dividers[d] = Divider(static_cast<uint32_t>(sizes[d]));
  }

  __device__ void at(int64_t i, int64_t (&offsets)[N]) const {
#pragma unroll
    for (int k = 0; k < N; ++k) offsets[k] = 0;
    if (narrow) {
      auto rest = static_cast<uint32_t>(i);
      for (int d = 0; d < ndim; ++d) {
        uint32_t here = rest;
        if (d + 1 < ndim) {
          const uint32_t next = dividers[d].divide(rest);
          here = rest - next * dividers[d].divisor;
          rest = next;
        }
#pragma unroll
        for (int k = 0; k < N; ++k) offsets[k] += static_cast<int64_t>(here) * strides[d][k];
      }
    } else {
      int64_t rest = i;
      for (int d = 0; d < ndim; ++d) {
        int64_t here = rest;
        if (d + 1 < ndim) {
          here = rest % sizes[d];
          rest /= sizes[d];
        }
#pragma unroll
        for (int k = 0; k < N; ++k) offsets[k] += here * strides[d][k];
      }
    }
  }
};

// Tensors of one shape.
template <class... Views>
Places<1 + sizeof...(Views)> places_of(const TensorView& first, const Views&... others) {
  Places<1 + sizeof...(Views)> places;
  for (int d = first.ndim - 1; d >= 0; --d) places.add(first.sizes[d], {first.strides[d], others.strides[d]...});
  places.finish();
  return places;
}

// Runs body(i) for i in [0, n) on the device.
template <class Body>
__global__ void __launch_bounds__(kThreads) for_each_kernel(int64_t n, Body body) {
  wait_for_predecessors();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) body(i);
}
template <class Body>
void for_each(int device, int64_t n, const Body& body) {
  if (n == 0) return;
  constexpr int64_t kMostBlocks = int64_t{1} << 30;
  const auto blocks = static_cast<unsigned>(std::min(kMostBlocks, (n + kThreads - 1) / kThreads));
  launch<for_each_kernel<Body>>(device, blocks, kThreads, n, body);
}

inline bool is_contiguous(const TensorView& t) {
  int64_t expected = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    if (t.sizes[d] != 1 && t.strides[d] != expected) return false;
    expected *= t.sizes[d];
  }
  return true;
}

}  // namespace mica::cuda
