// Dense elements that all become the same one: 16 bytes at a time, whatever the element is.
#include "backends/cuda/creation/fill.h"

#include <cstring>

#include "backends/cuda/context.h"
#include "backends/cuda/strided.cuh"

namespace mica::cuda {

namespace {

constexpr int kStores = 4;  // of a thread

// Byte `at` of the pattern.
__device__ char byte_of(const int4& pattern, unsigned at) {
  const int word = at < 8 ? at < 4 ? pattern.x : pattern.y : at < 12 ? pattern.z : pattern.w;
  return static_cast<char>(word >> at % 4 * 8);
}

// The first `head` bytes lie before the first aligned piece, and the last `tail` ones behind the last piece. An element
// divides 16 and lies at a multiple of its size, so that the pattern begins with an element everywhere.
__global__ void __launch_bounds__(kThreads)
    fill_kernel(int4 pattern, char* to, int64_t pieces, unsigned head, unsigned tail) {
  wait_for_predecessors();
  auto* at = reinterpret_cast<int4*>(to + head);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kStores) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kStores; ++j)
    if (first + j * kThreads < pieces) at[first + j * kThreads] = pattern;
  if (blockIdx.x) return;
  if (threadIdx.x < head) to[threadIdx.x] = byte_of(pattern, threadIdx.x);
  if (threadIdx.x < tail) reinterpret_cast<char*>(at + pieces)[threadIdx.x] = byte_of(pattern, threadIdx.x);
}

}  // namespace

bool fill_dense(const PointwiseLoop& loop, const void* element, int64_t size) {
  if (loop.numel == 0 || loop.ndim != 1 || loop.strides[0][0] != size) return false;
  char pattern[16];
  for (int64_t at = 0; at < 16; at += size) std::memcpy(pattern + at, element, static_cast<size_t>(size));
  int4 bits;
  std::memcpy(&bits, pattern, sizeof bits);
  const auto address = reinterpret_cast<uintptr_t>(loop.data[0]);
  if (address % static_cast<uintptr_t>(size)) return false;
  const int64_t bytes = loop.numel * size;
  const int64_t head = std::min<int64_t>((16 - static_cast<int64_t>(address % 16)) % 16, bytes);
  const int64_t pieces = (bytes - head) / 16;
  const int device = loop.device.index();
  DeviceGuard guard(device);
  const uint32_t blocks = blocks_for(std::max<int64_t>(pieces, 1), kThreads * kStores);
  launch<fill_kernel>(device, blocks, kThreads, bits, loop.data[0], pieces, static_cast<unsigned>(head),
                      static_cast<unsigned>((bytes - head) % 16));
  return true;
}

}  // namespace mica::cuda
