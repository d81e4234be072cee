// The elements that the points of a grid read along one axis: up to four places each, with their weights and the
// weights' derivatives. Written without branches over blocks of points, so that compilers vectorise it.

#if defined(MICA_CPU_UPSAMPLING_GRID_POINTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_UPSAMPLING_GRID_POINTS_INL_H_
#undef MICA_CPU_UPSAMPLING_GRID_POINTS_INL_H_
#else
#define MICA_CPU_UPSAMPLING_GRID_POINTS_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

enum class GridMode : int64_t { Linear, Nearest, Cubic };
enum class GridPadding : int64_t { Zeros, Border, Reflection };

constexpr int64_t kPoints = 256;  // points of a block

template <class C>
struct AxisReads {
  int count = 1;                          // places that a point reads
  alignas(64) int32_t place[4][kPoints];  // -1 outside, where there are zeros
  alignas(64) C weight[4][kPoints], slope[4][kPoints];
  alignas(64) C rate[kPoints];  // how fast the place moves with the coordinate
};

template <class C>
struct GridAxis {
  int64_t size;
  GridMode mode;
  GridPadding padding;
  bool align_corners;
};

// A place and how fast it moves.
template <class C>
struct Moving {
  C x, rate;
};

// Moves a place to the nearer end of the elements; a NaN becomes 0.
template <class C>
HWY_INLINE Moving<C> clipped(Moving<C> m, C last) {
  const bool above = m.x > 0, below = m.x < last;
  const C at_most = below ? m.x : last;
  return {above ? at_most : C(0), above & below ? m.rate : C(0)};
}

template <class C>
HWY_INLINE Moving<C> reflected(Moving<C> m, C low, C span) {
  const C offset = m.x - low, distance = std::abs(offset);
  const C turns = std::floor(distance / span), rest = distance - turns * span;
  const bool odd = turns - 2 * std::floor(turns / 2) != 0;
  const C sign = (offset < 0) != odd ? C(-1) : C(1);
  return {(odd ? span - rest : rest) + low, m.rate * sign};
}

template <GridPadding kPadding, class C>
HWY_INLINE Moving<C> padded(Moving<C> m, C size, bool align_corners) {
  if constexpr (kPadding == GridPadding::Zeros) {
    return m;
  } else if constexpr (kPadding == GridPadding::Border) {
    return clipped(m, size - 1);
  } else {
    const C low = align_corners ? C(0) : C(-0.5), span = align_corners ? size - 1 : size;
    if (span == 0) return {0, 0};  // one element, the same for all points
    return clipped(reflected(m, low, span), size - 1);
  }
}

// An element's number, or -1 where there is none. Takes infinities, NaN and what no integer holds.
template <class C>
HWY_INLINE int32_t element(C x, C size) {
  return static_cast<int32_t>((x >= 0) & (x < size) ? x : C(-1));
}

// The weight of an element of a cubic interpolation at a distance, and its derivative by the distance.
template <bool kFar, class C>
HWY_INLINE C cubic_weight(C x) {
  constexpr C a = C(-0.75);
  return kFar ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : ((a + 2) * x - (a + 3)) * x * x + 1;
}
template <bool kFar, class C>
HWY_INLINE C cubic_slope(C x) {
  constexpr C a = C(-0.75);
  return kFar ? (3 * a * x - 10 * a) * x + 8 * a : (3 * (a + 2) * x - 2 * (a + 3)) * x;
}

template <GridMode kMode, GridPadding kPadding, class C>
void read_axis(const GridAxis<C>& axis, const C* coordinate, int64_t n, AxisReads<C>& r) {
  const C size = static_cast<C>(axis.size);
  const bool align = axis.align_corners;
  const C rate = align ? (size - 1) / 2 : size / 2;
  r.count = kMode == GridMode::Linear ? 2 : kMode == GridMode::Nearest ? 1 : 4;
  for (int64_t i = 0; i < n; ++i) {
    const C x = align ? (coordinate[i] + 1) / 2 * (size - 1) : ((coordinate[i] + 1) * size - 1) / 2;
    if constexpr (kMode == GridMode::Cubic) {
      const C first = std::floor(x), t = x - first;
      const auto place = [&](C at) { return element(padded<kPadding>(Moving<C>{at, 0}, size, align).x, size); };
      r.rate[i] = rate;
      r.place[0][i] = place(first - 1);
      r.place[1][i] = place(first);
      r.place[2][i] = place(first + 1);
      r.place[3][i] = place(first + 2);
      r.weight[0][i] = cubic_weight<true>(t + 1);
      r.weight[1][i] = cubic_weight<false>(t);
      r.weight[2][i] = cubic_weight<false>(1 - t);
      r.weight[3][i] = cubic_weight<true>(2 - t);
      r.slope[0][i] = cubic_slope<true>(t + 1);
      r.slope[1][i] = cubic_slope<false>(t);
      r.slope[2][i] = -cubic_slope<false>(1 - t);
      r.slope[3][i] = -cubic_slope<true>(2 - t);
    } else {
      const Moving<C> m = padded<kPadding>(Moving<C>{x, rate}, size, align);
      r.rate[i] = m.rate;
      if constexpr (kMode == GridMode::Nearest) {
        r.place[0][i] = element(std::nearbyint(m.x), size);
        r.weight[0][i] = 1;
        r.slope[0][i] = 0;
      } else {
        const C first = std::floor(m.x);
        r.place[0][i] = element(first, size);
        r.place[1][i] = element(first + 1, size);
        r.weight[0][i] = first + 1 - m.x;
        r.weight[1][i] = m.x - first;
        r.slope[0][i] = -1;
        r.slope[1][i] = 1;
      }
    }
  }
}

template <GridMode kMode, class C>
void read_axis(const GridAxis<C>& axis, const C* coordinate, int64_t n, AxisReads<C>& r) {
  switch (axis.padding) {
    case GridPadding::Zeros:
      return read_axis<kMode, GridPadding::Zeros>(axis, coordinate, n, r);
    case GridPadding::Border:
      return read_axis<kMode, GridPadding::Border>(axis, coordinate, n, r);
    case GridPadding::Reflection:
      return read_axis<kMode, GridPadding::Reflection>(axis, coordinate, n, r);
  }
}

template <class C>
void read_axis(const GridAxis<C>& axis, const C* coordinate, int64_t n, AxisReads<C>& r) {
  switch (axis.mode) {
    case GridMode::Linear:
      return read_axis<GridMode::Linear>(axis, coordinate, n, r);
    case GridMode::Nearest:
      return read_axis<GridMode::Nearest>(axis, coordinate, n, r);
    case GridMode::Cubic:
      return read_axis<GridMode::Cubic>(axis, coordinate, n, r);
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_UPSAMPLING_GRID_POINTS_INL_H_
