// What a mask selects: elements are counted by chunk, so that every chunk knows where its part of the result begins.
#include "backends/cuda/context.h"
#include "backends/cuda/index/select.cuh"
#include "backends/cuda/kernels.h"

namespace mica::cuda {

namespace {

constexpr int kMaxDims = 64;
// Where the indices of an element go.
struct Coordinates {
  int ndim;
  bool narrow;  // positions fit 31 bits
  Divider dividers[kMaxDims];
  int64_t sizes[kMaxDims];
  int64_t* out;
  int64_t row_stride, column_stride;
  __device__ void write(int64_t i, int64_t to) const {
    int64_t* at = out + to * row_stride + (ndim - 1) * column_stride;
    if (narrow) {
      auto rest = static_cast<uint32_t>(i);
      for (int d = ndim - 1; d > 0; --d, at -= column_stride) {
        const uint32_t next = dividers[d].divide(rest);
        *at = rest - next * dividers[d].divisor;
        rest = next;
      }
      *at = rest;
    } else {
      for (int d = ndim - 1; d > 0; --d, at -= column_stride) {
        *at = i % sizes[d];
        i /= sizes[d];
      }
      *at = i;
    }
  }
};

// Neighbouring lanes look at neighbouring elements, and what they find they write side by side.
template <class T>
__global__ void __launch_bounds__(kThreads)
    nonzero_kernel(int64_t n, int64_t chunk, Elements<T> from, const int64_t* offsets, Coordinates to) {
  constexpr int kWarps = kThreads / 32;
  __shared__ int found[2][kWarps];
  wait_for_predecessors();
  const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
  if (begin >= end) return;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t mine = warp * (32 * kPerThread) + lane;
  T values[kPerThread];
  auto load = [&](int64_t tile) {
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      if (tile + mine + j * 32 < end) values[j] = from.load(tile + mine + j * 32);
  };
  load(begin);
  int64_t place = offsets[blockIdx.x];
  int turn = 0;
#pragma unroll 1
  for (int64_t tile = begin; tile < end; tile += kTile, turn ^= 1) {
    unsigned holds[kPerThread];
    int count = 0;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      holds[j] = __ballot_sync(0xffffffffu, tile + mine + j * 32 < end && from.truth(values[j]));
      count += __popc(holds[j]);
    }
    if (tile + kTile < end) load(tile + kTile);  // on its way while the indices of this one are written
    if (lane == 0) found[turn][warp] = count;
    __syncthreads();
    int before = 0, total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before += found[turn][w];
      total += found[turn][w];
    }
    int64_t at = place + before;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (holds[j] >> lane & 1) to.write(tile + mine + j * 32, at + __popc(holds[j] & ((1u << lane) - 1)));
      at += __popc(holds[j]);
    }
    place += total;
  }
}

// What a dense mask of bools takes of a dense tensor: a tile of it is read whole, and what is taken lies side by side
// in shared memory before it is written.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(int64_t n, int64_t chunk, const uint8_t* mask, const T* from, const int64_t* offsets, T* out) {
  constexpr int V = static_cast<int>(sizeof(T) >= 16 ? 1 : sizeof(T) == 1 ? 8 : 16 / sizeof(T));
  using Piece = Vector<T, V>;
  __shared__ T taken[kTile];
  wait_for_predecessors();
  const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
  if (begin >= end) return;
  const bool aligned = reinterpret_cast<uintptr_t>(mask) % 8 == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  T* to = out + offsets[blockIdx.x];
  // A thread's part of a tile; what is taken is known by the highest bits of bytes.
  struct Part {
    T values[kPerThread];
    uint32_t low, high;
  };
  auto load = [&](int64_t tile) {
    Part part;
    part.low = part.high = 0;
    const int64_t first = tile + threadIdx.x * kPerThread;
    if (aligned && first + kPerThread <= end) {
      const uint2 bytes = *reinterpret_cast<const uint2*>(mask + first);
#pragma unroll
      for (int k = 0; k < kPerThread / V; ++k) {
        const Piece piece = *reinterpret_cast<const Piece*>(from + first + k * V);
#pragma unroll
        for (int j = 0; j < V; ++j) part.values[k * V + j] = piece.item[j];
      }
      part.low = bytes_that_hold(bytes.x, ~0u);
      part.high = bytes_that_hold(bytes.y, ~0u);
    } else {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        if (first + j >= end || !mask[first + j]) continue;
        part.values[j] = from[first + j];
        (j < 4 ? part.low : part.high) |= 0x80u << (j % 4 * 8);
      }
    }
    return part;
  };
  Part next = load(begin);
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const Part part = next;
    if (tile + kTile < end) next = load(tile + kTile);  // on its way while this one is packed
    int total;
    int place = sum_before<kThreads>(__popc(part.low) + __popc(part.high), total);
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      if ((j < 4 ? part.low : part.high) >> (j % 4 * 8) & 0x80u) taken[place++] = part.values[j];
    __syncthreads();
    for (int i = threadIdx.x; i < total; i += kThreads) to[i] = taken[i];
    to += total;
  }
}
template <class T>
struct Unpack {
  T* out;
  const T* from;
  __device__ void operator()(int64_t i, int64_t to) const { out[i] = from[to]; }
};

}  // namespace

void nonzero_offsets(const TensorView& offsets, const TensorView& self) {
  const int device = self.device.index();
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  auto* table = offsets.ptr<int64_t>();
  if (self.numel == 0)
    return MICA_CUDA(cudaMemsetAsync(table, 0, static_cast<size_t>(offsets.numel) * sizeof(int64_t), stream));
  visit_truth(self.dtype, [&]<class T>(Tag<T>, Truth<T> truth) {
    launch<count_kernel<T>>(device, static_cast<unsigned>(offsets.numel - 1), kThreads, self.numel,
                            chunk_size(self.numel, offsets), elements<T>(self, truth), table);
  });
  if (offsets.numel > 2) sum_up(table + 1, offsets.numel - 1, device);
}

void nonzero(const TensorView& out, const TensorView& self, const TensorView& offsets) {
  if (self.ndim == 0 || out.numel == 0) return;
  DeviceGuard guard(self.device.index());
  Coordinates to{};
  to.ndim = self.ndim;
  to.narrow = self.numel < (int64_t{1} << 31);
  for (int d = 0; d < self.ndim; ++d) {
    to.sizes[d] = self.sizes[d];
    if (to.narrow) to.dividers[d] = Divider(static_cast<uint32_t>(self.sizes[d]));
  }
  to.out = out.ptr<int64_t>();
  to.row_stride = out.strides[0], to.column_stride = out.strides[1];
  visit_truth(self.dtype, [&]<class T>(Tag<T>, Truth<T> truth) {
    launch<nonzero_kernel<T>>(self.device.index(), static_cast<unsigned>(offsets.numel - 1), kThreads, self.numel,
                              chunk_size(self.numel, offsets), elements<T>(self, truth), offsets.ptr<const int64_t>(),
                              to);
  });
}

void masked_select(const TensorView& out, const TensorView& self, const TensorView& mask, const TensorView& offsets) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
    launch<pack_kernel<T>>(out.device.index(), static_cast<unsigned>(offsets.numel - 1), kThreads, self.numel,
                           chunk_size(self.numel, offsets), mask.ptr<const uint8_t>(), self.ptr<const T>(),
                           offsets.ptr<const int64_t>(), out.ptr<T>());
  });
}

void masked_scatter(const TensorView& self, const TensorView& mask, const TensorView& source,
                    const TensorView& offsets) {
  if (self.numel == 0) return;
  DeviceGuard guard(self.device.index());
  visit_size(element_size(self.dtype), [&]<class T>(Tag<T>) {
    select(mask, offsets, Unpack<T>{self.ptr<T>(), source.ptr<const T>()});
  });
}

}  // namespace mica::cuda
