#pragma once

#include <cstdint>

namespace mica::cuda {

// Division of 31-bit numbers by one that is known before the launch.
struct Divider {
  uint32_t divisor, magic, shift;

  Divider() = default;
  explicit Divider(uint32_t d) : divisor(d), shift(0) {
    while (shift < 32 && (uint64_t{1} << shift) < d) ++shift;
    magic = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d)) / d + 1);
  }
#if defined(__CUDACC__)
  __device__ uint32_t divide(uint32_t n) const { return (__umulhi(n, magic) + n) >> shift; }
#endif
};

}  // namespace mica::cuda
