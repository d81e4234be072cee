// Transforms of a few elements, which are vectors: real and imaginary parts, a lane for each sequence.
#if defined(MICA_FFT_BUTTERFLIES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_FFT_BUTTERFLIES_INL_H_
#undef MICA_FFT_BUTTERFLIES_INL_H_
#else
#define MICA_FFT_BUTTERFLIES_INL_H_
#endif

#include <hwy/highway.h>

#include <utility>

#include "backends/cpu/fft/short_lengths.h"
#include "backends/cpu/simd/parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

#define MICA_FFT_INLINE __attribute__((always_inline))

// Calls f(0), f(1) and so on, each argument a constant.
template <int kCount, class F>
HWY_INLINE void unrolled(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) MICA_FFT_INLINE { (f(std::integral_constant<int, I>()), ...); }
  (std::make_integer_sequence<int, kCount>());
}

// Real and imaginary parts of a sequence of vectors.
template <class T>
struct Sequence {
  T* re;
  T* im;
};

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
// a + s b.
template <class V>
HWY_INLINE Parts<V> plus_scaled(Parts<V> a, Parts<V> b, V s) {
  return {hn::MulAdd(b.re, s, a.re), hn::MulAdd(b.im, s, a.im)};
}
template <class V>
HWY_INLINE Parts<V> minus_scaled(Parts<V> a, Parts<V> b, V s) {
  return {hn::NegMulAdd(b.re, s, a.re), hn::NegMulAdd(b.im, s, a.im)};
}
// a - i b and a + i b.
template <class V>
HWY_INLINE Parts<V> minus_i_times(Parts<V> a, Parts<V> b) {
  return {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
}
template <class V>
HWY_INLINE Parts<V> plus_i_times(Parts<V> a, Parts<V> b) {
  return {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
}
// a - i s b and a + i s b.
template <class V>
HWY_INLINE Parts<V> minus_i_scaled(Parts<V> a, Parts<V> b, V s) {
  return {hn::MulAdd(b.im, s, a.re), hn::NegMulAdd(b.re, s, a.im)};
}
template <class V>
HWY_INLINE Parts<V> plus_i_scaled(Parts<V> a, Parts<V> b, V s) {
  return {hn::NegMulAdd(b.im, s, a.re), hn::MulAdd(b.re, s, a.im)};
}

template <class V>
HWY_INLINE void butterfly_4(Parts<V>& a, Parts<V>& b, Parts<V>& c, Parts<V>& d) {
  const Parts<V> s = a + c, t = a - c, u = b + d, v = b - d;
  a = s + u;
  b = minus_i_times(t, v);
  c = s - u;
  d = plus_i_times(t, v);
}

template <class D, class V>
HWY_INLINE void butterfly_8(D d, Parts<V>* x) {
  butterfly_4(x[0], x[2], x[4], x[6]);
  butterfly_4(x[1], x[3], x[5], x[7]);
  const V root = hn::Set(d, hn::TFromD<D>(0.70710678118654752440));
  const Parts<V> e0 = x[0], e1 = x[2], e2 = x[4], e3 = x[6], o0 = x[1], o2 = x[5];
  // Odd elements 1 and 3 are multiplied by the root of an eighth and of three eighths: (1 - i) and -(1 + i) times the
  // root of 1/2.
  const Parts<V> o1 = minus_i_times(x[3], x[3]), o3 = plus_i_times(x[7], x[7]);
  x[0] = e0 + o0;
  x[1] = plus_scaled(e1, o1, root);
  x[2] = minus_i_times(e2, o2);
  x[3] = minus_scaled(e3, o3, root);
  x[4] = e0 - o0;
  x[5] = minus_scaled(e1, o1, root);
  x[6] = plus_i_times(e2, o2);
  x[7] = plus_scaled(e3, o3, root);
}

// A prime: sums and differences of the elements that meet conjugate roots.
template <int kPrime, class D, class V>
HWY_INLINE void butterfly_of_prime(D d, Parts<V>* x) {
  using T = hn::TFromD<D>;
  constexpr int kHalf = kPrime / 2;
  Parts<V> sums[kHalf], rests[kHalf];
  const Parts<V> x0 = x[0];
  unrolled<kHalf>([&](auto j) MICA_FFT_INLINE {
    sums[j] = x[j + 1] + x[kPrime - 1 - j];
    rests[j] = x[j + 1] - x[kPrime - 1 - j];
    x[0] = x[0] + sums[j];
  });
  unrolled<kHalf>([&](auto row) MICA_FFT_INLINE {
    constexpr int kRow = decltype(row)::value + 1;
    Parts<V> even = x0, odd{};
    unrolled<kHalf>([&](auto m) MICA_FFT_INLINE {
      constexpr fft::Root w = fft::constant_root(kRow * (decltype(m)::value + 1), kPrime);
      const V s = hn::Set(d, static_cast<T>(-w.im));
      even = plus_scaled(even, sums[m], hn::Set(d, static_cast<T>(w.re)));
      odd = decltype(m)::value == 0 ? scaled(rests[m], s) : plus_scaled(odd, rests[m], s);
    });
    x[kRow] = minus_i_times(even, odd);
    x[kPrime - kRow] = plus_i_times(even, odd);
  });
}

// Transforms in place, forward. D is needed for constants only.
template <int kRadix, class D, class V>
HWY_INLINE void butterfly(D d, Parts<V>* x) {
  using T = hn::TFromD<D>;
  if constexpr (kRadix == 2) {
    const Parts<V> a = x[0];
    x[0] = a + x[1];
    x[1] = a - x[1];
  } else if constexpr (kRadix == 3) {
    const V half = hn::Set(d, T(0.5)), root = hn::Set(d, T(0.86602540378443864676));
    const Parts<V> sum = x[1] + x[2], rest = x[1] - x[2], mean = minus_scaled(x[0], sum, half);
    x[0] = x[0] + sum;
    x[1] = minus_i_scaled(mean, rest, root);
    x[2] = plus_i_scaled(mean, rest, root);
  } else if constexpr (kRadix == 4) {
    butterfly_4(x[0], x[1], x[2], x[3]);
  } else if constexpr (kRadix == 5) {
    const V c1 = hn::Set(d, T(0.30901699437494742410)), c2 = hn::Set(d, T(0.80901699437494742410));
    const V s1 = hn::Set(d, T(0.95105651629515357212)), ratio = hn::Set(d, T(0.61803398874989484820));
    const Parts<V> a = x[1] + x[4], b = x[2] + x[3], p = x[1] - x[4], q = x[2] - x[3];
    const Parts<V> first = minus_scaled(plus_scaled(x[0], a, c1), b, c2);
    const Parts<V> second = minus_scaled(plus_scaled(x[0], b, c1), a, c2);
    const Parts<V> turn1 = plus_scaled(p, q, ratio),
                   turn2{hn::MulSub(p.re, ratio, q.re), hn::MulSub(p.im, ratio, q.im)};
    x[0] = x[0] + a + b;
    x[1] = minus_i_scaled(first, turn1, s1);
    x[4] = plus_i_scaled(first, turn1, s1);
    x[2] = minus_i_scaled(second, turn2, s1);
    x[3] = plus_i_scaled(second, turn2, s1);
  } else if constexpr (kRadix == 8) {
    butterfly_8(d, x);
  } else {
    butterfly_of_prime<kRadix>(d, x);
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
