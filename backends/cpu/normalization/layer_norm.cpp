// layer_norm and rms_norm, forward. Rows of `count` elements; parameters may be of float32 beside 16-bit inputs.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/normalization/layer_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "backends/cpu/reduce/moments-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/softmax/layout.h"
#include "backends/cpu/normalization/parameters-inl.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// out = (x - mean) rstd weight + bias, where null parameters are one and zero. The row after x is fetched meanwhile.
template <bool kWeight, bool kBias, class C>
HWY_INLINE void normalize_run(const C* x, int64_t n, C mean, C rstd, const C* weight, const C* bias, C* out) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vmean = hn::Set(d, mean), vrstd = hn::Set(d, rstd);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    __builtin_prefetch(x + n + i);
    auto v = hn::Mul(hn::Sub(hn::LoadU(d, x + i), vmean), vrstd);
    if constexpr (kWeight && kBias) {
      v = hn::MulAdd(v, hn::LoadU(d, weight + i), hn::LoadU(d, bias + i));
    } else if constexpr (kWeight) {
      v = hn::Mul(v, hn::LoadU(d, weight + i));
    } else if constexpr (kBias) {
      v = hn::Add(v, hn::LoadU(d, bias + i));
    }
    hn::StoreU(v, d, out + i);
  }
  for (; i < n; ++i) {
    C v = (x[i] - mean) * rstd;
    if constexpr (kWeight) v *= weight[i];
    if constexpr (kBias) v += bias[i];
    out[i] = v;
  }
}

template <class C>
HWY_INLINE void normalize_row(const C* x, int64_t n, C mean, C rstd, const C* weight, const C* bias, C* out) {
  if (weight && bias) return normalize_run<true, true>(x, n, mean, rstd, weight, bias, out);
  if (weight) return normalize_run<true, false>(x, n, mean, rstd, weight, bias, out);
  if (bias) return normalize_run<false, true>(x, n, mean, rstd, weight, bias, out);
  normalize_run<false, false>(x, n, mean, rstd, weight, bias, out);
}

void layer_norm_kernel(const TensorView& out, const TensorView& mean, const TensorView& rstd, const TensorView& input,
                       const TensorView& weight, const TensorView& bias, int64_t count, double eps) {
  visit_floating("LayerNormKernelImpl", input.dtype, [&]<class T>(Tag<T>) {
    using C = Computed<T>;
    const int64_t rows = count ? input.numel / count : mean.numel;
    const Parameter<C> w(weight), b(bias);
    parallel_for(0, rows, std::max<int64_t>(1, kSoftmaxGrain / std::max<int64_t>(count, 1)),
                 [&](int64_t begin, int64_t end) {
                   const auto in_buffer = row_buffer<T>(count), out_buffer = row_buffer<T>(count);
                   for (int64_t r = begin; r < end; ++r) {
                     const C* x = open_row(input.ptr<T>() + r * count, count, in_buffer.get());
                     Moments moments{0, 0, 0};
                     add_run(moments, x, count);
                     const double scale = 1 / std::sqrt(moments.squares / static_cast<double>(count) + eps);
                     put_statistic(mean, r, moments.mean);
                     put_statistic(rstd, r, scale);
                     C* y = result_row(out.ptr<T>() + r * count, out_buffer.get());
                     normalize_row(x, count, static_cast<C>(moments.mean), static_cast<C>(scale), w.data, b.data, y);
                     close_row(y, count, out.ptr<T>() + r * count);
                   }
                 });
  });
}

template <class C>
HWY_INLINE double mean_square(const C* x, int64_t n) {
  const Doubles d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  DoubleVector s0 = hn::Zero(d), s1 = s0;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const DoubleVector a = load_wide(x + i), b = load_wide(x + i + lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
  }
  for (; i < n; i += lanes) {
    const DoubleVector a = load_wide_first(x + i, std::min(lanes, n - i));
    s0 = hn::MulAdd(a, a, s0);
  }
  return sum_lanes(hn::Add(s0, s1)) / static_cast<double>(n);
}

void rms_norm_kernel(const TensorView& out, const TensorView& rstd, const TensorView& input, const TensorView& weight,
                     int64_t count, double eps) {
  visit_floating("rms_norm", input.dtype, [&]<class T>(Tag<T>) {
    using C = Computed<T>;
    const int64_t rows = count ? input.numel / count : rstd.numel;
    const Parameter<C> w(weight);
    parallel_for(0, rows, std::max<int64_t>(1, kSoftmaxGrain / std::max<int64_t>(count, 1)),
                 [&](int64_t begin, int64_t end) {
                   const auto in_buffer = row_buffer<T>(count), out_buffer = row_buffer<T>(count);
                   for (int64_t r = begin; r < end; ++r) {
                     const C* x = open_row(input.ptr<T>() + r * count, count, in_buffer.get());
                     const double scale = 1 / std::sqrt(mean_square(x, count) + eps);
                     put_statistic(rstd, r, scale);
                     C* y = result_row(out.ptr<T>() + r * count, out_buffer.get());
                     normalize_row<C>(x, count, 0, static_cast<C>(scale), w.data, nullptr, y);
                     close_row(y, count, out.ptr<T>() + r * count);
                   }
                 });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(layer_norm_kernel);
HWY_EXPORT(rms_norm_kernel);
MICA_REGISTER_SIMD(layer_norm, layer_norm_kernel);
MICA_REGISTER_SIMD(rms_norm, rms_norm_kernel);
}  // namespace mica::cpu
#endif
