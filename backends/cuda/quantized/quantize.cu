// quantize and dequantize: contiguous float32 numbers to integers and back, with one scale or one for each channel;
// products of 8-bit integers.
#include <optional>

#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

struct Channels {
  const double* scales;
  const int64_t* zeros;
  int64_t inner, count;
  __device__ int64_t of(int64_t i) const { return i / inner % count; }
};

// A list in memory of the device: the one scale of a tensor comes in that of the host.
class OnDevice {
 public:
  OnDevice(const TensorView& list, int device) : data_(list.data) {
    if (!list.device.is_cpu()) return;
    const auto bytes = static_cast<size_t>(list.numel * element_size(list.dtype));
    memory_.emplace(std::max<size_t>(bytes, 16), device);
    MICA_CUDA(cudaMemcpyAsync(memory_->data(), list.data, bytes, cudaMemcpyHostToDevice, current_stream(device)));
    data_ = memory_->data();
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }

 private:
  void* data_;
  std::optional<Workspace> memory_;
};
Channels channels(const OnDevice& scales, const OnDevice& zero_points, int64_t inner, int64_t count) {
  return {scales.as<double>(), zero_points.as<int64_t>(), inner, count};
}

template <class T>
struct Quantize {
  Channels channels;
  const float* from;
  T* to;
  int64_t low, high;
  __device__ void operator()(int64_t i) const {
    const int64_t c = channels.of(i);
    const float inverse = 1.0f / static_cast<float>(channels.scales[c]), scaled = from[i] * inverse;
    int64_t value;
    // NaN goes to the lower bound, and numbers beyond all integers to theirs.
    if (!(scaled < 9.0e18f)) {
      value = scaled > 0 ? high : low;
    } else if (scaled < -9.0e18f) {
      value = low;
    } else {
      value = static_cast<int64_t>(rintf(scaled)) + channels.zeros[c];
      value = value < low ? low : value > high ? high : value;
    }
    to[i] = static_cast<T>(value);
  }
};
template <class T>
struct Dequantize {
  Channels channels;
  const T* from;
  float* to;
  __device__ void operator()(int64_t i) const {
    const int64_t c = channels.of(i);
    to[i] =
        static_cast<float>(static_cast<int64_t>(from[i]) - channels.zeros[c]) * static_cast<float>(channels.scales[c]);
  }
};

template <class F>
void visit_quantized(DType dtype, const F& f) {
  if (dtype == DType::UInt8) return f(Tag<uint8_t>{});
  if (dtype == DType::Int8) return f(Tag<int8_t>{});
  f(Tag<int32_t>{});
}

constexpr int kTile = 16;

// out[r][c] = the product of row r of a with row c of b, summed in 32 bits.
__global__ void __launch_bounds__(kTile* kTile)
    int8_kernel(int32_t* out, const int8_t* a, const int8_t* b, int64_t rows, int64_t columns, int64_t inner) {
  __shared__ int8_t left[kTile][kTile], right[kTile][kTile + 1];
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kTile + threadIdx.y,
                first_column = static_cast<int64_t>(blockIdx.x) * kTile, column = first_column + threadIdx.x;
  int32_t sum = 0;
  for (int64_t k = 0; k < inner; k += kTile) {
    const bool in_k = k + threadIdx.x < inner;
    left[threadIdx.y][threadIdx.x] = row < rows && in_k ? a[row * inner + k + threadIdx.x] : int8_t{0};
    right[threadIdx.y][threadIdx.x] = first_column + threadIdx.y < columns && in_k
                                          ? b[(first_column + threadIdx.y) * inner + k + threadIdx.x]
                                          : int8_t{0};
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kTile; ++j)
      sum += static_cast<int32_t>(left[threadIdx.y][j]) * static_cast<int32_t>(right[threadIdx.x][j]);
    __syncthreads();
  }
  if (row < rows && column < columns) out[row * columns + column] = sum;
}

}  // namespace

void quantize(const TensorView& out, const TensorView& self, const TensorView& scales, const TensorView& zero_points,
              int64_t inner, int64_t low, int64_t high) {
  DeviceGuard guard(out.device.index());
  const OnDevice by(scales, out.device.index()), zeros(zero_points, out.device.index());
  visit_quantized(out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             Quantize<T>{channels(by, zeros, inner, scales.numel), self.ptr<const float>(), out.ptr<T>(), low, high});
  });
}

void dequantize(const TensorView& out, const TensorView& self, const TensorView& scales, const TensorView& zero_points,
                int64_t inner) {
  DeviceGuard guard(out.device.index());
  const OnDevice by(scales, out.device.index()), zeros(zero_points, out.device.index());
  visit_quantized(self.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             Dequantize<T>{channels(by, zeros, inner, scales.numel), self.ptr<const T>(), out.ptr<float>()});
  });
}

void int8_mm(const TensorView& out, const TensorView& a, const TensorView& b) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const int64_t rows = out.sizes[0], columns = out.sizes[1];
  MICA_CHECK(rows <= int64_t{65535} * kTile, "int8_mm on CUDA takes up to ", 65535 * kTile, " rows, but got ", rows);
  int8_kernel<<<dim3(blocks_for(columns, kTile), blocks_for(rows, kTile)), dim3(kTile, kTile), 0,
                current_stream(out.device.index())>>>(out.ptr<int32_t>(), a.ptr<const int8_t>(), b.ptr<const int8_t>(),
                                                      rows, columns, a.sizes[1]);
  MICA_CUDA(cudaGetLastError());
}

}  // namespace mica::cuda
