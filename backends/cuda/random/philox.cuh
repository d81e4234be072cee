// Random words and how they are handed out, in torch's order: thread t of the grid draws from Philox's subsequence t,
// four words at a time, and writes what it makes of them a whole grid apart.
#pragma once

#include <mutex>

#include "backends/cuda/places.cuh"
#include "backends/cuda/random/generator.h"

namespace mica::cuda {

// Philox 4x32 with ten rounds: four random words from a counter of 128 bits and a key of 64. cuRAND numbers its streams
// the same way: the low half of the counter is the place in a subsequence, the high half is which one.
__device__ inline uint4 philox_words(uint64_t seed, uint64_t subsequence, uint64_t place) {
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
__device__ inline float unit(uint32_t x) { return static_cast<float>(x) * 0x1p-32f + 0x1p-33f; }
__device__ inline double unit(uint32_t x, uint32_t y) {
  return static_cast<double>(static_cast<uint64_t>(x) ^ static_cast<uint64_t>(y) << 21) * 0x1p-53 + 0x1p-54;
}

// Where a kernel's numbers begin: known at the launch, or, in a captured graph, written to the device before each
// replay.
struct PhiloxPlace {
  uint64_t seed, offset;
  const uint64_t* captured;
  __device__ uint64_t current_seed() const { return captured ? captured[1] : seed; }
  __device__ uint64_t current_offset() const { return captured ? captured[0] + offset : offset; }
};
inline PhiloxPlace take_place(PhiloxGenerator& generator, uint64_t count) {
  const uint64_t* captured = generator.captured();
  return {generator.initial_seed(), generator.take(count), captured};
}

// A distribution has a type Real of what it draws from four words at a time, kDrawn of them, by draw(words, values),
// and makes an element of one by operator().
template <class T, class D>
__global__ void __launch_bounds__(kThreads) draw_kernel(int64_t n, T* out, D distribution, PhiloxPlace from) {
  const uint64_t seed = from.current_seed(), offset = from.current_offset();
  using R = typename D::Real;
  constexpr int kDrawn = D::kDrawn;
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t grid = static_cast<int64_t>(gridDim.x) * kThreads;
  uint64_t place = offset / 4;
  for (int64_t first = thread; first < n; first += grid * kDrawn, ++place) {
    R values[kDrawn];
    distribution.draw(philox_words(seed, static_cast<uint64_t>(thread), place), values);
#pragma unroll
    for (int j = 0; j < kDrawn; ++j) {
      const int64_t i = first + j * grid;
      if (i < n) out[i] = convert<T>(distribution(values[j], i));
    }
  }
}

// `out` is dense: its elements are drawn in the order of its memory.
template <class T, class D>
void draw(const TensorView& out, const Generator& generator, const D& distribution) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const cudaDeviceProp& device = properties(out.device.index());
  const int64_t most = int64_t{device.multiProcessorCount} * (device.maxThreadsPerMultiProcessor / kThreads);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(most, (out.numel + kThreads - 1) / kThreads));
  PhiloxGenerator& philox_of = philox(generator);
  std::lock_guard lock(generator.mutex());
  const int64_t per_round = int64_t{kThreads} * blocks * D::kDrawn;
  const auto rounds = static_cast<uint64_t>((out.numel - 1) / per_round + 1);
  draw_kernel<T, D><<<blocks, kThreads, 0, current_stream(out.device.index())>>>(out.numel, out.ptr<T>(), distribution,
                                                                                 take_place(philox_of, rounds * 4));
  MICA_CUDA(cudaGetLastError());
}

// Doubles are drawn two at a time from twice the words, floats four at a time.
template <class T>
using drawn_t = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class R>
struct UnitDraw {
  using Real = R;
  static constexpr int kDrawn = sizeof(R) == 8 ? 2 : 4;
  __device__ static void draw(uint4 w, float* out) {
    out[0] = unit(w.x), out[1] = unit(w.y), out[2] = unit(w.z), out[3] = unit(w.w);
  }
  __device__ static void draw(uint4 w, double* out) { out[0] = unit(w.x, w.y), out[1] = unit(w.z, w.w); }
};
// Box and Muller's pairs.
template <class R>
struct NormalDraw {
  using Real = R;
  static constexpr int kDrawn = sizeof(R) == 8 ? 2 : 4;
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
};

}  // namespace mica::cuda
