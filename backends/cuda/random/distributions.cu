// Uniform and normal numbers, in torch's order: thread t of the grid draws from Philox's subsequence t, four floats or two doubles at a
// time, and writes them a whole grid apart.
#include <curand_kernel.h>

#include <mutex>

#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise.cuh"
#include "backends/cuda/random/generator.h"

namespace mica::cuda {

namespace {

struct Uniform {
  double from, range;
  __device__ static float4 draw(curandStatePhilox4_32_10_t* state, float) { return curand_uniform4(state); }
  __device__ static double2 draw(curandStatePhilox4_32_10_t* state, double) { return curand_uniform2_double(state); }
  // cuRAND's interval is open at 0 and closed at 1, ours the other way round.
  template <class R>
  __device__ R operator()(R u) const {
    return (u == R(1) ? R(0) : u) * static_cast<R>(range) + static_cast<R>(from);
  }
};
struct Normal {
  double mean, std;
  __device__ static float4 draw(curandStatePhilox4_32_10_t* state, float) { return curand_normal4(state); }
  __device__ static double2 draw(curandStatePhilox4_32_10_t* state, double) { return curand_normal2_double(state); }
  template <class R>
  __device__ R operator()(R z) const {
    return z * static_cast<R>(std) + static_cast<R>(mean);
  }
};

template <class T, class D>
__global__ void __launch_bounds__(kThreads) draw_kernel(int64_t n, T* out, D distribution, uint64_t seed, uint64_t offset) {
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr int kDrawn = std::is_same_v<R, double> ? 2 : 4;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t grid = static_cast<int64_t>(gridDim.x) * kThreads;
  curandStatePhilox4_32_10_t state;
  curand_init(seed, static_cast<uint64_t>(thread), offset, &state);
  for (int64_t first = thread; first < n; first += grid * kDrawn) {
    const auto drawn = D::draw(&state, R());
    const R* values = &drawn.x;
#pragma unroll
    for (int j = 0; j < kDrawn; ++j) {
      const int64_t i = first + j * grid;
      if (i < n) out[i] = convert<T>(distribution(values[j]));
    }
  }
}

// `out` is dense: its elements are drawn in the order of its memory.
template <class D>
void draw(const char* op, const TensorView& out, const Generator& generator, const D& distribution) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index);
  const cudaDeviceProp& device = properties(out.device.index);
  const int64_t most = int64_t{device.multiProcessorCount} * (device.maxThreadsPerMultiProcessor / kThreads);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most, (out.numel + kThreads - 1) / kThreads));
  PhiloxGenerator& philox_of = philox(generator);
  std::lock_guard lock(generator.mutex());
  visit_floating(op, out.dtype, [&]<class T>(Tag<T>) {
    const int64_t per_round = int64_t{kThreads} * blocks * (std::is_same_v<T, double> ? 2 : 4);
    const auto rounds = static_cast<uint64_t>((out.numel - 1) / per_round + 1);
    const uint64_t offset = philox_of.take(rounds * 4);
    draw_kernel<T, D><<<blocks, kThreads, 0, current_stream(out.device.index)>>>(out.numel, out.ptr<T>(), distribution,
                                                                               philox_of.initial_seed(), offset);
  });
  MICA_CUDA(cudaGetLastError());
}

}  // namespace

void random_uniform(const TensorView& out, double from, double to, Generator generator) {
  draw("uniform_", out, generator, Uniform{from, to - from});
}

void random_normal(const TensorView& out, double mean, double std, Generator generator, bool) {
  draw("normal_", out, generator, Normal{mean, std});
}

}  // namespace mica::cuda
