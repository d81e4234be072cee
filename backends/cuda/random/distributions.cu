// Uniform and normal numbers, in torch's order: thread t of the grid draws from Philox's subsequence t, four floats or
// two doubles at a time, and writes them a whole grid apart.
#include <mutex>

#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise.cuh"
#include "backends/cuda/random/generator.h"

namespace mica::cuda {

namespace {

// Philox 4x32 with ten rounds: four random words from a counter of 128 bits and a key of 64. cuRAND numbers its streams
// the same way: the low half of the counter is the place in a subsequence, the high half is which one.
__device__ uint4 philox_words(uint64_t seed, uint64_t subsequence, uint64_t place) {
  uint4 c = make_uint4(static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32),
                       static_cast<uint32_t>(subsequence), static_cast<uint32_t>(subsequence >> 32));
  auto key_x = static_cast<uint32_t>(seed), key_y = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t high_x = __umulhi(0xD2511F53u, c.x), low_x = 0xD2511F53u * c.x;
    const uint32_t high_z = __umulhi(0xCD9E8D57u, c.z), low_z = 0xCD9E8D57u * c.z;
    c = make_uint4(high_z ^ c.y ^ key_x, low_z, high_x ^ c.w ^ key_y, low_x);
    key_x += 0x9E3779B9u;
    key_y += 0xBB67AE85u;
  }
  return c;
}

// Uniform in (0, 1]: the middles of 2^32 intervals, rounded, or of 2^53.
__device__ float unit(uint32_t x) { return static_cast<float>(x) * 0x1p-32f + 0x1p-33f; }
__device__ double unit(uint32_t x, uint32_t y) {
  return static_cast<double>(static_cast<uint64_t>(x) ^ static_cast<uint64_t>(y) << 21) * 0x1p-53 + 0x1p-54;
}

struct Uniform {
  double from, range;
  __device__ static void draw(uint4 w, float* out) {
    out[0] = unit(w.x), out[1] = unit(w.y), out[2] = unit(w.z), out[3] = unit(w.w);
  }
  __device__ static void draw(uint4 w, double* out) { out[0] = unit(w.x, w.y), out[1] = unit(w.z, w.w); }
  // Closed at 0 and open at 1, the other way round than what was drawn.
  template <class R>
  __device__ R operator()(R u) const {
    return (u == R(1) ? R(0) : u) * static_cast<R>(range) + static_cast<R>(from);
  }
};

// Box and Muller's pairs.
struct Normal {
  double mean, std;
  __device__ static void pair(uint32_t x, uint32_t y, float* out) {
    const float radius = sqrtf(-2.0f * logf(unit(x)));
    const float angle = static_cast<float>(y) * (0x1p-32f * 6.2831853071795860f) + 0x1p-33f * 6.2831853071795860f;
    sincosf(angle, out, out + 1);
    out[0] *= radius;
    out[1] *= radius;
  }
  __device__ static void draw(uint4 w, float* out) {
    pair(w.x, w.y, out);
    pair(w.z, w.w, out + 2);
  }
  __device__ static void draw(uint4 w, double* out) {
    const double radius = ::sqrt(-2.0 * ::log(unit(w.x, w.y)));
    sincospi(2.0 * unit(w.z, w.w), out, out + 1);
    out[0] *= radius;
    out[1] *= radius;
  }
  template <class R>
  __device__ R operator()(R z) const {
    return z * static_cast<R>(std) + static_cast<R>(mean);
  }
};

template <class T, class D>
__global__ void __launch_bounds__(kThreads)
    draw_kernel(int64_t n, T* out, D distribution, uint64_t seed, uint64_t offset) {
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
  constexpr int kDrawn = std::is_same_v<R, double> ? 2 : 4;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t grid = static_cast<int64_t>(gridDim.x) * kThreads;
  uint64_t place = offset / 4;
  for (int64_t first = thread; first < n; first += grid * kDrawn, ++place) {
    R values[kDrawn];
    D::draw(philox_words(seed, static_cast<uint64_t>(thread), place), values);
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
