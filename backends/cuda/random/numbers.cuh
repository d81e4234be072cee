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

// In (0, 1], a word of 32 bits for each, and normal numbers in pairs: in the order of cuRAND's states, which torch
// draws gamma and Poisson samples from. The words are not indexed, so that they stay in registers.
struct SingleNumbers {
  uint64_t seed, subsequence, place;
  uint4 words;
  int left = 0;
  float second;
  bool has_second = false;

  __device__ static SingleNumbers of(const PhiloxPlace& from, int64_t i) {
    return {from.current_seed(), static_cast<uint64_t>(i), from.current_offset() / 4};
  }
  __device__ uint32_t next_word() {
    if (left == 0) {
      words = philox_words(seed, subsequence, place++);
      left = 4;
    }
    --left;
    return left == 3 ? words.x : left == 2 ? words.y : left == 1 ? words.z : words.w;
  }
  __device__ float next() { return unit(next_word()); }
  __device__ float next_normal() {
    if (!has_second) {
      const uint32_t x = next_word(), y = next_word();
      float both[2];
      NormalDraw<float>::pair(x, y, both);
      second = both[1];
      has_second = true;
      return both[0];
    }
    has_second = false;
    return second;
  }
};

}  // namespace mica::cuda
