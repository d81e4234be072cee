// The passes of a transform whose elements are vectors, a lane for each sequence.
#if defined(MICA_FFT_PASSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_FFT_PASSES_INL_H_
#undef MICA_FFT_PASSES_INL_H_
#else
#define MICA_FFT_PASSES_INL_H_
#endif

#include <hwy/highway.h>

#include <utility>

#include "backends/cpu/fft/plan.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Real and imaginary parts of a sequence of vectors.
template <class T>
struct Sequence {
  T* re;
  T* im;
};

template <class V>
struct Parts {
  V re, im;
};

template <class V>
HWY_INLINE Parts<V> operator+(Parts<V> a, Parts<V> b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
template <class V>
HWY_INLINE Parts<V> operator-(Parts<V> a, Parts<V> b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
template <class V>
HWY_INLINE Parts<V> times(Parts<V> a, Parts<V> w) {
  return {hn::NegMulAdd(a.im, w.im, hn::Mul(a.re, w.re)), hn::MulAdd(a.im, w.re, hn::Mul(a.re, w.im))};
}
template <class V>
HWY_INLINE Parts<V> scaled(Parts<V> a, V s) {
  return {hn::Mul(a.re, s), hn::Mul(a.im, s)};
}
template <class V>
HWY_INLINE Parts<V> by_minus_i(Parts<V> a) {
  return {a.im, hn::Neg(a.re)};
}

template <class V>
HWY_INLINE void butterfly_4(Parts<V>& a, Parts<V>& b, Parts<V>& c, Parts<V>& d) {
  const Parts<V> s = a + c, t = a - c, u = b + d, v = by_minus_i(b - d);
  a = s + u;
  b = t + v;
  c = s - u;
  d = t - v;
}

// In place, forward. D is only for constants.
template <int kRadix, class D, class V>
HWY_INLINE void butterfly(D d, Parts<V>* x) {
  using T = hn::TFromD<D>;
  if constexpr (kRadix == 2) {
    const Parts<V> a = x[0];
    x[0] = a + x[1];
    x[1] = a - x[1];
  } else if constexpr (kRadix == 3) {
    const V half = hn::Set(d, T(-0.5)), root = hn::Set(d, T(0.86602540378443864676));
    const Parts<V> sum = x[1] + x[2], rest = scaled(by_minus_i(x[1] - x[2]), root);
    const Parts<V> mean{hn::MulAdd(sum.re, half, x[0].re), hn::MulAdd(sum.im, half, x[0].im)};
    x[0] = x[0] + sum;
    x[1] = mean + rest;
    x[2] = mean - rest;
  } else if constexpr (kRadix == 4) {
    butterfly_4(x[0], x[1], x[2], x[3]);
  } else if constexpr (kRadix == 5) {
    const V c1 = hn::Set(d, T(0.30901699437494742410)), c2 = hn::Set(d, T(-0.80901699437494742410));
    const V s1 = hn::Set(d, T(0.95105651629515357212)), s2 = hn::Set(d, T(0.58778525229247312917));
    const Parts<V> a = x[1] + x[4], b = x[2] + x[3], p = x[1] - x[4], q = x[2] - x[3];
    const Parts<V> first = x[0] + scaled(a, c1) + scaled(b, c2), second = x[0] + scaled(a, c2) + scaled(b, c1);
    const Parts<V> turn1 = by_minus_i(scaled(p, s1) + scaled(q, s2)), turn2 = by_minus_i(scaled(p, s2) - scaled(q, s1));
    x[0] = x[0] + a + b;
    x[1] = first + turn1;
    x[4] = first - turn1;
    x[2] = second + turn2;
    x[3] = second - turn2;
  } else {
    static_assert(kRadix == 8);
    butterfly_4(x[0], x[2], x[4], x[6]);
    butterfly_4(x[1], x[3], x[5], x[7]);
    const V root = hn::Set(d, T(0.70710678118654752440));
    const Parts<V> o1 = scaled(Parts<V>{hn::Add(x[3].re, x[3].im), hn::Sub(x[3].im, x[3].re)}, root);
    const Parts<V> o2 = by_minus_i(x[5]);
    const Parts<V> o3 = scaled(Parts<V>{hn::Sub(x[7].im, x[7].re), hn::Neg(hn::Add(x[7].re, x[7].im))}, root);
    const Parts<V> e0 = x[0], e1 = x[2], e2 = x[4], e3 = x[6], o0 = x[1];
    x[0] = e0 + o0;
    x[1] = e1 + o1;
    x[2] = e2 + o2;
    x[3] = e3 + o3;
    x[4] = e0 - o0;
    x[5] = e1 - o1;
    x[6] = e2 - o2;
    x[7] = e3 - o3;
  }
}

template <int kRadix, class T>
void run_pass(const fft::Pass& pass, const T* roots, Sequence<T> from, Sequence<T> to) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), before = pass.before, after = pass.after;
  for (int64_t k = 0; k < before; ++k) {
    const T* w = roots + pass.roots;
    for (int64_t i = 0; i < after; ++i) {
      Parts<V> x[kRadix];
      const int64_t start = (i + after * kRadix * k) * lanes;
      for (int j = 0; j < kRadix; ++j) {
        const int64_t at = start + after * j * lanes;
        x[j] = {hn::Load(d, from.re + at), hn::Load(d, from.im + at)};
      }
      butterfly<kRadix>(d, x);
      const int64_t end = (i + after * k) * lanes, step = after * before * lanes;
      hn::Store(x[0].re, d, to.re + end);
      hn::Store(x[0].im, d, to.im + end);
      for (int j = 1; j < kRadix; ++j) {
        if (i > 0) x[j] = times(x[j], Parts<V>{hn::Set(d, w[2 * j - 2]), hn::Set(d, w[2 * j - 1])});
        hn::Store(x[j].re, d, to.re + end + j * step);
        hn::Store(x[j].im, d, to.im + end + j * step);
      }
      w += 2 * (kRadix - 1);
    }
  }
}

// A prime radix: sums and differences of the elements that meet conjugate roots.
template <class T>
void run_prime_pass(const fft::Pass& pass, const T* roots, const T* primes, Sequence<T> from, Sequence<T> to) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), before = pass.before, after = pass.after;
  const int radix = pass.radix, half = radix / 2;
  Parts<V> sums[16], turns[16];
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
      for (int j = 1; j <= half; ++j) {
        const Parts<V> a = load(j), b = load(radix - j);
        sums[j - 1] = a + b;
        turns[j - 1] = by_minus_i(a - b);
        total = total + sums[j - 1];
      }
      store(0, total);
      for (int j = 1; j <= half; ++j) {
        Parts<V> even = x0, odd{hn::Zero(d), hn::Zero(d)};
        for (int m = 1; m <= half; ++m) {
          const int at = j * m % radix;
          const V c = hn::Set(d, primes[2 * at]), s = hn::Set(d, primes[2 * at + 1]);
          even = {hn::MulAdd(sums[m - 1].re, c, even.re), hn::MulAdd(sums[m - 1].im, c, even.im)};
          odd = {hn::MulAdd(turns[m - 1].re, s, odd.re), hn::MulAdd(turns[m - 1].im, s, odd.im)};
        }
        store(j, even + odd);
        store(radix - j, even - odd);
      }
    }
}

// Transforms `a`, with `b` as room; returns which of the two holds the result.
template <class T>
Sequence<T> run_passes(const fft::Plan<T>& plan, Sequence<T> a, Sequence<T> b) {
  const T* const roots = plan.roots.data();
  for (const fft::Pass& pass : plan.passes) {
    switch (pass.radix) {
      case 2:
        run_pass<2>(pass, roots, a, b);
        break;
      case 3:
        run_pass<3>(pass, roots, a, b);
        break;
      case 4:
        run_pass<4>(pass, roots, a, b);
        break;
      case 5:
        run_pass<5>(pass, roots, a, b);
        break;
      case 8:
        run_pass<8>(pass, roots, a, b);
        break;
      default:
        for (const auto& [radix, at] : plan.primes)
          if (radix == pass.radix) run_prime_pass(pass, roots, plan.prime_roots.data() + at, a, b);
    }
    std::swap(a, b);
  }
  return a;
}

// Any length: with a large prime factor, the product with a chirp, a convolution with it, and the product again.
template <class T>
Sequence<T> run_plan(const fft::Plan<T>& plan, Sequence<T> a, Sequence<T> b) {
  if (!plan.convolution) return run_passes(plan, a, b);
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), n = plan.length, m = plan.convolution->length;
  const auto multiply = [&](Sequence<T> x, const T* by, int64_t count) {
    for (int64_t k = 0; k < count; ++k) {
      const Parts<V> w{hn::Set(d, by[2 * k]), hn::Set(d, by[2 * k + 1])};
      Parts<V> v{hn::Load(d, x.re + k * lanes), hn::Load(d, x.im + k * lanes)};
      v = times(v, w);
      hn::Store(v.re, d, x.re + k * lanes);
      hn::Store(v.im, d, x.im + k * lanes);
    }
  };
  multiply(a, plan.chirp.data(), n);
  for (int64_t i = n * lanes; i < m * lanes; i += lanes) {
    hn::Store(hn::Zero(d), d, a.re + i);
    hn::Store(hn::Zero(d), d, a.im + i);
  }
  Sequence<T> x = run_passes(*plan.convolution, a, b);
  Sequence<T> room = x.re == a.re ? b : a;
  multiply(x, plan.spectrum.data(), m);
  // Back: parts exchanged, forward, exchanged again.
  Sequence<T> y = run_passes(*plan.convolution, Sequence<T>{x.im, x.re}, Sequence<T>{room.im, room.re});
  y = {y.im, y.re};
  multiply(y, plan.chirp.data(), n);
  return y;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
