// What a mask selects: elements are counted by chunk, so that every chunk knows where its part of the result begins.
#include <cub/cub.cuh>

#include "backends/cuda/allocator.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kPerThread = 8;
constexpr int kTile = kThreads * kPerThread;

int64_t chunk_size(int64_t numel, const TensorView& offsets) {
  const int64_t chunks = offsets.numel - 1;
  return (numel + chunks - 1) / chunks;
}

template <class T>
struct Elements {
  const T* data;
  Places<1> places;
  bool dense;
  __device__ bool holds(int64_t i) const {
    int64_t offset[1] = {i};
    if (!dense) places.at(i, offset);
    if constexpr (std::is_same_v<T, bool>) {
      return *reinterpret_cast<const uint8_t*>(data + offset[0]) != 0;
    } else {
      return convert<bool>(data[offset[0]]);
    }
  }
};
template <class T>
Elements<T> elements(const TensorView& t) {
  return {t.ptr<const T>(), places_of(t), is_contiguous(t)};
}

template <class T>
__global__ void __launch_bounds__(kThreads) count_kernel(int64_t n, int64_t chunk, Elements<T> from, int64_t* counts) {
  const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
  int64_t count = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) count += from.holds(i);
  using Reduce = cub::BlockReduce<int64_t, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  const int64_t total = Reduce(storage).Sum(count);
  if (threadIdx.x == 0) counts[blockIdx.x + 1] = total;
  if (threadIdx.x == 0 && blockIdx.x == 0) counts[0] = 0;
}

// Calls visit(element, place in the result) for the elements of a chunk that hold.
template <class T, class Visit>
__global__ void __launch_bounds__(kThreads)
    select_kernel(int64_t n, int64_t chunk, Elements<T> mask, const int64_t* offsets, Visit visit) {
  using Scan = cub::BlockScan<int, kThreads>;
  __shared__ typename Scan::TempStorage storage;
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
    int before, total;
    Scan(storage).ExclusiveSum(count, before, total);
    int64_t to = place + before;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j)
      if (holds[j]) visit(first + j, to++);
    place += total;
    __syncthreads();
  }
}

template <class T, class Visit>
void select(const TensorView& mask, const TensorView& offsets, const Visit& visit) {
  if (mask.numel == 0) return;
  select_kernel<<<static_cast<unsigned>(offsets.numel - 1), kThreads, 0, current_stream(mask.device.index())>>>(
      mask.numel, chunk_size(mask.numel, offsets), elements<T>(mask), offsets.ptr<const int64_t>(), visit);
  MICA_CUDA(cudaGetLastError());
}

constexpr int kMaxDims = 64;
struct Coordinates {
  int ndim;
  int64_t sizes[kMaxDims];
  int64_t* out;
  int64_t row_stride, column_stride;
  __device__ void operator()(int64_t i, int64_t to) const {
    for (int d = ndim - 1; d >= 0; --d) {
      out[to * row_stride + d * column_stride] = i % sizes[d];
      i /= sizes[d];
    }
  }
};
template <class T>
struct Pack {
  T* out;
  const T* from;
  __device__ void operator()(int64_t i, int64_t to) const { out[to] = from[i]; }
};
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
  visit_any("nonzero", self.dtype, [&]<class T>(Tag<T>) {
    count_kernel<<<static_cast<unsigned>(offsets.numel - 1), kThreads, 0, stream>>>(
        self.numel, chunk_size(self.numel, offsets), elements<T>(self), table);
  });
  MICA_CUDA(cudaGetLastError());
  if (offsets.numel == 2) return;
  size_t bytes = 0;
  MICA_CUDA(cub::DeviceScan::InclusiveSum(nullptr, bytes, table + 1, table + 1, offsets.numel - 1, stream));
  const Workspace workspace(bytes, device);
  MICA_CUDA(cub::DeviceScan::InclusiveSum(workspace.data(), bytes, table + 1, table + 1, offsets.numel - 1, stream));
}

void nonzero(const TensorView& out, const TensorView& self, const TensorView& offsets) {
  if (self.ndim == 0 || out.numel == 0) return;
  DeviceGuard guard(self.device.index());
  Coordinates visit{self.ndim, {}, out.ptr<int64_t>(), out.strides[0], out.strides[1]};
  for (int d = 0; d < self.ndim; ++d) visit.sizes[d] = self.sizes[d];
  visit_any("nonzero", self.dtype, [&]<class T>(Tag<T>) { select<T>(self, offsets, visit); });
}

void masked_select(const TensorView& out, const TensorView& self, const TensorView& mask, const TensorView& offsets) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
    select<bool>(mask, offsets, Pack<T>{out.ptr<T>(), self.ptr<const T>()});
  });
}

void masked_scatter(const TensorView& self, const TensorView& mask, const TensorView& source,
                    const TensorView& offsets) {
  if (self.numel == 0) return;
  DeviceGuard guard(self.device.index());
  visit_size(element_size(self.dtype), [&]<class T>(Tag<T>) {
    select<bool>(mask, offsets, Unpack<T>{self.ptr<T>(), source.ptr<const T>()});
  });
}

}  // namespace mica::cuda
