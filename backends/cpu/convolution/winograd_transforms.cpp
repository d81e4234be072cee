#include "backends/cpu/convolution/winograd_transforms.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/convolution/winograd_transforms.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::convolution {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// (a, b, c, d) -> (a - c, b + c, c - b, b - d)
HWY_INLINE void spread(V a, V b, V c, V d, V (&to)[4]) {
  to[0] = hn::Sub(a, c);
  to[1] = hn::Add(b, c);
  to[2] = hn::Sub(c, b);
  to[3] = hn::Sub(b, d);
}

// (a, b, c, d) -> (a + b + c, b - c - d)
HWY_INLINE void gather(V a, V b, V c, V d, V (&to)[2]) {
  to[0] = hn::Add(hn::Add(a, b), c);
  to[1] = hn::Sub(hn::Sub(b, c), d);
}

// The adjoint of gather.
HWY_INLINE void ungather(V a, V b, V (&to)[4]) {
  to[0] = a;
  to[1] = hn::Add(a, b);
  to[2] = hn::Sub(a, b);
  to[3] = hn::Neg(b);
}

HWY_INLINE void load_column(const float* from, int64_t row, V (&to)[4]) {
  const D d;
  spread(hn::LoadU(d, from), hn::LoadU(d, from + row), hn::LoadU(d, from + 2 * row), hn::LoadU(d, from + 3 * row), to);
}

void input(const float* source, int64_t row, int64_t channels, int64_t tiles, float* to, int64_t step, int64_t plane) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < channels; c += lanes) {
    const float* from = source + c;
    float* at = to + c;
    V columns[4][4];  // the first two columns are the last two of the tile before
    load_column(from, row, columns[0]);
    load_column(from + channels, row, columns[1]);
    for (int64_t t = 0; t < tiles; ++t, at += step) {
      from += 2 * channels;
      load_column(from, row, columns[2]);
      load_column(from + channels, row, columns[3]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        V v[4];
        spread(columns[0][i], columns[1][i], columns[2][i], columns[3][i], v);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) hn::StoreU(v[j], d, at + (4 * i + j) * plane);
        columns[0][i] = columns[2][i];
        columns[1][i] = columns[3][i];
      }
    }
  }
}

// Stores the first n lanes, where a whole vector need not fit.
HWY_INLINE void store_first(V v, int64_t n, float* to) {
  const D d;
  if (n >= static_cast<int64_t>(hn::Lanes(d))) {
    hn::StoreU(v, d, to);
    return;
  }
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  std::memcpy(to, lanes, static_cast<size_t>(n) * sizeof(float));
}
HWY_INLINE V load_first(const float* from, int64_t n) {
  const D d;
  if (n >= static_cast<int64_t>(hn::Lanes(d))) return hn::LoadU(d, from);
  HWY_ALIGN float lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, from, static_cast<size_t>(n) * sizeof(float));
  return hn::Load(d, lanes);
}

// The transforms add up zero times each result. That is zero as long as all results are finite.
HWY_INLINE bool is_zero(V v) { return hn::AllTrue(D(), hn::Eq(v, hn::Zero(D()))); }

bool output(const float* from, int64_t step, int64_t plane, int64_t tiles, int64_t filters, const float* bias,
            float* target, int64_t row, int64_t column, int64_t rows, int64_t width) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V zero = hn::Zero(d);
  V check = zero;
  for (int64_t t = 0; t < tiles; ++t, from += step) {
    const bool whole = 2 * t + 1 < width;
    for (int64_t f = 0; f < filters; f += lanes) {
      const int64_t n = filters - f;
      const V start = bias ? load_first(bias + f, n) : hn::Zero(d);
      const float* at = from + f;
      V half[4][2];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        gather(hn::LoadU(d, at + j * plane), hn::LoadU(d, at + (4 + j) * plane), hn::LoadU(d, at + (8 + j) * plane),
               hn::LoadU(d, at + (12 + j) * plane), half[j]);
      float* to = target + 2 * t * column + f;
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        if (i >= rows) break;
        V v[2];
        gather(half[0][i], half[1][i], half[2][i], half[3][i], v);
        check = hn::MulAdd(hn::Add(v[0], v[1]), zero, check);
        store_first(hn::Add(v[0], start), n, to + i * row);
        if (whole) store_first(hn::Add(v[1], start), n, to + i * row + column);
      }
    }
  }
  return is_zero(check);
}

void gradient(const float* source, int64_t row, int64_t column, int64_t rows, int64_t width, int64_t tiles,
              int64_t filters, float* to, int64_t step, int64_t plane) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t f = 0; f < filters; f += lanes) {
    const int64_t n = filters - f;
    float* at = to + f;
    for (int64_t t = 0; t < tiles; ++t, at += step) {
      const float* from = source + 2 * t * column + f;
      const bool second_row = rows > 1, second_column = 2 * t + 1 < width;
      const V zero = hn::Zero(d);
      V columns[2][4];
      ungather(load_first(from, n), second_row ? load_first(from + row, n) : zero, columns[0]);
      ungather(second_column ? load_first(from + column, n) : zero,
               second_column && second_row ? load_first(from + row + column, n) : zero, columns[1]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        V v[4];
        ungather(columns[0][i], columns[1][i], v);
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) hn::StoreU(v[j], d, at + (4 * i + j) * plane);
      }
    }
  }
}

// (a, b, c) -> (a, (a + b + c) / 2, (a - b + c) / 2, c)
HWY_INLINE void extend(V a, V b, V c, V (&to)[4]) {
  const V half = hn::Set(D(), 0.5f), ends = hn::Mul(half, hn::Add(a, c)), middle = hn::Mul(half, b);
  to[0] = a;
  to[1] = hn::Add(ends, middle);
  to[2] = hn::Sub(ends, middle);
  to[3] = c;
}

// The adjoint of extend.
HWY_INLINE void unextend(V a, V b, V c, V d, V (&to)[3]) {
  const V half = hn::Set(D(), 0.5f), sum = hn::Mul(half, hn::Add(b, c));
  to[0] = hn::Add(a, sum);
  to[1] = hn::Mul(half, hn::Sub(b, c));
  to[2] = hn::Add(sum, d);
}

void filters(const float* taps, int64_t step, int64_t count, float* to, int64_t plane) {
  const D d;
  for (int64_t f = 0; f < count; f += static_cast<int64_t>(hn::Lanes(d))) {
    V columns[3][4];
#pragma GCC unroll 3
    for (int x = 0; x < 3; ++x)
      extend(hn::LoadU(d, taps + x * step + f), hn::LoadU(d, taps + (3 + x) * step + f),
             hn::LoadU(d, taps + (6 + x) * step + f), columns[x]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      V v[4];
      extend(columns[0][i], columns[1][i], columns[2][i], v);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) hn::StoreU(v[j], d, to + (4 * i + j) * plane + f);
    }
  }
}

bool filter_gradients(const float* from, int64_t plane, int64_t shares, int64_t share, int64_t count, float* taps,
                      int64_t step) {
  const D d;
  V check = hn::Zero(d);
  for (int64_t f = 0; f < count; f += static_cast<int64_t>(hn::Lanes(d))) {
    V columns[4][3];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      V v[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const float* at = from + (4 * i + j) * plane + f;
        v[i] = hn::LoadU(d, at);
        for (int64_t s = 1; s < shares; ++s) v[i] = hn::Add(v[i], hn::LoadU(d, at + s * share));
      }
      unextend(v[0], v[1], v[2], v[3], columns[j]);
    }
#pragma GCC unroll 3
    for (int y = 0; y < 3; ++y) {
      V v[3];
      unextend(columns[0][y], columns[1][y], columns[2][y], columns[3][y], v);
      check = hn::MulAdd(hn::Add(hn::Add(v[0], v[1]), v[2]), hn::Zero(d), check);
#pragma GCC unroll 3
      for (int x = 0; x < 3; ++x) hn::StoreU(v[x], d, taps + (3 * y + x) * step + f);
    }
  }
  return is_zero(check);
}

WinogradTransforms describe_transforms() {
  return {static_cast<int64_t>(hn::Lanes(D())), input, output, gradient, filters, filter_gradients};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::convolution
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu::convolution {

HWY_EXPORT(describe_transforms);
const WinogradTransforms& winograd_transforms() {
  static const WinogradTransforms transforms = HWY_DYNAMIC_DISPATCH(describe_transforms)();
  return transforms;
}

}  // namespace mica::cpu::convolution
#endif
