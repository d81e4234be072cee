// arange, gather, index_select.
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

namespace {

template <class T>
__global__ void __launch_bounds__(kThreads)
    arange_integers(int64_t n, T* out, int64_t stride, uint64_t start, uint64_t step) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) out[i * stride] = static_cast<T>(start + static_cast<uint64_t>(i) * step);
}
template <class T>
__global__ void __launch_bounds__(kThreads)
    arange_floats(int64_t n, T* out, int64_t stride, double start, double step) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) out[i * stride] = convert<T>(start + step * static_cast<double>(i));
}

constexpr int kMaxDims = 24;

// A walk over the output; along `dim` the table is read where the index says.
struct Lookup {
  int ndim, dim;
  int64_t sizes[kMaxDims], out[kMaxDims], table[kMaxDims], index[kMaxDims];
  int64_t dim_size;  // of the table
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    lookup_kernel(int64_t n, Lookup walk, T* out, const T* table, const int64_t* index) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  int64_t to = 0, from = 0, place = 0;
  for (int d = walk.ndim - 1; d >= 0; --d) {
    const int64_t here = i % walk.sizes[d];
    i /= walk.sizes[d];
    to += here * walk.out[d];
    place += here * walk.index[d];
    if (d != walk.dim) from += here * walk.table[d];
  }
  int64_t at = index[place];
  if (at < 0) at += walk.dim_size;
  // As in every CUDA library the device stops on an index outside: the next call reports it.
  if (static_cast<uint64_t>(at) >= static_cast<uint64_t>(walk.dim_size)) {
    __trap();
  }
  out[to] = table[from + at * walk.table[walk.dim]];
}

void run_lookup(const char* op, const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index,
                bool one_dimensional) {
  if (out.numel == 0) return;
  MICA_CHECK(out.ndim <= kMaxDims, op, "(): tensors of more than ", kMaxDims, " dimensions are not supported on ",
             out.device);
  DeviceGuard guard(out.device.index);
  Lookup walk{};
  walk.ndim = std::max(out.ndim, 1);
  walk.dim = static_cast<int>(dim);
  walk.sizes[0] = 1;
  walk.dim_size = self.ndim ? self.sizes[dim] : 1;
  for (int d = 0; d < out.ndim; ++d) {
    walk.sizes[d] = out.sizes[d];
    walk.out[d] = out.strides[d];
    walk.table[d] = self.ndim ? self.strides[d] : 0;
    walk.index[d] = one_dimensional ? (d == dim && index.ndim ? index.strides[0] : 0) : index.strides[d];
  }
  visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
    lookup_kernel<T><<<blocks_for(out.numel, kThreads), kThreads, 0, current_stream(out.device.index)>>>(
        out.numel, walk, out.ptr<T>(), self.ptr<const T>(), index.ptr<const int64_t>());
  });
  MICA_CUDA(cudaGetLastError());
}

}  // namespace

// Floating sequences are computed in double, as start + i * step.
void arange(const TensorView& out, Scalar start, Scalar step) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index);
  const int64_t stride = out.ndim ? out.strides[0] : 1;
  const cudaStream_t stream = current_stream(out.device.index);
  visit_real("arange", out.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_integral_v<T>) {
      arange_integers<T><<<blocks_for(out.numel, kThreads), kThreads, 0, stream>>>(
          out.numel, out.ptr<T>(), stride, static_cast<uint64_t>(start.cast<int64_t>()),
          static_cast<uint64_t>(step.cast<int64_t>()));
    } else {
      arange_floats<T><<<blocks_for(out.numel, kThreads), kThreads, 0, stream>>>(
          out.numel, out.ptr<T>(), stride, start.cast<double>(), step.cast<double>());
    }
  });
  MICA_CUDA(cudaGetLastError());
}

void gather(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index) {
  run_lookup("gather", out, self, dim, index, false);
}

void index_select(const TensorView& out, const TensorView& self, int64_t dim, const TensorView& index) {
  run_lookup("index_select", out, self, dim, index, true);
}

}  // namespace mica::cuda
