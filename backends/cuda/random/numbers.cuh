// Numbers one after the other, for samples that do not know beforehand how many they need.
#pragma once

#include "backends/cuda/random/philox.cuh"

namespace mica::cuda {

// In (0, 1).
struct Numbers {
  uint64_t seed, subsequence, place;
  uint4 words;
  int left = 0;
  __device__ static Numbers of(const PhiloxPlace& from, int64_t i) {
    return {from.current_seed(), static_cast<uint64_t>(i), from.current_offset() / 4};
  }
  __device__ double next() {
    if (left == 0) {
      words = philox_words(seed, subsequence, place++);
      left = 2;
    }
    --left;
    const double u = left ? unit(words.x, words.y) : unit(words.z, words.w);
    return u >= 1.0 ? 0.99999999999999989 : u;
  }
  __device__ double next_normal() {
    const double radius = ::sqrt(-2.0 * ::log(next()));
    return radius * ::cospi(2.0 * next());
  }
};

}  // namespace mica::cuda
