// The passes of a transform whose elements are vectors, a lane for each sequence.
#if defined(MICA_FFT_PASSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_FFT_PASSES_INL_H_
#undef MICA_FFT_PASSES_INL_H_
#else
#define MICA_FFT_PASSES_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cpu/fft/butterflies-inl.h"
#include "backends/cpu/fft/plan.h"
#include "backends/cpu/fft/short-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Where a pass finds its elements, and where it leaves them: element k is the vectors k of both parts.
template <class T>
struct FromParts {
  Sequence<T> from;
  HWY_INLINE Parts<hn::Vec<hn::ScalableTag<T>>> operator()(int64_t k) const {
    const hn::ScalableTag<T> d;
    const int64_t at = k * static_cast<int64_t>(hn::Lanes(d));
    return {hn::Load(d, from.re + at), hn::Load(d, from.im + at)};
  }
};
template <class T>
struct ToParts {
  Sequence<T> to;
  HWY_INLINE void operator()(int64_t k, Parts<hn::Vec<hn::ScalableTag<T>>> x) const {
    const hn::ScalableTag<T> d;
    const int64_t at = k * static_cast<int64_t>(hn::Lanes(d));
    hn::Store(x.re, d, to.re + at);
    hn::Store(x.im, d, to.im + at);
  }
};

template <int kRadix, class T, class Source, class Sink>
void run_pass(const fft::Pass& pass, const T* roots, const Source& source, Sink&& sink) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t before = pass.before, after = pass.after;
  for (int64_t k = 0; k < before; ++k) {
    const T* w = roots + pass.roots;
    for (int64_t i = 0; i < after; ++i) {
      Parts<V> x[kRadix];
#pragma GCC unroll 8
      for (int j = 0; j < kRadix; ++j) x[j] = source(i + after * (kRadix * k + j));
      butterfly<kRadix>(d, x);
      sink(i + after * k, x[0]);
#pragma GCC unroll 8
      for (int j = 1; j < kRadix; ++j) {
        if (i > 0) x[j] = times(x[j], Parts<V>{hn::Set(d, w[2 * j - 2]), hn::Set(d, w[2 * j - 1])});
        sink(i + after * (k + before * j), x[j]);
      }
      w += 2 * (kRadix - 1);
    }
  }
}

// Runs a pass whose radix has a butterfly of its own. Returns false for other radices, and has done nothing then.
template <class T, class Source, class Sink>
bool run_any_pass(const fft::Pass& pass, const T* roots, const Source& source, Sink&& sink) {
  switch (pass.radix) {
    case 2:
      run_pass<2>(pass, roots, source, sink);
      return true;
    case 3:
      run_pass<3>(pass, roots, source, sink);
      return true;
    case 4:
      run_pass<4>(pass, roots, source, sink);
      return true;
    case 5:
      run_pass<5>(pass, roots, source, sink);
      return true;
    case 8:
      run_pass<8>(pass, roots, source, sink);
      return true;
    default:
      return false;
  }
}

// NEON multiplies by one lane of a vector as fast as by a vector, so that one load brings the factors of several
// products. On other processors a load into all lanes costs nothing.
#if HWY_ARCH_ARM_A64
inline constexpr bool kFactorsInLanes = true;
#else
inline constexpr bool kFactorsInLanes = false;
#endif

// Calls step(m, factor) for every m below `half`, and for a few above it whose factors are zero. factor(r) is element m
// of row r in all lanes.
template <int kRows, class T, class Step>
HWY_INLINE void each_factor(const T* const (&rows)[kRows], int half, const Step& step) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int kLanes = 16 / sizeof(T);
  for (int m = 0; m < half; m += kLanes) {
    V factors[kRows];
    for (int r = 0; r < kRows; ++r) factors[r] = hn::LoadU(d, rows[r] + m);
    step(m, [&](int r) { return hn::Broadcast<0>(factors[r]); });
    step(m + 1, [&](int r) { return hn::Broadcast<1>(factors[r]); });
    if constexpr (kLanes == 4) {
      step(m + 2, [&](int r) { return hn::Broadcast<2>(factors[r]); });
      step(m + 3, [&](int r) { return hn::Broadcast<3>(factors[r]); });
    }
  }
}

// A prime radix: sums and differences of the elements that meet conjugate roots. kPrime is the radix, or 0 for any.
template <int kPrime, class T>
void run_prime_pass(const fft::Pass& pass, const T* roots, const T* primes, const T* rows, Sequence<T> from,
                    Sequence<T> to) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), before = pass.before, after = pass.after;
  const int radix = kPrime ? kPrime : pass.radix, half = radix / 2;
  constexpr int kMostHalf = kPrime ? kPrime / 2 : fft::padded_half(fft::kLargestRadix);
  Parts<V> sums[kMostHalf], turns[kMostHalf];
  if constexpr (kPrime == 0)
    for (int m = half; m < fft::padded_half(radix); ++m) sums[m] = turns[m] = {hn::Zero(d), hn::Zero(d)};
  for (int64_t k = 0; k < before; ++k)
    for (int64_t i = 0; i < after; ++i) {
      const T* const w = roots + pass.roots + 2 * (radix - 1) * i;
      const auto load = [&](int j) {
        const int64_t at = (i + after * (j + int64_t{radix} * k)) * lanes;
        return Parts<V>{hn::Load(d, from.re + at), hn::Load(d, from.im + at)};
      };
      const auto store = [&](int j, Parts<V> x) {
        if (i > 0 && j > 0) x = times(x, Parts<V>{hn::Set(d, w[2 * j - 2]), hn::Set(d, w[2 * j - 1])});
        const int64_t at = (i + after * (k + before * j)) * lanes;
        hn::Store(x.re, d, to.re + at);
        hn::Store(x.im, d, to.im + at);
      };
      const Parts<V> x0 = load(0);
      Parts<V> total = x0;
#pragma GCC unroll 3
      for (int j = 1; j <= half; ++j) {
        const Parts<V> a = load(j), b = load(radix - j);
        sums[j - 1] = a + b;
        turns[j - 1] = by_minus_i(a - b);
        total = total + sums[j - 1];
      }
      store(0, total);
      // Where the compiler does not know the radix, two results share their loads.
      const auto results = [&](auto count, int j) {
        constexpr int kCount = decltype(count)::value;
        Parts<V> even[kCount], odd[kCount];
        for (int r = 0; r < kCount; ++r) even[r] = x0, odd[r] = {hn::Zero(d), hn::Zero(d)};
        if constexpr (kPrime == 0 && kFactorsInLanes) {
          const int padded = fft::padded_half(radix);
          const T* factors[2 * kCount];
          for (int r = 0; r < 2 * kCount; ++r) factors[r] = rows + (2 * (j - 1) + r) * padded;
          each_factor(factors, half, [&](int m, const auto& factor) {
            const Parts<V> sum = sums[m], turn = turns[m];
            for (int r = 0; r < kCount; ++r) {
              const V c = factor(2 * r), s = factor(2 * r + 1);
              even[r] = {hn::MulAdd(sum.re, c, even[r].re), hn::MulAdd(sum.im, c, even[r].im)};
              odd[r] = {hn::MulAdd(turn.re, s, odd[r].re), hn::MulAdd(turn.im, s, odd[r].im)};
            }
          });
        } else {
          int at[kCount] = {};  // j * m modulo the radix, by subtraction, which is faster than a division
#pragma GCC unroll 3
          for (int m = 1; m <= half; ++m) {
            const Parts<V> sum = sums[m - 1], turn = turns[m - 1];
            for (int r = 0; r < kCount; ++r) {
              at[r] = at[r] + j + r >= radix ? at[r] + j + r - radix : at[r] + j + r;
              const V c = hn::Set(d, primes[2 * at[r]]), s = hn::Set(d, primes[2 * at[r] + 1]);
              even[r] = {hn::MulAdd(sum.re, c, even[r].re), hn::MulAdd(sum.im, c, even[r].im)};
              odd[r] = {hn::MulAdd(turn.re, s, odd[r].re), hn::MulAdd(turn.im, s, odd[r].im)};
            }
          }
        }
        for (int r = 0; r < kCount; ++r) {
          store(j + r, even[r] + odd[r]);
          store(radix - j - r, even[r] - odd[r]);
        }
      };
      int j = 1;
      if constexpr (kPrime == 0)
        for (; j + 1 <= half; j += 2) results(std::integral_constant<int, 2>(), j);
#pragma GCC unroll 3
      for (; j <= half; ++j) results(std::integral_constant<int, 1>(), j);
    }
}

// Runs passes `first` to `last` of a plan from `a`, with `b` as work space. Returns which of the two holds the result.
template <class T>
Sequence<T> run_some_passes(const fft::Plan<T>& plan, size_t first, size_t last, Sequence<T> a, Sequence<T> b) {
  const T* const roots = plan.roots.data();
  for (size_t p = first; p < last; ++p) {
    const fft::Pass& pass = plan.passes[p];
    if (pass.radix == 7) {
      run_prime_pass<7>(pass, roots, plan.roots_of(7), plan.rows_of(7), a, b);
    } else if (!run_any_pass(pass, roots, FromParts<T>{a}, ToParts<T>{b})) {
      run_prime_pass<0>(pass, roots, plan.roots_of(pass.radix), plan.rows_of(pass.radix), a, b);
    }
    std::swap(a, b);
  }
  return a;
}
template <class T>
Sequence<T> run_passes(const fft::Plan<T>& plan, Sequence<T> a, Sequence<T> b) {
  if (run_short_of<T>(plan.length, FromParts<T>{a}, ToParts<T>{b})) return b;
  return run_some_passes(plan, 0, plan.passes.size(), a, b);
}

// The same in two parts. The first reads its elements from a source, and the second writes them to a sink, so that
// elements in another form need no copy. This is the number of passes of the first part.
template <class T>
size_t first_passes(const fft::Plan<T>& plan) {
  return plan.passes.size() >= 2 && (plan.passes[0].radix <= 5 || plan.passes[0].radix == 8) ? 1 : 0;
}
template <class T, class Source>
void begin_passes(const fft::Plan<T>& plan, const Source& source, Sequence<T> to) {
  const ToParts<T> sink{to};
  if (first_passes(plan)) {
    run_any_pass(plan.passes[0], plan.roots.data(), source, sink);
  } else {
    for (int64_t k = 0; k < plan.length; ++k) sink(k, source(k));
  }
}
// Runs the passes that remain after `done`: after first_passes(), or after none. `make_sink` gets the buffer that the
// last pass does not read.
template <class T, class MakeSink>
void finish_passes(const fft::Plan<T>& plan, size_t done, Sequence<T> a, Sequence<T> b, const MakeSink& make_sink) {
  const size_t last = plan.passes.size() - (plan.passes.size() > done ? 1 : 0);
  const Sequence<T> x = run_some_passes(plan, done, last, a, b), other = x.re == a.re ? b : a;
  if (last < plan.passes.size() &&
      run_any_pass(plan.passes[last], plan.roots.data(), FromParts<T>{x}, make_sink(other)))
    return;
  const Sequence<T> y = run_some_passes(plan, last, plan.passes.size(), x, other);
  auto sink = make_sink(y.re == x.re ? other : x);
  const FromParts<T> source{y};
  for (int64_t k = 0; k < plan.length; ++k) sink(k, source(k));
}

template <class T>
void multiply_each(Sequence<T> x, const T* by, int64_t count) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < count; ++k) {
    const Parts<V> v = times(Parts<V>{hn::Load(d, x.re + k * lanes), hn::Load(d, x.im + k * lanes)},
                             Parts<V>{hn::Set(d, by[2 * k]), hn::Set(d, by[2 * k + 1])});
    hn::Store(v.re, d, x.re + k * lanes);
    hn::Store(v.im, d, x.im + k * lanes);
  }
}

// Convolves `a` with the plan's other factor, with `b` as work space. Returns which of the two holds the result.
// `first` is added to every element of it, and becomes the sum of the elements of `a`.
template <class T>
Sequence<T> convolve(const fft::Plan<T>& plan, Sequence<T> a, Sequence<T> b,
                     Parts<hn::Vec<hn::ScalableTag<T>>>* first) {
  const hn::ScalableTag<T> d;
  const Sequence<T> x = run_passes(*plan.convolution, a, b), room = x.re == a.re ? b : a;
  const Parts<hn::Vec<decltype(d)>> sum{hn::Load(d, x.re), hn::Load(d, x.im)};
  multiply_each(x, plan.factor.spectrum.data(), plan.convolution->length);
  if (first) {
    hn::Store(hn::Add(hn::Load(d, x.re), first->re), d, x.re);
    hn::Store(hn::Add(hn::Load(d, x.im), first->im), d, x.im);
    *first = sum;
  }
  // Back: parts exchanged, forward, exchanged again.
  const Sequence<T> y = run_passes(*plan.convolution, Sequence<T>{x.im, x.re}, Sequence<T>{room.im, room.re});
  return {y.im, y.re};
}

template <class T>
void permute(Sequence<T> from, Sequence<T> to, const std::vector<int32_t>& source, const std::vector<int32_t>& target) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), count = static_cast<int64_t>(source.size() + target.size());
  for (int64_t k = 0; k < count; ++k) {
    const int64_t at = lanes * (source.empty() ? k : source[static_cast<size_t>(k)]);
    const int64_t end = lanes * (target.empty() ? k : target[static_cast<size_t>(k)]);
    hn::Store(hn::Load(d, from.re + at), d, to.re + end);
    hn::Store(hn::Load(d, from.im + at), d, to.im + end);
  }
}

// Any length. With a large prime factor it becomes a convolution: of a prime's elements but the first in the order of
// the powers of a primitive root (Rader), or of the elements' products with a chirp (Bluestein).
template <class T>
Sequence<T> run_plan(const fft::Plan<T>& plan, Sequence<T> a, Sequence<T> b) {
  if (!plan.convolution) return run_passes(plan, a, b);
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = plan.length, m = plan.convolution->length;
  if (!plan.factor.from.empty()) {
    const Parts<V> first{hn::Load(d, a.re), hn::Load(d, a.im)};
    permute(a, b, plan.factor.from, {});
    Parts<V> sum = first;
    const Sequence<T> y = convolve(plan, b, a, &sum), result = y.re == a.re ? b : a;
    permute(y, result, {}, plan.factor.to);
    hn::Store(hn::Add(first.re, sum.re), d, result.re);
    hn::Store(hn::Add(first.im, sum.im), d, result.im);
    return result;
  }
  multiply_each(a, plan.factor.chirp.data(), n);
  for (int64_t i = n * lanes; i < m * lanes; i += lanes) {
    hn::Store(hn::Zero(d), d, a.re + i);
    hn::Store(hn::Zero(d), d, a.im + i);
  }
  const Sequence<T> y = convolve(plan, a, b, static_cast<Parts<V>*>(nullptr));
  multiply_each(y, plan.factor.chirp.data(), n);
  return y;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
