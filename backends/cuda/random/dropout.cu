// What dropout multiplies by, drawn as torch's fused kernel draws: threads take several elements that lie side by side,
// as many as fit a load of 16 bytes and divide the tensor's size.
#include "backends/cuda/random/dropout.h"

#include <mutex>

#include "backends/cuda/random/philox.cuh"

namespace mica::cuda {

namespace {

template <int kWidth, class T>
struct alignas(sizeof(T) * kWidth) Pack {
  T values[kWidth];
};

// kWidth elements of a thread need a draw of four numbers for each four, and one for two.
template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads)
    side_by_side_kernel(int64_t n, T* out, float keep, T scale, PhiloxPlace from) {
  constexpr int kFours = (kWidth + 3) / 4;
  const uint64_t seed = from.current_seed();
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t grid = static_cast<int64_t>(gridDim.x) * kThreads;
  uint64_t place = from.current_offset() / 4;
  for (int64_t first = thread * kWidth; first < n; first += grid * kWidth, place += kFours) {
    Pack<kWidth, T> pack;
#pragma unroll
    for (int four = 0; four < kFours; ++four) {
      const uint4 w = philox_words(seed, static_cast<uint64_t>(thread), place + four);
      const float drawn[4] = {unit(w.x), unit(w.y), unit(w.z), unit(w.w)};
#pragma unroll
      for (int j = 0; j < 4 && j < kWidth; ++j) pack.values[four * 4 + j] = drawn[j] < keep ? scale : convert<T>(0.0f);
    }
    *reinterpret_cast<Pack<kWidth, T>*>(out + first) = pack;
  }
}

// Elements a whole grid apart, four for each draw.
template <class T>
struct Apart {
  using Real = float;
  static constexpr int kDrawn = 4;
  float keep;
  T scale;
  __device__ static void draw(uint4 w, float* out) {
    out[0] = unit(w.x), out[1] = unit(w.y), out[2] = unit(w.z), out[3] = unit(w.w);
  }
  __device__ T operator()(float u, int64_t) const { return u < keep ? scale : convert<T>(0.0f); }
};

template <class T>
T rounded(double value) {
  if constexpr (std::is_same_v<T, half>) {
    return __float2half_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

int width_for(int64_t element, int64_t n, const void* data) {
  int width = static_cast<int>(16 / element);
  while (width > 1 && (n % width || reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(width * element)))
    width /= 2;
  return width;
}

}  // namespace

void draw_dropout(const TensorView& noise, const TensorView& self, bool dense, double keep,
                  const Generator& generator) {
  const int64_t n = noise.numel;
  if (n == 0) return;
  DeviceGuard guard(noise.device.index());
  visit_floating("dropout", noise.dtype, [&]<class T>(Tag<T>) {
    const T scale = rounded<T>(1 / static_cast<double>(static_cast<compute_t<T>>(keep)));
    const int width = dense ? width_for(element_size(noise.dtype), n, self.data) : 1;
    const auto kept = static_cast<float>(keep);
    if (width == 1) return draw<T>(noise, generator, Apart<T>{kept, scale});
    const cudaDeviceProp& device = properties(noise.device.index());
    const int64_t most = int64_t{device.multiProcessorCount} * (device.maxThreadsPerMultiProcessor / kThreads);
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(most, (n + kThreads - 1) / kThreads));
    PhiloxGenerator& source = philox(generator);
    std::lock_guard lock(generator.mutex());
    const auto rounds = static_cast<uint64_t>((n - 1) / (int64_t{kThreads} * blocks * 4) + 1);
    const PhiloxPlace from = take_place(source, rounds * 4);
    const cudaStream_t stream = current_stream(noise.device.index());
    if (width == 8) {
      side_by_side_kernel<8><<<blocks, kThreads, 0, stream>>>(n, noise.ptr<T>(), kept, scale, from);
    } else if (width == 4) {
      side_by_side_kernel<4><<<blocks, kThreads, 0, stream>>>(n, noise.ptr<T>(), kept, scale, from);
    } else {
      side_by_side_kernel<2><<<blocks, kThreads, 0, stream>>>(n, noise.ptr<T>(), kept, scale, from);
    }
    MICA_CUDA(cudaGetLastError());
  });
}

}  // namespace mica::cuda
