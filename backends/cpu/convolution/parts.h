// Cutting work into parts, and handing them to threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/cpu/share_runs.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }
// The least equal part when `total` is cut in parts of at most `limit`.
inline int64_t equal_part(int64_t total, int64_t limit) { return divide_up(total, divide_up(total, limit)); }

// What tiles fetch into the second cache while they work on a panel: the next one, an equal part with each tile. Panels
// come from memory once, and the first tile that reads one would wait for it while the others leave memory idle.
class NextPanel {
 public:
  // `next` may be null. `tiles` of `depth` go over the panel before it, which has as many floats.
  NextPanel(const float* next, int64_t floats, int64_t tiles, int64_t depth)
      : at_(reinterpret_cast<const char*>(next)),
        step_(std::min(kMostBytes, divide_up(floats * static_cast<int64_t>(sizeof(float)), tiles * depth))),
        part_(step_ * depth) {}
  // Tells a tile (MicroTile) its part; the next tile gets the one behind it.
  template <class Tile>
  void give_to(Tile& tile) {
    tile.soon = at_;
    tile.soon_step = at_ ? step_ : 0;
    if (at_) at_ += part_;
  }

 private:
  static constexpr int64_t kMostBytes = 32;  // with each depth: two lines with every four
  const char* at_;
  int64_t step_, part_;
};

inline size_t bytes_of_floats(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

// Runs body(tasks) once in every thread. tasks(f) calls f(i) for numbers below `count`, each of which one thread gets.
// A thread begins with a share of its own: layers that follow each other divide their images alike, so that it finds
// much of what it reads in its own cache.
template <class Body>
void share_tasks(int64_t count, const Body& body) {
  share_among(get_num_threads(), count, 1, 1, 1,
              [&](const auto& take) { body([&](const auto& task) { take([&](int64_t i, int64_t) { task(i); }); }); });
}

}  // namespace mica::cpu::convolution
