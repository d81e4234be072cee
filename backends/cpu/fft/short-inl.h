// Transforms of short lengths known to the compiler, whose elements are vectors: factors, roots and the order of
// elements are constants, and what does not fit the registers stays on the stack.
#if defined(MICA_FFT_SHORT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_FFT_SHORT_INL_H_
#undef MICA_FFT_SHORT_INL_H_
#else
#define MICA_FFT_SHORT_INL_H_
#endif

#include <hwy/highway.h>

#include <array>
#include <iterator>
#include <utility>

#include "backends/cpu/fft/butterflies-inl.h"
#include "backends/cpu/fft/short_lengths.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Factors of a transform that has no butterfly of its own. Without a common divisor, their elements meet in an order
// that needs no products in between (Good and Thomas).
template <int kLength>
struct ShortFactors {
  static constexpr int kFirst = fft::short_factor(kLength), kSecond = kLength / kFirst;
  static constexpr bool kCoprime = kLength <= 30 && fft::common_divisor(kFirst, kSecond) == 1;
  // Elements of the result: k = first * kFirstStep + second * kSecondStep, modulo the length.
  static constexpr int kFirstStep = kCoprime ? kSecond * fft::inverse(kSecond, kFirst) : 1;
  static constexpr int kSecondStep = kCoprime ? kFirst * fft::inverse(kFirst, kSecond) : kFirst;
};

// Roots of the first step's elements but those of the first, row by row.
template <class T, int kLength, int kFirst>
constexpr auto short_roots() {
  constexpr int kSecond = kLength / kFirst;
  std::array<T, 2 * kSecond*(kFirst - 1)> roots{};
  for (int i = 0; i < kSecond; ++i)
    for (int j = 1; j < kFirst; ++j) {
      const fft::Root w = fft::constant_root(i * j, kLength);
      const int at = 2 * (i * (kFirst - 1) + j - 1);
      roots[static_cast<size_t>(at)] = static_cast<T>(w.re);
      roots[static_cast<size_t>(at + 1)] = static_cast<T>(w.im);
    }
  return roots;
}
template <class T, int kLength, int kFirst>
constexpr auto kShortRoots = short_roots<T, kLength, kFirst>();

// Values in registers, in place: a butterfly, or two steps of them.
template <int kLength, class D, class V>
HWY_INLINE void short_values(D d, Parts<V>* x) {
  if constexpr (fft::has_butterfly(kLength)) {
    butterfly<kLength>(d, x);
  } else {
    using T = hn::TFromD<D>;
    using Cut = ShortFactors<kLength>;
    constexpr int kFirst = Cut::kFirst, kSecond = Cut::kSecond;
    Parts<V> between[kLength];
#pragma GCC unroll 16
    for (int i = 0; i < kSecond; ++i) {
      Parts<V> y[kFirst];
#pragma GCC unroll 16
      for (int j = 0; j < kFirst; ++j) y[j] = x[Cut::kCoprime ? (kSecond * j + kFirst * i) % kLength : kSecond * j + i];
      butterfly<kFirst>(d, y);
#pragma GCC unroll 16
      for (int j = 0; j < kFirst; ++j) {
        if (Cut::kCoprime || i * j == 0) {
          between[j * kSecond + i] = y[j];
        } else if (4 * i * j == kLength) {
          between[j * kSecond + i] = by_minus_i(y[j]);
        } else {
          const T* const w = kShortRoots<T, kLength, kFirst>.data() + 2 * ((kFirst - 1) * i + j - 1);
          between[j * kSecond + i] = times(y[j], Parts<V>{hn::Set(d, w[0]), hn::Set(d, w[1])});
        }
      }
    }
#pragma GCC unroll 16
    for (int j = 0; j < kFirst; ++j) {
      butterfly<kSecond>(d, between + j * kSecond);
#pragma GCC unroll 16
      for (int m = 0; m < kSecond; ++m)
        x[(j * Cut::kFirstStep + m * Cut::kSecondStep) % kLength] = between[j * kSecond + m];
    }
  }
}

// A transform in two steps: the columns go to the stack, then its rows are transformed. Short lengths are unrolled,
// with every index a constant; the others are two loops.
template <int kLength, class D, class Source, class Sink>
HWY_INLINE void run_in_steps(D d, const Source& source, const Sink& sink) {
  using V = hn::Vec<D>;
  using T = hn::TFromD<D>;
  using Cut = ShortFactors<kLength>;
  constexpr int kFirst = Cut::kFirst, kSecond = Cut::kSecond;
  constexpr bool kUnrolled = fft::is_unrolled(kLength), kCoprime = Cut::kCoprime;
  constexpr int64_t kLanes = hn::MaxLanes(D());
  HWY_ALIGN T between[2 * kLength * kLanes];
  const auto column = [&](int64_t i, bool turns) MICA_FFT_INLINE {
    Parts<V> x[kFirst];
#pragma GCC unroll 16
    for (int j = 0; j < kFirst; ++j)
      x[j] = kCoprime ? source((kSecond * j + kFirst * i) % kLength) : source(kSecond * j + i);
    short_values<kFirst>(d, x);
    const T* const w = kShortRoots<T, kLength, kFirst>.data() + 2 * (kFirst - 1) * i;
#pragma GCC unroll 16
    for (int j = 0; j < kFirst; ++j) {
      if (turns && j > 0) x[j] = times(x[j], Parts<V>{hn::Set(d, w[2 * j - 2]), hn::Set(d, w[2 * j - 1])});
      hn::Store(x[j].re, d, between + 2 * kLanes * (j * kSecond + i));
      hn::Store(x[j].im, d, between + 2 * kLanes * (j * kSecond + i) + kLanes);
    }
  };
  const auto row = [&](int64_t j) MICA_FFT_INLINE {
    Parts<V> x[kSecond];
#pragma GCC unroll 16
    for (int i = 0; i < kSecond; ++i) {
      const T* const at = between + 2 * kLanes * (j * kSecond + i);
      x[i] = {hn::Load(d, at), hn::Load(d, at + kLanes)};
    }
    short_values<kSecond>(d, x);
#pragma GCC unroll 16
    for (int m = 0; m < kSecond; ++m) sink((j * Cut::kFirstStep + m * Cut::kSecondStep) % kLength, x[m]);
  };
  if constexpr (kUnrolled) {
#pragma GCC unroll 16
    for (int i = 0; i < kSecond; ++i) column(i, !kCoprime && i > 0);
#pragma GCC unroll 16
    for (int j = 0; j < kFirst; ++j) row(j);
  } else {
    column(0, false);
#pragma GCC unroll 1
    for (int64_t i = 1; i < kSecond; ++i) column(i, true);
#pragma GCC unroll 1
    for (int64_t j = 0; j < kFirst; ++j) row(j);
  }
}

// Reads element k as source(k) and leaves element k of the transform with sink(k, x).
template <int kLength, class D, class Source, class Sink>
HWY_INLINE void run_short(D d, const Source& source, const Sink& sink) {
  if constexpr (fft::has_values(kLength)) {
    Parts<hn::Vec<D>> x[kLength];
#pragma GCC unroll 16
    for (int j = 0; j < kLength; ++j) x[j] = source(j);
    short_values<kLength>(d, x);
#pragma GCC unroll 16
    for (int j = 0; j < kLength; ++j) sink(j, x[j]);
  } else {
    run_in_steps<kLength>(d, source, sink);
  }
}

// One function for a length with its source and sink, which it copies, so that the compiler knows that the sink does
// not write to their members.
template <int kLength, class D, class Source, class Sink>
HWY_NOINLINE void short_transform(D d, const Source& source, const Sink& sink) {
  const Source from = source;
  const Sink to = sink;
  run_short<kLength>(d, from, to);
}
// Returns false, and has done nothing, where the length has no transform of its own.
template <class T, class Source, class Sink>
bool run_short_of(int64_t length, const Source& source, const Sink& sink) {
  if constexpr (fft::takes_short(hn::MaxLanes(hn::ScalableTag<T>()))) {
    const hn::ScalableTag<T> d;
    const auto run_one_of = [&]<size_t... I>(std::index_sequence<I...>) {
      return ((length == fft::kShortLengths[I] && (short_transform<fft::kShortLengths[I]>(d, source, sink), true)) ||
              ...);
    };
    return run_one_of(std::make_index_sequence<std::size(fft::kShortLengths)>());
  }
  return false;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
