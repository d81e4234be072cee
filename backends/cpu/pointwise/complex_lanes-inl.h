// Inner loops over complex numbers as two vectors, of real and of imaginary parts. Included once per Highway target.
#if defined(MICA_COMPLEX_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_COMPLEX_LANES_INL_H_
#undef MICA_COMPLEX_LANES_INL_H_
#else
#define MICA_COMPLEX_LANES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>
#include <utility>

#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/simd/parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The quotient with the larger part of the divisor divided out first. What is divided by zero becomes infinite part by
// part, as in torch and NumPy.
template <class D, class V>
HWY_INLINE Parts<V> quotient_of(D d, Parts<V> n, Parts<V> v) {
  const V zero = hn::Zero(d);
  const auto by_real = hn::Ge(hn::Abs(v.re), hn::Abs(v.im));
  const V larger = hn::IfThenElse(by_real, v.re, v.im), smaller = hn::IfThenElse(by_real, v.im, v.re);
  const V ratio = hn::Div(smaller, larger);
  const V scale = hn::Div(hn::Set(d, hn::TFromD<D>(1)), hn::Add(larger, hn::Mul(smaller, ratio)));
  const V a = hn::Mul(n.re, ratio), b = hn::Mul(n.im, ratio);
  const V re = hn::IfThenElse(by_real, hn::Add(n.re, b), hn::Add(a, n.im));
  const V im = hn::IfThenElse(by_real, hn::Sub(n.im, a), hn::Sub(b, n.re));
  const Parts<V> quotient{hn::Mul(re, scale), hn::Mul(im, scale)};
  const auto by_zero = hn::And(hn::Eq(v.re, zero), hn::Eq(v.im, zero));
  if (hn::AllFalse(d, by_zero)) [[likely]]
    return quotient;
  return {hn::IfThenElse(by_zero, hn::Div(n.re, zero), quotient.re),
          hn::IfThenElse(by_zero, hn::Div(n.im, zero), quotient.im)};
}

template <class D, class V>
HWY_INLINE Parts<V> reciprocal_of(D d, Parts<V> z) {
  return quotient_of(d, Parts<V>{hn::Set(d, hn::TFromD<D>(1)), hn::Zero(d)}, z);
}

template <class R>
struct PartsLoop {
  using D = hn::ScalableTag<R>;
  using V = hn::VFromD<D>;
  static HWY_INLINE Parts<V> load(const R* from) { return load_parts(D(), from); }
  static HWY_INLINE void store(Parts<V> p, R* to) { hn::StoreInterleaved2(p.re, p.im, D(), to); }
  static HWY_INLINE void store(V v, R* to) { hn::StoreU(v, D(), to); }
};

// f(d, parts of each input...) returns the parts of the result, or for real results (kResult 1) one vector. The last
// elements of a row go through the same vectors as all, so that the bits of an element do not depend on where it lies.
template <class R, int kResult, class F, size_t... k>
HWY_INLINE void parts_rows(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides,
                           int64_t rows, const F& f, std::index_sequence<k...>) {
  using Loop = PartsLoop<R>;
  constexpr size_t kInputs = sizeof...(k);
  const typename Loop::D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN R copies[kInputs][2 * hn::MaxLanes(d)] = {}, results[kResult * hn::MaxLanes(d)];
  char* to = data[0];
  const char* from[kInputs] = {data[k + 1]...};
  for (; rows > 0; --rows, to += row_strides[0], ((from[k] += row_strides[k + 1]), ...)) {
    R* o = reinterpret_cast<R*>(to);
    const R* inputs[kInputs] = {reinterpret_cast<const R*>(from[k])...};
    int64_t step[kInputs] = {(strides[k + 1] == 0 ? 0 : 2)...};
    const auto repeat = [&](size_t input) HWY_ATTR {  // one number for all
      if (step[input] != 0) return;
      const R re = inputs[input][0], im = inputs[input][1];
      for (int64_t i = 0; i < lanes; ++i) copies[input][2 * i] = re, copies[input][2 * i + 1] = im;
      inputs[input] = copies[input];
    };
    (repeat(k), ...);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) Loop::store(f(d, Loop::load(inputs[k] + i * step[k])...), o + i * kResult);
    if (i == n) continue;
    const auto left = static_cast<size_t>(n - i);
    ((step[k] != 0 ? void(std::memcpy(copies[k], inputs[k] + i * 2, left * 2 * sizeof(R))) : void()), ...);
    Loop::store(f(d, Loop::load(copies[k])...), results);
    std::memcpy(o + i * kResult, results, left * static_cast<size_t>(kResult) * sizeof(R));
  }
}
template <class R, int kResult, int kInputs, class F>
HWY_ATTR void parts_loop(char* const* data, const int64_t* strides, int64_t n, const int64_t* row_strides, int64_t rows,
                         const void* context) {
  parts_rows<R, kResult>(data, strides, n, row_strides, rows, *static_cast<const F*>(context),
                         std::make_index_sequence<kInputs>());
}
template <class R, int kResult, int kInputs, class F>
void run_parts(const PointwiseLoop& loop, const F& f, int64_t grain) {
  run_dense(loop, parts_loop<R, kResult, kInputs, F>, &f, grain);
}

// The same for both complex dtypes, with complex results.
template <int kInputs, class F>
bool run_complex(const PointwiseLoop& loop, const F& f, int64_t grain) {
  if (loop.dtype == DType::Complex64) return run_parts<float, 2, kInputs>(loop, f, grain), true;
  if (loop.dtype == DType::Complex128) return run_parts<double, 2, kInputs>(loop, f, grain), true;
  return false;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
