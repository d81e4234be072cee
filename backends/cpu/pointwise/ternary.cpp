// addcmul, addcdiv, lerp, masks.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/ternary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <complex>

#include "backends/cpu/pointwise/complex_lanes-inl.h"
#include "backends/cpu/pointwise/numbers.h"
#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_others.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// x + value * y * z and x + value * y / z.
struct AddcmulLanes {
  double value;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y, V z) const {
    return hn::MulAdd(hn::Mul(hn::Set(d, static_cast<hn::TFromD<D>>(value)), y), z, x);
  }
};
struct AddcdivLanes {
  double value;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y, V z) const {
    return hn::Add(x, hn::Div(hn::Mul(hn::Set(d, static_cast<hn::TFromD<D>>(value)), y), z));
  }
};
template <class T>
struct Addcmul {
  T value;
  T operator()(T a, T b, T c) const { return wrapping_add(a, wrapping_mul(wrapping_mul(value, b), c)); }
};
struct ComplexAddcmulLanes {
  complex128 value;
  template <class D, class V>
  HWY_INLINE Parts<V> operator()(D d, Parts<V> a, Parts<V> b, Parts<V> c) const {
    return a + set_parts(d, value) * b * c;
  }
};
struct ComplexAddcdivLanes {
  complex128 value;
  template <class D, class V>
  HWY_INLINE Parts<V> operator()(D d, Parts<V> a, Parts<V> b, Parts<V> c) const {
    return a + quotient_of(d, set_parts(d, value) * b, c);
  }
};
void addcmul_kernel(const PointwiseLoop& loop, Scalar value) {
  if (is_floating(loop.dtype))
    return run_floating<3>("addcmul_cpu_out", loop, AddcmulLanes{value.to_double()}, kMemoryGrain);
  if (run_complex<3>(loop, ComplexAddcmulLanes{value.to<complex128>()}, kMemoryGrain)) return;
  visit_integral("addcmul_cpu_out", loop.dtype,
                 [&]<class T>(Tag<T>) { run_ternary<T>(loop, Addcmul<compute_t<T>>{value.to<compute_t<T>>()}); });
}
void addcdiv_kernel(const PointwiseLoop& loop, Scalar value) {
  if (is_floating(loop.dtype))
    return run_floating<3>("addcdiv_cpu_out", loop, AddcdivLanes{value.to_double()}, kMemoryGrain);
  if (!run_complex<3>(loop, ComplexAddcdivLanes{value.to<complex128>()}, kMemoryGrain))
    unsupported_dtype("addcdiv_cpu_out", loop.dtype);
}

// Computed from whichever end is nearer, so that both ends are exact.
struct LerpLanes {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V start, V end, V weight) const {
    using T = hn::TFromD<D>;
    const V way = hn::Sub(end, start);
    const V forward = hn::MulAdd(weight, way, start);
    const V backward = hn::NegMulAdd(way, hn::Sub(hn::Set(d, T(1)), weight), end);
    return hn::IfThenElse(hn::Lt(hn::Abs(weight), hn::Set(d, T(0.5))), forward, backward);
  }
};
struct ComplexLerpLanes {
  template <class D, class V>
  HWY_INLINE Parts<V> operator()(D d, Parts<V> start, Parts<V> end, Parts<V> weight) const {
    using T = hn::TFromD<D>;
    const Parts<V> way = end - start, one{hn::Set(d, T(1)), hn::Zero(d)};
    const Parts<V> forward = start + weight * way, backward = end - way * (one - weight);
    const V square = hn::Add(hn::Mul(weight.re, weight.re), hn::Mul(weight.im, weight.im));
    const auto is_near = hn::Lt(square, hn::Set(d, T(0.25)));
    return {hn::IfThenElse(is_near, forward.re, backward.re), hn::IfThenElse(is_near, forward.im, backward.im)};
  }
};
struct LerpByNumberLanes {
  float weight;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y, V) const {
    return LerpLanes{}(d, x, y, hn::Set(d, weight));
  }
};

void lerp_kernel(const PointwiseLoop& loop) {
  if (is_short_float(loop.dtype) && is_number(loop, 3)) {
    const LerpByNumberLanes lerp{exact_number(loop, 3)};
    if (loop.dtype == DType::Float16) return run_lanes<Half, 3>(loop, lerp, kMemoryGrain);
    return run_lanes<BFloat16, 3>(loop, lerp, kMemoryGrain);
  }
  if (is_floating(loop.dtype)) return run_floating<3>("lerp_kernel_scalar", loop, LerpLanes{}, kMemoryGrain);
  if (!run_complex<3>(loop, ComplexLerpLanes{}, kMemoryGrain)) unsupported_dtype("lerp_kernel_scalar", loop.dtype);
}

// Operand 1 where operand 2, a bool, holds; zero elsewhere.
template <class T>
HWY_ATTR void masked_loop(char* const* data, const int64_t* strides, int64_t n, const void*) {
  auto* o = reinterpret_cast<T*>(data[0]);
  auto* a = reinterpret_cast<const T*>(data[1]);
  auto* mask = reinterpret_cast<const uint8_t*>(data[2]);
  if (strides[1] != 0 && strides[2] != 0) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = mask[i] ? a[i] : T(0);
    return;
  }
  const int64_t sa = strides[1] != 0, sm = strides[2] != 0;
  for (int64_t i = 0; i < n; ++i) o[i] = mask[i * sm] ? a[i * sa] : T(0);
}
void masked_kernel(const PointwiseLoop& loop) {
  switch (element_size(loop.dtypes[0])) {
    case 1:
      return run_dense(loop, masked_loop<uint8_t>);
    case 2:
      return run_dense(loop, masked_loop<uint16_t>);
    case 4:
      return run_dense(loop, masked_loop<uint32_t>);
    case 8:
      return run_dense(loop, masked_loop<uint64_t>);
    default:
      return run_dense(loop, masked_loop<complex128>);
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(addcmul)
MICA_POINTWISE_SLOT(addcdiv)
MICA_POINTWISE_SLOT(lerp)
MICA_POINTWISE_SLOT(masked)
}  // namespace mica::cpu
#endif
