// Products of compressed rows with a dense matrix, and dense products taken at given places only.
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kWarp = 32, kWarps = kThreads / kWarp;

template <class T>
__device__ T across(const T& v, int lane) {
  if constexpr (is_complex_v<T>) {
    return T(__shfl_sync(0xffffffffu, v.real(), lane), __shfl_sync(0xffffffffu, v.imag(), lane));
  } else if constexpr (sizeof(T) < 4) {
    return static_cast<T>(__shfl_sync(0xffffffffu, static_cast<int>(v), lane));
  } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) {
    return static_cast<T>(__shfl_sync(0xffffffffu, static_cast<long long>(v), lane));
  } else {
    return __shfl_sync(0xffffffffu, v, lane);
  }
}
template <class T>
__device__ T added(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else {
    return static_cast<T>(a + b);
  }
}
template <class T>
__device__ T times(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a && b;
  } else {
    return static_cast<T>(a * b);
  }
}
template <class T>
__device__ T warp_sum(T v) {
  const int lane = threadIdx.x % kWarp;
  for (int step = kWarp / 2; step; step /= 2) v = added(v, across(v, lane ^ step));
  return v;
}

template <class T>
struct Rows {
  T* out;
  int64_t out_step, rows, width;
  const int64_t *begins, *columns;
  const T *values, *dense;
  int64_t dense_step;
  bool accumulate;
};

// A warp for kPerLane columns per lane of one row: the row's values and columns are read once, by all lanes together,
// and handed round.
template <int kPerLane, class T>
__global__ void __launch_bounds__(kThreads) wide_kernel(Rows<T> r) {
  using C = compute_t<T>;
  const int lane = threadIdx.x % kWarp;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= r.rows) return;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kWarp * kPerLane + lane;
  C sums[kPerLane];
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int64_t j = first + k * kWarp;
    sums[k] = r.accumulate && j < r.width ? convert<C>(r.out[row * r.out_step + j]) : C(0);
  }
  const int64_t end = r.begins[row + 1];
  for (int64_t at = r.begins[row]; at < end; at += kWarp) {
    const bool mine = at + lane < end;
    const int64_t column = mine ? r.columns[at + lane] : 0;
    const C value = mine ? convert<C>(r.values[at + lane]) : C(0);
    const int count = end - at < kWarp ? static_cast<int>(end - at) : kWarp;
    for (int i = 0; i < count; ++i) {
      const T* const from = r.dense + across(column, i) * r.dense_step;
      const C by = across(value, i);
#pragma unroll
      for (int k = 0; k < kPerLane; ++k) {
        const int64_t j = first + k * kWarp;
        if (j < r.width) sums[k] = added(sums[k], times(by, convert<C>(from[j])));
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kPerLane; ++k) {
    const int64_t j = first + k * kWarp;
    if (j < r.width) r.out[row * r.out_step + j] = convert<T>(sums[k]);
  }
}

// A warp for each element of the result: for few columns.
template <class T>
__global__ void __launch_bounds__(kThreads) narrow_kernel(Rows<T> r) {
  using C = compute_t<T>;
  const int lane = threadIdx.x % kWarp;
  const int64_t element = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (element >= r.rows * r.width) return;
  const int64_t row = element / r.width, j = element - row * r.width;
  C sum = C(0);
  for (int64_t at = r.begins[row] + lane; at < r.begins[row + 1]; at += kWarp)
    sum = added(sum, times(convert<C>(r.values[at]), convert<C>(r.dense[r.columns[at] * r.dense_step + j])));
  sum = warp_sum(sum);
  if (lane) return;
  T* const place = r.out + row * r.out_step + j;
  *place = convert<T>(r.accumulate ? added(convert<C>(*place), sum) : sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sampled_kernel(int64_t n, T* out, const int64_t* rows, const int64_t* columns, const T* a, int64_t a_step,
                   const T* b, int64_t b_step, int64_t inner) {
  using C = compute_t<T>;
  const int lane = threadIdx.x % kWarp;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (i >= n) return;
  const T *const left = a + rows[i] * a_step, *const right = b + columns[i] * b_step;
  C sum = C(0);
  for (int64_t j = lane; j < inner; j += kWarp) sum = added(sum, times(convert<C>(left[j]), convert<C>(right[j])));
  sum = warp_sum(sum);
  if (lane == 0) out[i] = convert<T>(sum);
}

unsigned warps_for(int64_t n) {
  const int64_t blocks = (n + kWarps - 1) / kWarps;
  MICA_CHECK(blocks < (int64_t{1} << 31), "products with sparse matrices on CUDA: too many rows");
  return static_cast<unsigned>(blocks);
}

}  // namespace

void sparse_csr_mm(const TensorView& out, const TensorView& compressed, const TensorView& plain,
                   const TensorView& values, const TensorView& dense, bool accumulate) {
  const int device = out.device.index();
  DeviceGuard guard(device);
  if (out.numel == 0) return;
  const cudaStream_t stream = current_stream(device);
  visit_number_bool("sparse_mm", out.dtype, [&]<class T>(Tag<T>) {
    const Rows<T> r{out.ptr<T>(),
                    out.strides[0],
                    out.sizes[0],
                    out.sizes[1],
                    compressed.ptr<const int64_t>(),
                    plain.ptr<const int64_t>(),
                    values.ptr<const T>(),
                    dense.ptr<const T>(),
                    dense.strides[0],
                    accumulate};
    if (r.width < 16) {
      narrow_kernel<T><<<warps_for(r.rows * r.width), kThreads, 0, stream>>>(r);
    } else if (r.width <= 64) {
      wide_kernel<2, T><<<dim3(warps_for(r.rows), 1), kThreads, 0, stream>>>(r);
    } else {
      const int64_t parts = (r.width + kWarp * 4 - 1) / (kWarp * 4);
      MICA_CHECK(parts <= 65535, "products with sparse matrices on CUDA take up to 8388480 columns, but got ", r.width);
      wide_kernel<4, T><<<dim3(warps_for(r.rows), static_cast<unsigned>(parts)), kThreads, 0, stream>>>(r);
    }
  });
  MICA_CUDA(cudaGetLastError());
}

void sparse_sampled_mm(const TensorView& out, const TensorView& rows, const TensorView& columns, const TensorView& a,
                       const TensorView& b) {
  DeviceGuard guard(out.device.index());
  if (out.numel == 0) return;
  visit_number_bool("sampled_mm", out.dtype, [&]<class T>(Tag<T>) {
    sampled_kernel<T><<<warps_for(out.numel), kThreads, 0, current_stream(out.device.index())>>>(
        out.numel, out.ptr<T>(), rows.ptr<const int64_t>(), columns.ptr<const int64_t>(), a.ptr<const T>(),
        a.strides[0], b.ptr<const T>(), b.strides[0], a.sizes[1]);
  });
  MICA_CUDA(cudaGetLastError());
}

}  // namespace mica::cuda
