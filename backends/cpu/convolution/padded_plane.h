// A channel's plane as depthwise convolutions read it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "backends/cpu/convolution/depthwise_rows.h"
#include "backends/cpu/convolution/parts.h"

namespace mica::cpu::convolution {

// The plane of one channel with zeros around it. For a stride, columns are sorted by their rest modulo the stride, so
// that the factors of a tap for neighbouring outputs are neighbours. With `spread`, source pixels lie that far apart,
// and zeros are between them.
struct PaddedPlane {
  static constexpr int64_t kReadBehind = 64 + 16;  // floats that loops may read behind a plane
  int64_t rows, cols, phases;                      // a row holds `phases` runs of `cols` floats

  PaddedPlane(int64_t height, int64_t width, int64_t phases) : rows(height), phases(phases) {
    cols = (width + phases - 1) / phases;
  }
  int64_t size() const { return rows * phases * cols + kReadBehind; }
  int64_t offset(int64_t y, int64_t x) const { return (y * phases + x % phases) * cols + x / phases; }

  // Where the pixels of a plane go. It is computed once for all planes of a size, since it takes several divisions.
  struct Placing {
    int64_t from = 0, width = 0, rows = 0, count = 0;  // the first pixel that fits, and which ones do
    int64_t row = 0, first = 0, step = 0;              // where its row and column are, and floats between rows
    int64_t same = 0, other = 0;                       // where it and its right neighbour lie
    int64_t spread_x = 1;
  };
  // A plane's pixel (y, x) goes to (pad_y + y * spread_y, pad_x + x * spread_x), as far as it fits.
  Placing placing(int64_t height, int64_t width, int64_t pad_y, int64_t pad_x, int64_t spread_y,
                  int64_t spread_x) const {
    const int64_t extent = phases * cols;
    const auto [top, bottom] = fitting(height, pad_y, spread_y, rows);
    const auto [low, high] = fitting(width, pad_x, spread_x, extent);
    Placing p;
    if (top >= bottom || low >= high) return p;
    p.from = top * width + low, p.width = width, p.rows = bottom - top, p.count = high - low;
    p.row = (pad_y + top * spread_y) * extent, p.first = pad_x + low * spread_x, p.step = spread_y * extent;
    // With two phases, pixels in even columns of the padded plane form the first run. The first pixel may be in an odd
    // one.
    p.same = p.row + offset(0, p.first), p.other = p.row + offset(0, p.first + 1);
    p.spread_x = spread_x;
    return p;
  }

  // What lies around the pixels is left as it is: `clear` sets it, once for all planes that are placed in the same
  // memory.
  void load(const float* plane, const Placing& p, float* to) const {
    if (p.rows == 0) return;
    const float* from = plane + p.from;
    if (p.spread_x == 1 && phases == 1) return loops.place_rows(from, p.width, p.rows, p.count, to + p.same, p.step);
    if (p.spread_x == 1 && phases == 2)
      return loops.split_rows(from, p.width, p.rows, p.count, to + p.same, to + p.other, p.step);
    float* row = to + p.row;
    for (int64_t y = 0; y < p.rows; ++y, from += p.width, row += p.step)
      for (int64_t x = 0; x < p.count; ++x) row[offset(0, p.first + x * p.spread_x)] = from[x];
  }
  void clear(float* to) const { std::fill_n(to, size(), 0.0f); }

 private:
  // Which of `count` pixels lie in [0, extent).
  static std::pair<int64_t, int64_t> fitting(int64_t count, int64_t pad, int64_t spread, int64_t extent) {
    const int64_t low = pad >= 0 ? 0 : divide_up(-pad, spread);
    return {low, std::min(count, extent - 1 < pad ? 0 : (extent - 1 - pad) / spread + 1)};
  }
  const DepthwiseLoops& loops = depthwise_loops();
};

}  // namespace mica::cpu::convolution
