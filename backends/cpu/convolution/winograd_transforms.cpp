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
    V columns[4][4];  // the first two are the last two of the tile before
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

// The first n lanes, where the vector need not fit.
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

void output(const float* from, int64_t step, int64_t plane, int64_t tiles, int64_t filters, const float* bias,
            float* target, int64_t row, int64_t column, int64_t rows, int64_t width) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
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
        store_first(hn::Add(v[0], start), n, to + i * row);
        if (whole) store_first(hn::Add(v[1], start), n, to + i * row + column);
      }
    }
  }
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

WinogradTransforms describe() { return {static_cast<int64_t>(hn::Lanes(D())), input, output, gradient}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::convolution
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu::convolution {

HWY_EXPORT(describe);
const WinogradTransforms& winograd_transforms() {
  static const WinogradTransforms transforms = HWY_DYNAMIC_DISPATCH(describe)();
  return transforms;
}

void transform_filter(const float (&taps)[3][3], float (&coefficients)[16]) {
  float half[4][3];
  for (int j = 0; j < 3; ++j) {
    const float a = taps[0][j], b = taps[1][j], c = taps[2][j];
    half[0][j] = a;
    half[1][j] = 0.5f * (a + b + c);
    half[2][j] = 0.5f * (a - b + c);
    half[3][j] = c;
  }
  for (int i = 0; i < 4; ++i) {
    const float a = half[i][0], b = half[i][1], c = half[i][2];
    coefficients[4 * i] = a;
    coefficients[4 * i + 1] = 0.5f * (a + b + c);
    coefficients[4 * i + 2] = 0.5f * (a - b + c);
    coefficients[4 * i + 3] = c;
  }
}

void transform_filter_gradient(const float (&coefficients)[16], float (&taps)[3][3]) {
  float half[3][4];
  for (int j = 0; j < 4; ++j) {
    const float a = coefficients[j], b = coefficients[4 + j], c = coefficients[8 + j], d = coefficients[12 + j];
    half[0][j] = a + 0.5f * (b + c);
    half[1][j] = 0.5f * (b - c);
    half[2][j] = 0.5f * (b + c) + d;
  }
  for (int i = 0; i < 3; ++i) {
    const float a = half[i][0], b = half[i][1], c = half[i][2], d = half[i][3];
    taps[i][0] = a + 0.5f * (b + c);
    taps[i][1] = 0.5f * (b - c);
    taps[i][2] = 0.5f * (b + c) + d;
  }
}

}  // namespace mica::cpu::convolution
#endif
