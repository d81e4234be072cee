// Transforms of sequences whose elements lie side by side, one after the other.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/fft/dense.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "backends/cpu/fft/dense.h"
#include "backends/cpu/fft/pairs.h"
#include "backends/cpu/fft/two_step-inl.h"
#include "backends/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The count, rounded up so that what follows is aligned to a cache line.
inline int64_t rounded(int64_t count) { return (count + 31) / 16 * 16; }

// x[k] = x[k] * by[k] * factor for pairs; conjugated where asked, before or after the product.
template <class T>
void multiply_pairs(const T* x, const T* by, T* to, int64_t count, bool conjugate_in, bool conjugate_out, T scale) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const T sign_in = conjugate_in ? T(-1) : T(1), re_scale = scale, im_scale = conjugate_out ? -scale : scale;
  const V sign = hn::Set(d, sign_in), re_factor = hn::Set(d, re_scale), im_factor = hn::Set(d, im_scale);
  int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    Parts<V> v, w;
    hn::LoadInterleaved2(d, x + 2 * k, v.re, v.im);
    hn::LoadInterleaved2(d, by + 2 * k, w.re, w.im);
    v.im = hn::Mul(v.im, sign);
    v = times(v, w);
    hn::StoreInterleaved2(hn::Mul(v.re, re_factor), hn::Mul(v.im, im_factor), d, to + 2 * k);
  }
  for (; k < count; ++k) {
    const T re = x[2 * k], im = x[2 * k + 1] * sign_in, c = by[2 * k], s = by[2 * k + 1];
    to[2 * k] = (re * c - im * s) * re_scale;
    to[2 * k + 1] = (re * s + im * c) * im_scale;
  }
}

template <class T>
int64_t dense_room(const fft::DensePlan<T>& plan) {
  return two_step_room(plan.steps) + (plan.factor.length ? rounded(2 * plan.steps.length) : 0);
}

template <class T>
void run_rader(const fft::DensePlan<T>& plan, const T* in, T* out, bool backward, T scale, T* room) {
  const int64_t p = plan.length, m = plan.steps.length;
  const int32_t *const from = plan.factor.from.data(), *const to = plan.factor.to.data();
  T *const x = room, *const rest = room + rounded(2 * m);
  const T first_re = in[0], first_im = in[1];
  for (int64_t k = 0; k < m; ++k) std::memcpy(x + 2 * k, in + 2 * from[k], 2 * sizeof(T));
  run_two_step<T>(plan.steps, x, nullptr, x, false, T(1), rest);
  const T sum_re = first_re + x[0], sum_im = first_im + x[1];
  multiply_pairs(x, plan.factor.spectrum.data(), x, m, false, false, T(1));
  x[0] += first_re;  // adds it to every element of the transform back
  x[1] += first_im;
  run_two_step<T>(plan.steps, x, nullptr, x, true, scale, rest);
  out[0] = sum_re * scale;
  out[1] = sum_im * scale;
  // Backward, all elements but the first come in the opposite order.
  if (backward) {
    for (int64_t k = 0; k < m; ++k) std::memcpy(out + 2 * (p - to[k]), x + 2 * k, 2 * sizeof(T));
  } else {
    for (int64_t k = 0; k < m; ++k) std::memcpy(out + 2 * to[k], x + 2 * k, 2 * sizeof(T));
  }
}

template <class T>
void run_bluestein(const fft::DensePlan<T>& plan, const T* in, T* out, bool backward, T scale, T* room) {
  const int64_t n = plan.length, m = plan.steps.length;
  T *const x = room, *const rest = room + rounded(2 * m);
  // A backward transform is the conjugate of the transform of the conjugate.
  multiply_pairs(in, plan.factor.chirp.data(), x, n, backward, false, T(1));
  std::fill(x + 2 * n, x + 2 * m, T(0));
  run_two_step<T>(plan.steps, x, nullptr, x, false, T(1), rest);
  multiply_pairs(x, plan.factor.spectrum.data(), x, m, false, false, T(1));
  run_two_step<T>(plan.steps, x, nullptr, x, true, T(1), rest);
  multiply_pairs(x, plan.factor.chirp.data(), out, n, false, backward, scale);
}

template <class T>
void run_complex(const fft::DensePlan<T>& plan, const T* in, const T* next, T* out, bool backward, T scale, T* room) {
  if (plan.factor.length == 0) return run_two_step<T>(plan.steps, in, next, out, backward, scale, room);
  if (!plan.factor.from.empty()) return run_rader(plan, in, out, backward, scale, room);
  run_bluestein(plan, in, out, backward, scale, room);
}

// The spectrum of an even number of reals from that of pairs of them as complex numbers, z: with h half the length,
// X[k] = (z[k] + conj z[h - k]) / 2 - i w^k (z[k] - conj z[h - k]) / 2.
template <class T>
void unfold_pairs(const T* z, T* x, int64_t half, const T* roots) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V point_five = hn::Set(d, T(0.5));
  int64_t k = 1;
  // Both sides grow towards the middle and must not meet within a vector.
  for (; 2 * (k + lanes) <= half; k += lanes) {
    const int64_t mirror = half - k - lanes + 1;
    Parts<V> a, b, w;
    hn::LoadInterleaved2(d, z + 2 * k, a.re, a.im);
    hn::LoadInterleaved2(d, z + 2 * mirror, b.re, b.im);
    hn::LoadInterleaved2(d, roots + 2 * k, w.re, w.im);
    b = {hn::Reverse(d, b.re), hn::Neg(hn::Reverse(d, b.im))};
    const Parts<V> even = scaled(a + b, point_five), turned = times(scaled(by_minus_i(a - b), point_five), w);
    const Parts<V> low = even + turned, high = even - turned;
    hn::StoreInterleaved2(low.re, low.im, d, x + 2 * k);
    hn::StoreInterleaved2(hn::Reverse(d, high.re), hn::Neg(hn::Reverse(d, high.im)), d, x + 2 * mirror);
  }
  for (; 2 * k <= half; ++k) {
    const int64_t mirror = half - k;
    const auto bins = fft::unfolded(z[2 * k], z[2 * k + 1], z[2 * mirror], z[2 * mirror + 1], roots + 2 * k);
    x[2 * k] = bins.re;
    x[2 * k + 1] = bins.im;
    x[2 * mirror] = bins.mirror_re;
    x[2 * mirror + 1] = bins.mirror_im;
  }
  const T re = z[0], im = z[1];
  x[0] = re + im;
  x[1] = 0;
  x[2 * half] = re - im;
  x[2 * half + 1] = 0;
}

// The other way: z[k] = (x[k] + conj x[h - k]) + i conj(w^k) (x[k] - conj x[h - k]), twice what unfold_pairs takes.
template <class T>
void fold_pairs(const T* x, T* z, int64_t half, const T* roots) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t k = 1;
  for (; 2 * (k + lanes) <= half; k += lanes) {
    const int64_t mirror = half - k - lanes + 1;
    Parts<V> a, b, w;
    hn::LoadInterleaved2(d, x + 2 * k, a.re, a.im);
    hn::LoadInterleaved2(d, x + 2 * mirror, b.re, b.im);
    hn::LoadInterleaved2(d, roots + 2 * k, w.re, w.im);
    b = {hn::Reverse(d, b.re), hn::Neg(hn::Reverse(d, b.im))};
    w.im = hn::Neg(w.im);
    const Parts<V> even = a + b, turned = times(a - b, w), odd{hn::Neg(turned.im), turned.re};
    const Parts<V> low = even + odd, high = even - odd;
    hn::StoreInterleaved2(low.re, low.im, d, z + 2 * k);
    hn::StoreInterleaved2(hn::Reverse(d, high.re), hn::Neg(hn::Reverse(d, high.im)), d, z + 2 * mirror);
  }
  for (; 2 * k <= half; ++k) {
    const int64_t mirror = half - k;
    const auto bins = fft::folded(x[2 * k], x[2 * k + 1], x[2 * mirror], x[2 * mirror + 1], roots + 2 * k);
    z[2 * k] = bins.re;
    z[2 * k + 1] = bins.im;
    z[2 * mirror] = bins.mirror_re;
    z[2 * mirror + 1] = bins.mirror_im;
  }
  const T first = x[0], last = x[2 * half];  // imaginary parts have no meaning there
  z[0] = first + last;
  z[1] = first - last;
}

// The second half of the spectrum of n reals, pairs: conjugates of the first, in the opposite order.
template <class T>
void mirror_pairs(T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), last = (n - 1) / 2;
  int64_t k = 1;
  for (; k + lanes - 1 <= last; k += lanes) {
    Parts<V> a;
    hn::LoadInterleaved2(d, x + 2 * k, a.re, a.im);
    hn::StoreInterleaved2(hn::Reverse(d, a.re), hn::Neg(hn::Reverse(d, a.im)), d, x + 2 * (n - k - lanes + 1));
  }
  for (; k <= last; ++k) {
    x[2 * (n - k)] = x[2 * k];
    x[2 * (n - k) + 1] = -x[2 * k + 1];
  }
}

template <class T>
void run_dense_batch(const fft::DensePlan<T>& plan, const T* roots, const fft::Batch<T>& batch, int64_t first,
                     int64_t last) {
  using fft::Kind;
  const int64_t n = batch.length, half = n / 2, between = batch.kind == Kind::Complex ? 0 : rounded(2 * n);
  const Scratch<T> scratch(dense_room(plan) + between);
  T *const room = scratch.data() + between, *const z = scratch.data();
  for (int64_t t = first; t < last; ++t) {
    const T* const in = batch.in + batch.in_offsets[t];
    T* const out = batch.out + batch.out_offsets[t];
    const T* const next = t + 1 < last ? batch.in + batch.in_offsets[t + 1] : nullptr;
    if (batch.kind == Kind::Complex) {
      run_complex(plan, in, next, out, batch.backward, batch.scale, room);
    } else if (batch.kind == Kind::FromReal && batch.halved()) {
      run_complex(plan, in, next, z, false, batch.scale, room);
      unfold_pairs(z, out, half, roots);
      if (batch.whole) mirror_pairs(out, n);
    } else if (batch.kind == Kind::FromReal) {
      for (int64_t k = 0; k < n; ++k) {
        z[2 * k] = in[k];
        z[2 * k + 1] = 0;
      }
      run_complex<T>(plan, z, nullptr, z, false, batch.scale, room);
      z[1] = 0;  // a convolution gives it only approximately
      std::copy(z, z + 2 * (half + 1), out);
      if (batch.whole) mirror_pairs(out, n);
    } else if (batch.halved()) {
      fold_pairs(in, z, half, roots);
      run_complex(plan, z, next, out, true, batch.scale, room);
    } else {
      z[0] = in[0];
      z[1] = 0;
      for (int64_t k = 1; k <= half; ++k) {
        z[2 * k] = z[2 * (n - k)] = in[2 * k];
        z[2 * k + 1] = in[2 * k + 1];
        z[2 * (n - k) + 1] = -in[2 * k + 1];
      }
      run_complex<T>(plan, z, nullptr, z, true, batch.scale, room);
      for (int64_t k = 0; k < n; ++k) out[k] = z[2 * k];
    }
  }
}

void dense_float32(const fft::DensePlan<float>& plan, const float* roots, const fft::Batch<float>& batch, int64_t first,
                   int64_t last) {
  run_dense_batch(plan, roots, batch, first, last);
}
void dense_float64(const fft::DensePlan<double>& plan, const double* roots, const fft::Batch<double>& batch,
                   int64_t first, int64_t last) {
  run_dense_batch(plan, roots, batch, first, last);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(dense_float32);
HWY_EXPORT(dense_float64);

namespace fft {
void run_dense(const DensePlan<float>& plan, const float* roots, const Batch<float>& batch, int64_t first,
               int64_t last) {
  HWY_DYNAMIC_DISPATCH(dense_float32)(plan, roots, batch, first, last);
}
void run_dense(const DensePlan<double>& plan, const double* roots, const Batch<double>& batch, int64_t first,
               int64_t last) {
  HWY_DYNAMIC_DISPATCH(dense_float64)(plan, roots, batch, first, last);
}
}  // namespace fft
}  // namespace mica::cpu
#endif
