// Finds the part of attention that a block works on, and starts the kernels of the gradients. The same for all kernels,
// whatever they multiply with.
#pragma once

#include "backends/cuda/attention/attention.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda::attention {

template <class T>
__device__ T* rows_at(T* data, const Strides& strides, int64_t batch, int64_t head, int64_t row = 0) {
  return data + batch * strides.batch + head * strides.head + row * strides.row;
}

// A few queries of one head against all keys that they see. Causal blocks that see the most keys come first.
template <class T>
struct QueryBlock {
  int64_t batch, head, first, last_key;
  int64_t number;  // of the head's first query among those of all heads
  const T *query, *key, *value;

  __device__ QueryBlock(const Problem<T>& p, int rows) {
    batch = blockIdx.y / p.heads, head = blockIdx.y % p.heads;
    const int64_t kv_head = head / (p.heads / p.kv_heads);
    first = static_cast<int64_t>(p.causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * rows;
    last_key = p.causal && first + rows < p.keys ? first + rows : p.keys;
    number = (batch * p.heads + head) * p.length;
    query = rows_at(p.query, p.query_strides, batch, head, first);
    key = rows_at(p.key, p.key_strides, batch, kv_head);
    value = rows_at(p.value, p.value_strides, batch, kv_head);
  }
};

// A few keys of one head against all queries of the heads that share them.
template <class T>
struct KeyBlock {
  int64_t batch, kv_head, first;
  int64_t shared;  // heads of queries, of which kv_head * shared is the first
  const T *key, *value;

  __device__ KeyBlock(const Problem<T>& p, int rows) {
    batch = blockIdx.y / p.kv_heads, kv_head = blockIdx.y % p.kv_heads;
    first = static_cast<int64_t>(blockIdx.x) * rows;
    shared = p.heads / p.kv_heads;
    key = rows_at(p.key, p.key_strides, batch, kv_head, first);
    value = rows_at(p.value, p.value_strides, batch, kv_head, first);
  }
};

// The gradients of the queries, then those of keys and values: each block has kRows rows of what it writes and kBytes
// of shared memory.
template <auto kForQueries, auto kForKeys, int kRows, int kBlock, int kBytes, class B>
void launch_gradients(const B& b, int64_t batch, const TensorView& grad_query, const TensorView& grad_key,
                      const TensorView& grad_value) {
  using T = std::remove_const_t<std::remove_pointer_t<decltype(b.grad)>>;
  static const cudaError_t raised = [] {
    const cudaError_t first = cudaFuncSetAttribute(kForQueries, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    const cudaError_t second = cudaFuncSetAttribute(kForKeys, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    return first == cudaSuccess ? second : first;
  }();
  MICA_CUDA(raised);
  const cudaStream_t stream = current_stream(grad_query.device.index());
  const Problem<T>& p = b.p;
  kForQueries<<<dim3(blocks_for(p.length, kRows), static_cast<unsigned>(batch * p.heads)), kBlock, kBytes, stream>>>(
      b, grad_query.ptr<T>(), strides_of(grad_query));
  MICA_CUDA(cudaGetLastError());
  kForKeys<<<dim3(blocks_for(p.keys, kRows), static_cast<unsigned>(batch * p.kv_heads)), kBlock, kBytes, stream>>>(
      b, grad_key.ptr<T>(), strides_of(grad_key), grad_value.ptr<T>(), strides_of(grad_value));
  MICA_CUDA(cudaGetLastError());
}

}  // namespace mica::cuda::attention
