// Complex numbers as two vectors, of real and of imaginary parts.
#if defined(MICA_SIMD_PARTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_SIMD_PARTS_INL_H_
#undef MICA_SIMD_PARTS_INL_H_
#else
#define MICA_SIMD_PARTS_INL_H_
#endif

#include <hwy/highway.h>

#include <complex>

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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
// The product with each of its four products rounded, as complex_product.h has it.
template <class V>
HWY_INLINE Parts<V> operator*(Parts<V> a, Parts<V> b) {
  return {hn::Sub(hn::Mul(a.re, b.re), hn::Mul(a.im, b.im)), hn::Add(hn::Mul(a.re, b.im), hn::Mul(a.im, b.re))};
}

// One number in all lanes.
template <class D>
HWY_INLINE Parts<hn::VFromD<D>> set_parts(D d, std::complex<double> value) {
  using T = hn::TFromD<D>;
  return {hn::Set(d, static_cast<T>(value.real())), hn::Set(d, static_cast<T>(value.imag()))};
}

// Reads complex numbers whose parts lie side by side.
template <class D>
HWY_INLINE Parts<hn::VFromD<D>> load_parts(D d, const hn::TFromD<D>* from) {
  Parts<hn::VFromD<D>> p;
  hn::LoadInterleaved2(d, from, p.re, p.im);
  return p;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
