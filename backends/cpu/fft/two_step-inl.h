// One transform of elements side by side, cut in two so that lanes are its own columns and then its own rows.
#if defined(MICA_FFT_TWO_STEP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_FFT_TWO_STEP_INL_H_
#undef MICA_FFT_TWO_STEP_INL_H_
#else
#define MICA_FFT_TWO_STEP_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "backends/cpu/fft/dense_plan.h"
#include "backends/cpu/fft/lane_io-inl.h"
#include "backends/cpu/fft/passes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The lanes of the second step are rows in an order in which the two parts, interleaved within blocks, are in the order
// of memory: lane l is row row_of_lane(l) of its group.
template <class T, int kLanes>
constexpr int row_of_lane(int lane) {
  constexpr int kSide = 16 / sizeof(T), kHalf = kSide / 2;
  const int block = lane / kSide, at = lane % kSide;
  return at < kHalf ? kHalf * block + at : kLanes / 2 + kHalf * block + at - kHalf;
}

// The products of a group of columns with their roots, a square of them at a time, rows and columns exchanged.
template <bool kImaginary, class T>
HWY_INLINE void turn_tile(Sequence<T> x, const T* roots, int64_t first, int64_t rows, T* to, int64_t columns) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = hn::MaxLanes(d);
  V tile[kLanes];
#pragma GCC unroll 16
  for (int l = 0; l < kLanes; ++l) {
    // Rows that are not there repeat the last one.
    const int64_t k = std::min(first + row_of_lane<T, kLanes>(l), rows - 1);
    const T* const w = roots + 2 * kLanes * k;
    const V re = hn::Load(d, x.re + k * kLanes), im = hn::Load(d, x.im + k * kLanes);
    const V w_re = hn::LoadU(d, w), w_im = hn::LoadU(d, w + kLanes);
    tile[l] = kImaginary ? hn::MulAdd(im, w_re, hn::Mul(re, w_im)) : hn::NegMulAdd(im, w_im, hn::Mul(re, w_re));
  }
  transpose_tile(d, tile);
  if (columns >= kLanes) {
#pragma GCC unroll 16
    for (int l = 0; l < kLanes; ++l) hn::Store(tile[l], d, to + l * kLanes);
  } else {
    for (int64_t l = 0; l < columns; ++l) hn::Store(tile[l], d, to + l * kLanes);
  }
}

// Lines of memory that the next transform will read, asked for a few at a time while this one computes.
struct NextLines {
  static constexpr int64_t kLine = 64;
  const char* at = nullptr;
  const char* end = nullptr;

  HWY_INLINE void ask(int64_t lines) {
    for (; lines > 0 && at < end; --lines, at += kLine) hwy::Prefetch(at);
  }
  int64_t left() const { return (end - at + kLine - 1) / kLine; }
};

// Numbers of working room that run_two_step needs: the columns, the rows, and a place to go to and fro.
template <class T>
int64_t two_step_room(const fft::TwoStep<T>& plan) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  return 2 * fft::group_count(lanes, plan.columns) * (plan.rows * lanes + 16) +
         2 * fft::group_count(lanes, plan.rows) * (plan.columns * lanes + 16) +
         2 * (std::max(plan.rows, plan.columns) * lanes + 16);
}

// The columns of a dense transform, read in the order of memory: each group's in rows of lanes.
template <class T>
HWY_INLINE void load_columns(const fft::TwoStep<T>& plan, const T* in, Sequence<T> first, int64_t group_step) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const int64_t rows = plan.rows, columns = plan.columns, groups = fft::group_count(kLanes, columns);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t group = 0; group < groups; ++group) {
      const T* from = in + 2 * (r * columns + fft::group_start(group, kLanes, columns));
      // A row of fewer elements than lanes is read on into the next ones, which the last rows have not.
      HWY_ALIGN T last[2 * kLanes];
      if (HWY_UNLIKELY((rows - r) * columns < kLanes)) {
        for (int64_t i = 0; i < 2 * kLanes; ++i) last[i] = from[std::min(i, 2 * (rows - r) * columns - 1)];
        from = last;
      }
      V re, im;
      hn::LoadInterleaved2(d, from, re, im);
      hn::Store(re, d, first.re + group * group_step + r * kLanes);
      hn::Store(im, d, first.im + group * group_step + r * kLanes);
    }
}

// From `in` to `out`, pairs of numbers; both may be the same. With `stream`, results go to memory past the caches:
// `out` is aligned to vectors then, and so are its rows.
template <class T>
void run_two_step(const fft::TwoStep<T>& plan, const T* in, T* out, bool backward, T scale, T* room, NextLines next,
                  bool stream) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  const int64_t rows = plan.rows, columns = plan.columns;
  const int64_t row_groups = fft::group_count(kLanes, rows), column_groups = fft::group_count(kLanes, columns);
  const int64_t column_part = rows * kLanes + 16, row_part = columns * kLanes + 16;
  T *const middle = room + 2 * column_groups * column_part, *const other = middle + 2 * row_groups * row_part;
  const Sequence<T> b{other, other + std::max(rows, columns) * kLanes + 16};
  const auto swapped = [&](Sequence<T> s) { return backward ? Sequence<T>{s.im, s.re} : s; };
  load_columns(plan, in, swapped({room, room + column_part}), 2 * column_part);
  const T* roots = plan.roots.data();
  const int64_t asked_by_columns = next.left() / (2 * column_groups);
  for (int64_t group = 0; group < column_groups; ++group) {
    const int64_t start = fft::group_start(group, kLanes, columns);
    T* const mine = room + 2 * group * column_part;
    const Sequence<T> x = run_passes(*plan.down, Sequence<T>{mine, mine + column_part}, b);
    next.ask(asked_by_columns);
    for (int64_t g = 0; g < row_groups; ++g) {
      const int64_t first = fft::group_start(g, kLanes, rows);
      T* const to = middle + 2 * g * row_part + start * kLanes;
      turn_tile<false>(x, roots, first, rows, to, columns - start);
      turn_tile<true>(x, roots, first, rows, to + row_part, columns - start);
    }
    roots += 2 * kLanes * rows;
  }
  const V factor = hn::Set(d, scale);
  const int64_t asked_by_rows = next.left() / (row_groups * columns) + 1;
  for (int64_t g = 0; g < row_groups; ++g) {
    const int64_t first = fft::group_start(g, kLanes, rows);
    T* const mine = middle + 2 * g * row_part;
    const Sequence<T> x = swapped(run_passes(*plan.along, Sequence<T>{mine, mine + row_part}, b));
    // In ascending order: where there are fewer rows than lanes, what a store writes too much the next one corrects.
    for (int64_t m = 0; m < columns; ++m) {
      next.ask(asked_by_rows);
      const V re = hn::Mul(hn::Load(d, x.re + m * kLanes), factor),
              im = hn::Mul(hn::Load(d, x.im + m * kLanes), factor);
      const V low = hn::InterleaveLower(d, re, im), high = hn::InterleaveUpper(d, re, im);
      T* const to = out + 2 * (first + rows * m);
      const int64_t left = 2 * (plan.length - first - rows * m);
      if (stream) {
        hn::Stream(low, d, to);
        hn::Stream(high, d, to + kLanes);
      } else if (HWY_LIKELY(left >= 2 * kLanes)) {
        hn::StoreU(low, d, to);
        hn::StoreU(high, d, to + kLanes);
      } else {
        HWY_ALIGN T all[2 * kLanes];
        hn::Store(low, d, all);
        hn::Store(high, d, all + kLanes);
        std::memcpy(to, all, static_cast<size_t>(left) * sizeof(T));
      }
    }
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
