// Normal numbers one by one, by Box-Muller in double: two words make a pair, whose second number waits in the generator
// for the next draw. Torch's path for few elements, for strided ones, and inside other distributions.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <utility>

#include "backends/cpu/random/draw.h"

namespace mica::cpu {

inline std::pair<double, double> normal_pair(uint64_t angle_word, uint64_t radius_word) {
  const double radius = std::sqrt(-2.0 * std::log1p(-unit_uniform(radius_word)));
  const double angle = 2.0 * std::numbers::pi * unit_uniform(angle_word);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

inline double draw_normal(CpuGenerator& source) {
  if (source.next_normal) return *std::exchange(source.next_normal, std::nullopt);
  const uint64_t angle_word = source.engine.draw64();
  const auto [first, second] = normal_pair(angle_word, source.engine.draw64());
  source.next_normal = second;
  return first;
}

// Calls emit(i, sample) for i in [0, count) with the samples of that many draw_normal calls. The calls run in parallel,
// so emit must allow that.
template <class Emit>
void draw_normals(CpuGenerator& source, int64_t count, const Emit& emit) {
  if (count == 0) return;
  const int64_t start = source.next_normal ? 1 : 0;
  if (start == 1) emit(0, draw_normal(source));
  const int64_t pairs = (count - start) / 2;
  constexpr int64_t kGrain = 512;
  draw_blocks_parallel<uint64_t, 2>(source.engine, pairs, kGrain, [&](const uint64_t* words, int64_t from, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const auto [first, second] = normal_pair(words[2 * i], words[2 * i + 1]);
      emit(start + 2 * (from + i), first);
      emit(start + 2 * (from + i) + 1, second);
    }
  });
  if (start + 2 * pairs < count) emit(count - 1, draw_normal(source));
}

}  // namespace mica::cpu
