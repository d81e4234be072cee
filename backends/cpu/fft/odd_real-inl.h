// Real sequences of odd length, one in each lane, with about half the work of a complex transform.
#if defined(MICA_FFT_ODD_REAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_FFT_ODD_REAL_INL_H_
#undef MICA_FFT_ODD_REAL_INL_H_
#else
#define MICA_FFT_ODD_REAL_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

#include "backends/cpu/fft/lanes.h"
#include "backends/cpu/fft/passes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Element c + columns * j of `from` is element j of column c. Each column is transformed and multiplied by its roots;
// row k of the result has element k of every column. The rows above half are conjugates and are left out. kRadix is the
// radix, or 0 for any.
template <int kRadix, class T>
void transform_real_columns(const fft::OddReal<T>& cut, const T* from, Sequence<T> to) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), columns = cut.columns;
  const int radix = kRadix ? kRadix : cut.radix, half = radix / 2;
  constexpr int kMostHalf = kRadix ? kRadix / 2 : fft::padded_half(fft::kLargestOddRadix);
  const T *const turns = cut.turns.data(), *const roots = cut.roots->data();
  V sums[kMostHalf], rests[kMostHalf];
  if constexpr (kRadix == 0)
    for (int m = half; m < fft::padded_half(radix); ++m) sums[m] = rests[m] = hn::Zero(d);
  for (int64_t c = 0; c < columns; ++c) {
    const V x0 = hn::Load(d, from + c * lanes);
    V total = x0;
#pragma GCC unroll 4
    for (int j = 1; j <= half; ++j) {
      const V a = hn::Load(d, from + (c + columns * j) * lanes),
              b = hn::Load(d, from + (c + columns * (radix - j)) * lanes);
      sums[j - 1] = hn::Add(a, b);
      rests[j - 1] = hn::Sub(a, b);
      total = hn::Add(total, sums[j - 1]);
    }
    hn::Store(total, d, to.re + c * lanes);
    hn::Store(hn::Zero(d), d, to.im + c * lanes);
    // Where the compiler does not know the radix, several results share their loads.
    const auto results = [&](auto count, int k) {
      constexpr int kCount = decltype(count)::value;
      Parts<V> x[kCount];
      for (int r = 0; r < kCount; ++r) x[r] = {x0, hn::Zero(d)};
      if constexpr (kRadix == 0 && kFactorsInLanes) {
        const int padded = fft::padded_half(radix);
        const T* factors[2 * kCount];
        for (int r = 0; r < 2 * kCount; ++r) factors[r] = cut.rows.data() + (2 * (k - 1) + r) * padded;
        each_factor(factors, half, [&](int m, const auto& factor) {
          const V sum = sums[m], rest = rests[m];
          for (int r = 0; r < kCount; ++r) {
            x[r].re = hn::MulAdd(sum, factor(2 * r), x[r].re);
            x[r].im = hn::NegMulAdd(rest, factor(2 * r + 1), x[r].im);
          }
        });
      } else {
        int at[kCount] = {};  // k * m modulo the radix, by subtraction, which is faster than a division
#pragma GCC unroll 4
        for (int m = 1; m <= half; ++m) {
          const V sum = sums[m - 1], rest = rests[m - 1];
          for (int r = 0; r < kCount; ++r) {
            at[r] = at[r] + k + r >= radix ? at[r] + k + r - radix : at[r] + k + r;
            x[r].re = hn::MulAdd(sum, hn::Set(d, turns[2 * at[r]]), x[r].re);
            x[r].im = hn::NegMulAdd(rest, hn::Set(d, turns[2 * at[r] + 1]), x[r].im);
          }
        }
      }
      for (int r = 0; r < kCount; ++r) {
        const int64_t row = k + r;
        if (c > 0)
          x[r] =
              times(x[r], {hn::Set(d, roots[2 * row * columns + c]), hn::Set(d, roots[(2 * row + 1) * columns + c])});
        hn::Store(x[r].re, d, to.re + (row * columns + c) * lanes);
        hn::Store(x[r].im, d, to.im + (row * columns + c) * lanes);
      }
    };
    int k = 1;
    if constexpr (kRadix == 0)
      for (; k + 3 <= half; k += 4) results(std::integral_constant<int, 4>(), k);
#pragma GCC unroll 4
    for (; k <= half; ++k) results(std::integral_constant<int, 1>(), k);
  }
}

// The inverse: columns of real numbers from the rows up to half.
template <int kRadix, class T>
void restore_real_columns(const fft::OddReal<T>& cut, Sequence<T> from, T* to) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), columns = cut.columns;
  const int radix = kRadix ? kRadix : cut.radix, half = radix / 2;
  constexpr int kMostHalf = (kRadix ? kRadix : fft::kLargestOddRadix) / 2;
  const T *const turns = cut.turns.data(), *const roots = cut.roots->data();
  Parts<V> y[kMostHalf];  // twice the rows' elements
  for (int64_t c = 0; c < columns; ++c) {
    const V y0 = hn::Load(d, from.re + c * lanes);
    V total = y0;
#pragma GCC unroll 4
    for (int k = 1; k <= half; ++k) {
      const int64_t at = (k * columns + c) * lanes;
      Parts<V> x{hn::Load(d, from.re + at), hn::Load(d, from.im + at)};
      if (c > 0) x = times(x, {hn::Set(d, roots[2 * k * columns + c]), hn::Set(d, -roots[(2 * k + 1) * columns + c])});
      y[k - 1] = {hn::Add(x.re, x.re), hn::Add(x.im, x.im)};
      total = hn::Add(total, y[k - 1].re);
    }
    hn::Store(total, d, to + c * lanes);
#pragma GCC unroll 4
    for (int j = 1; j <= half; ++j) {
      V even = y0, odd = hn::Zero(d);
      int at = 0;
#pragma GCC unroll 4
      for (int k = 1; k <= half; ++k) {
        at = at + j >= radix ? at + j - radix : at + j;
        even = hn::MulAdd(y[k - 1].re, hn::Set(d, turns[2 * at]), even);
        odd = hn::MulAdd(y[k - 1].im, hn::Set(d, turns[2 * at + 1]), odd);
      }
      hn::Store(hn::Sub(even, odd), d, to + (c + columns * j) * lanes);
      hn::Store(hn::Add(even, odd), d, to + (c + columns * (radix - j)) * lanes);
    }
  }
}

template <class T>
void copy_elements(Sequence<T> from, Sequence<T> to, int64_t count) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count * lanes; i += lanes) {
    hn::Store(hn::Load(d, from.re + i), d, to.re + i);
    hn::Store(hn::Load(d, from.im + i), d, to.im + i);
  }
}

// Transforms the rows that begin at `a`, with `b` as work space. Returns which of the two holds the results.
template <class T>
Sequence<T> transform_rows(const fft::OddReal<T>& cut, Sequence<T> a, Sequence<T> b) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())), rows = cut.radix / 2 + 1;
  const auto part = [&](Sequence<T> s, int64_t at) { return Sequence<T>{s.re + at * lanes, s.im + at * lanes}; };
  if (cut.along->convolution) {  // which needs more room than a row has
    const Sequence<T> other = part(b, cut.along->working_length());
    for (int64_t k = 0; k < rows; ++k) {
      const Sequence<T> row = part(a, k * cut.columns);
      copy_elements(row, b, cut.columns);
      copy_elements(run_plan(*cut.along, b, other), row, cut.columns);
    }
    return a;
  }
  Sequence<T> result = a;
  for (int64_t k = 0; k < rows; ++k) {
    const Sequence<T> row = part(a, k * cut.columns);
    if (run_plan(*cut.along, row, part(b, k * cut.columns)).re != row.re) result = b;
  }
  return result;
}

// Computes the bins up to half of the real sequence a.re, with `b` as work space. Returns which of the two holds them.
template <class T>
Sequence<T> run_odd_real(const fft::OddReal<T>& cut, Sequence<T> a, Sequence<T> b) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), columns = cut.columns, half = cut.radix / 2;
  cut.radix == 3   ? transform_real_columns<3>(cut, a.re, b)
  : cut.radix == 5 ? transform_real_columns<5>(cut, a.re, b)
  : cut.radix == 7 ? transform_real_columns<7>(cut, a.re, b)
  : cut.radix == 9 ? transform_real_columns<9>(cut, a.re, b)
                   : transform_real_columns<0>(cut, a.re, b);
  const Sequence<T> rows = transform_rows(cut, b, a), bins = rows.re == a.re ? b : a;
  // Bin radix * q + k is element q of row k; where k is above half, the conjugate of that of its mirror.
  int64_t q = 0, k = 0;
  for (int64_t bin = 0; bin <= cut.radix * columns / 2; ++bin) {
    const bool mirrored = k > half;
    const int64_t at = (mirrored ? (cut.radix - k) * columns + columns - q - 1 : k * columns + q) * lanes;
    const auto im = hn::Load(d, rows.im + at);
    hn::Store(hn::Load(d, rows.re + at), d, bins.re + bin * lanes);
    hn::Store(mirrored ? hn::Neg(im) : im, d, bins.im + bin * lanes);
    if (++k == cut.radix) k = 0, ++q;
  }
  return bins;
}

// The real sequence of the bins up to half that `a` holds, not divided by its length; returns where its elements begin.
template <class T>
const T* run_odd_real_back(const fft::OddReal<T>& cut, Sequence<T> a, Sequence<T> b) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), columns = cut.columns, length = cut.radix * columns;
  hn::Store(hn::Zero(d), d, a.im);  // the first bin is real
  for (int64_t k = 0; k <= cut.radix / 2; ++k)
    for (int64_t q = 0; q < columns; ++q) {
      const int64_t bin = k + cut.radix * q, to = (k * columns + q) * lanes;
      const bool mirrored = bin > length / 2;
      const int64_t at = (mirrored ? length - bin : bin) * lanes;
      const auto im = hn::Load(d, a.im + at);
      hn::Store(hn::Load(d, a.re + at), d, b.re + to);
      hn::Store(mirrored ? hn::Neg(im) : im, d, b.im + to);
    }
  // Backward: parts exchanged, forward, exchanged again.
  const Sequence<T> turned = transform_rows(cut, Sequence<T>{b.im, b.re}, Sequence<T>{a.im, a.re});
  const Sequence<T> rows{turned.im, turned.re};
  T* const to = rows.re == a.re ? b.re : a.re;
  cut.radix == 3   ? restore_real_columns<3>(cut, rows, to)
  : cut.radix == 5 ? restore_real_columns<5>(cut, rows, to)
  : cut.radix == 7 ? restore_real_columns<7>(cut, rows, to)
  : cut.radix == 9 ? restore_real_columns<9>(cut, rows, to)
                   : restore_real_columns<0>(cut, rows, to);
  return to;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
