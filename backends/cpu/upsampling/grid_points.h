// What a point of a grid reads along one axis: up to four places with their weights, and the weights' derivatives.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace mica::cpu {

enum class GridMode : int64_t { Linear, Nearest, Cubic };
enum class GridPadding : int64_t { Zeros, Border, Reflection };

template <class C>
struct AxisReads {
  int count;
  int64_t place[4];  // -1: outside, where zeros lie
  C weight[4], slope[4];
  C rate;  // how fast the place moves with the coordinate
};

template <class C>
struct GridAxis {
  int64_t size;
  GridMode mode;
  GridPadding padding;
  bool align_corners;

  // Where a coordinate in [-1, 1] lies among the elements.
  C placed(C coordinate) const {
    const C n = static_cast<C>(size);
    return align_corners ? (coordinate + 1) / 2 * (n - 1) : ((coordinate + 1) * n - 1) / 2;
  }
  C placed_rate() const { return align_corners ? static_cast<C>(size - 1) / 2 : static_cast<C>(size) / 2; }

  // Into the elements, at the nearer end; a NaN becomes 0. `rate` is multiplied by the derivative.
  C clipped(C x, C* rate) const {
    const C last = static_cast<C>(size - 1);
    if (!(x > 0)) {
      *rate = 0;
      return 0;
    }
    if (x >= last) {
      *rate = 0;
      return last;
    }
    return x;
  }

  C reflected(C x, C* rate) const {
    const C low = align_corners ? C(0) : C(-0.5);
    const C span = align_corners ? static_cast<C>(size - 1) : static_cast<C>(size);
    if (span == 0) {
      *rate = 0;
      return 0;
    }
    C distance = x - low;
    if (distance < 0) {
      distance = -distance;
      *rate = -*rate;
    }
    const C rest = std::fmod(distance, span);
    if (std::fmod(std::floor(distance / span), C(2)) == 0) return rest + low;
    *rate = -*rate;
    return span - rest + low;
  }

  C padded(C x, C* rate) const {
    if (padding == GridPadding::Border) return clipped(x, rate);
    if (padding == GridPadding::Reflection) return clipped(reflected(x, rate), rate);
    return x;
  }

  // An element's number, or -1 where there is none. Takes infinities, NaN and what no integer holds.
  int64_t element(C x) const { return x >= 0 && x <= static_cast<C>(size - 1) ? static_cast<int64_t>(x) : -1; }

  AxisReads<C> reads(C coordinate) const {
    AxisReads<C> r{};
    r.rate = placed_rate();
    C x = placed(coordinate);
    if (mode == GridMode::Nearest) {
      x = padded(x, &r.rate);
      r.count = 1;
      r.place[0] = element(std::nearbyint(x));
      r.weight[0] = 1;
      return r;
    }
    if (mode == GridMode::Linear) {
      x = padded(x, &r.rate);
      const C first = std::floor(x);
      r.count = 2;
      r.place[0] = element(first);
      r.place[1] = element(first + 1);
      r.weight[0] = first + 1 - x;
      r.weight[1] = x - first;
      r.slope[0] = -1;
      r.slope[1] = 1;
      return r;
    }
    const C first = std::floor(x), t = x - first, a = C(-0.75);
    r.count = 4;
    for (int i = 0; i < 4; ++i) {
      C unused = 1;
      r.place[i] = element(padded(first - 1 + static_cast<C>(i), &unused));
      const C distance = i < 2 ? t + 1 - static_cast<C>(i) : static_cast<C>(i) - 1 - t, sign = i < 2 ? C(1) : C(-1);
      const bool far = i == 0 || i == 3;
      r.weight[i] = far ? ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
                        : ((a + 2) * distance - (a + 3)) * distance * distance + 1;
      r.slope[i] = sign * (far ? (3 * a * distance - 10 * a) * distance + 8 * a
                               : (3 * (a + 2) * distance - 2 * (a + 3)) * distance);
    }
    return r;
  }
};

}  // namespace mica::cpu
