// What a mask selects: elements are counted by chunk, so that every chunk knows where its part of the result begins.
#include "backends/cuda/context.h"
#include "backends/cuda/index/select.cuh"
#include "backends/cuda/kernels.h"

namespace mica::cuda {

namespace {

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
  visit_truth(self.dtype, [&]<class T>(Tag<T>, Truth<T> truth) {
    count_kernel<<<static_cast<unsigned>(offsets.numel - 1), kThreads, 0, stream>>>(
        self.numel, chunk_size(self.numel, offsets), elements<T>(self, truth), table);
  });
  MICA_CUDA(cudaGetLastError());
  if (offsets.numel > 2) sum_up(table + 1, offsets.numel - 1, device);
}

void nonzero(const TensorView& out, const TensorView& self, const TensorView& offsets) {
  if (self.ndim == 0 || out.numel == 0) return;
  DeviceGuard guard(self.device.index());
  Coordinates visit{self.ndim, {}, out.ptr<int64_t>(), out.strides[0], out.strides[1]};
  for (int d = 0; d < self.ndim; ++d) visit.sizes[d] = self.sizes[d];
  visit_truth(self.dtype,
              [&]<class T>(Tag<T>, Truth<T> truth) { select_where(self, elements<T>(self, truth), offsets, visit); });
}

void masked_select(const TensorView& out, const TensorView& self, const TensorView& mask, const TensorView& offsets) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
    select(mask, offsets, Pack<T>{out.ptr<T>(), self.ptr<const T>()});
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
