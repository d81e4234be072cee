// Elements that differ from zero, in their order: they are counted by chunk, so that every chunk knows where its part
// of the result begins.
#pragma once

#include "backends/cuda/block.cuh"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kPerThread = 8;
constexpr int kTile = kThreads * kPerThread;

// A multiple of 16, so that all chunks of bytes are aligned; the last ones may be empty.
int64_t chunk_size(int64_t numel, const TensorView& offsets) {
  const int64_t chunks = offsets.numel - 1;
  return ((numel + chunks - 1) / chunks + 15) / 16 * 16;
}
// The highest bit of each byte that has one of the bits of `mask`, which is the same in all bytes. Other bits are zero.
__device__ inline uint32_t bytes_that_hold(uint32_t bytes, uint32_t mask) {
  const uint32_t taken = bytes & mask;
  return (((taken & 0x7f7f7f7fu) + 0x7f7f7f7fu) | taken) & 0x80808080u;
}

template <class T>
struct Elements {
  const T* data;
  Places<1> places;
  bool dense;
  Truth<T> truth;
  __device__ T load(int64_t i) const {
    int64_t offset[1] = {i};
    if (!dense) places.at(i, offset);
    return data[offset[0]];
  }
  __device__ bool holds(int64_t i) const { return truth(load(i)); }
};
template <class T>
Elements<T> elements(const TensorView& t, Truth<T> truth) {
  return {t.ptr<const T>(), places_of(t), is_contiguous(t), truth};
}

template <class T>
__global__ void __launch_bounds__(kThreads) count_kernel(int64_t n, int64_t chunk, Elements<T> from, int64_t* counts) {
  wait_for_predecessors();
  const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
  int64_t count = 0, first = begin;
  if constexpr (sizeof(T) == 1) {
    if (from.dense && reinterpret_cast<uintptr_t>(from.data) % 16 == 0 && begin < end) {
      const uint32_t mask = from.truth.mask * 0x01010101u;
      const int64_t pieces = (end - begin) / 16;
#pragma unroll 4
      for (int64_t i = threadIdx.x; i < pieces; i += kThreads) {
        const uint4 piece = reinterpret_cast<const uint4*>(from.data + begin)[i];
        count += __popc(bytes_that_hold(piece.x, mask)) + __popc(bytes_that_hold(piece.y, mask)) +
                 __popc(bytes_that_hold(piece.z, mask)) + __popc(bytes_that_hold(piece.w, mask));
      }
      first = begin + pieces * 16;
    }
  } else if constexpr (sizeof(T) < 16) {
    if (from.dense && reinterpret_cast<uintptr_t>(from.data) % 16 == 0 && begin < end) {
      constexpr int kCount = 16 / sizeof(T);
      const int64_t pieces = (end - begin) / kCount;
#pragma unroll 4
      for (int64_t i = threadIdx.x; i < pieces; i += kThreads) {
        const auto piece = reinterpret_cast<const Vector<T, kCount>*>(from.data + begin)[i];
#pragma unroll
        for (int j = 0; j < kCount; ++j) count += from.truth(piece.item[j]);
      }
      first = begin + pieces * kCount;
    }
  }
#pragma unroll 4
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) count += from.holds(i);
  const int64_t total = all_reduce<kThreads>(count, AddOp<int64_t>{});
  if (threadIdx.x == 0) counts[blockIdx.x + 1] = total;
  if (threadIdx.x == 0 && blockIdx.x == 0) counts[0] = 0;
}

// Calls visit(element, place in the result) for the elements of a chunk that hold.
template <class Mask, class Visit>
__global__ void __launch_bounds__(kThreads)
    select_kernel(int64_t n, int64_t chunk, Mask mask, const int64_t* offsets, Visit visit) {
  const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
  int64_t place = offsets[blockIdx.x];
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t first = tile + threadIdx.x * kPerThread;
    bool holds[kPerThread];
    int count = 0;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      holds[j] = first + j < end && mask.holds(first + j);
      count += holds[j];
    }
    int total;
    int64_t to = place + sum_before<kThreads>(count, total);
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      if (holds[j]) visit(first + j, to++);
    place += total;
  }
}

// `mask` is of bools.
template <class Visit>
void select(const TensorView& mask, const TensorView& offsets, const Visit& visit) {
  if (mask.numel == 0) return;
  select_kernel<<<static_cast<unsigned>(offsets.numel - 1), kThreads, 0, current_stream(mask.device.index())>>>(
      mask.numel, chunk_size(mask.numel, offsets), elements<uint8_t>(mask, {0xff}), offsets.ptr<const int64_t>(),
      visit);
  MICA_CUDA(cudaGetLastError());
}

}  // namespace

}  // namespace mica::cuda
