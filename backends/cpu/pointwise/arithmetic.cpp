// add, sub, rsub, mul, div, neg, reciprocal.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/arithmetic.cpp"
#include <cstdlib>

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/float8.h"
#include "backends/cpu/pointwise/numbers.h"
#include "backends/cpu/pointwise/complex_lanes-inl.h"
#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/pointwise/vector_loops-inl.h"
#include "backends/cpu/pointwise/visit_words.h"
#include "mica/core/scalar.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

MICA_LANES_2(AddLanes, hn::Add(x, y))
MICA_LANES_2(SubLanes, hn::Sub(x, y))
MICA_LANES_2(MulLanes, hn::Mul(x, y))
MICA_LANES_2(DivLanes, hn::Div(x, y))
template <>
inline constexpr bool keeps_values<AddLanes> = true;
template <>
inline constexpr bool keeps_values<SubLanes> = true;
template <>
inline constexpr bool keeps_values<MulLanes> = true;
template <>
inline constexpr bool keeps_values<DivLanes> = true;
MICA_LANES_1(NegLanes, hn::Neg(x))
MICA_LANES_1(ReciprocalLanes, hn::Div(hn::Set(d, T(1)), x))

// x + alpha y
struct AddScaledLanes {
  double alpha;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    return hn::MulAdd(hn::Set(d, static_cast<hn::TFromD<D>>(alpha)), y, x);
  }
};
// y - alpha x
struct SubScaledFromLanes {
  double alpha;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    return hn::NegMulAdd(hn::Set(d, static_cast<hn::TFromD<D>>(alpha)), x, y);
  }
};

template <class T>
struct Add {
  T operator()(T a, T b) const { return wrapping_add(a, b); }
};
template <class T>
struct AddScaled {
  T alpha;
  T operator()(T a, T b) const { return wrapping_add(a, wrapping_mul(alpha, b)); }
};
template <class T>
struct SubScaledFrom {
  T alpha;
  T operator()(T a, T b) const { return wrapping_add(b, wrapping_neg(wrapping_mul(alpha, a))); }
};
template <class T>
struct Mul {
  T operator()(T a, T b) const { return wrapping_mul(a, b); }
};
template <class T>
struct Neg {
  T operator()(T a) const { return wrapping_neg(a); }
};
struct ComplexAddScaledLanes {
  complex128 alpha;
  template <class D, class V>
  HWY_INLINE Parts<V> operator()(D d, Parts<V> a, Parts<V> b) const {
    return a + set_parts(d, alpha) * b;
  }
};
struct ComplexSubScaledFromLanes {
  complex128 alpha;
  template <class D, class V>
  HWY_INLINE Parts<V> operator()(D d, Parts<V> a, Parts<V> b) const {
    return b - set_parts(d, alpha) * a;
  }
};
struct ComplexReciprocalLanes {
  template <class D, class V>
  HWY_INLINE Parts<V> operator()(D d, Parts<V> z) const {
    return reciprocal_of(d, z);
  }
};
struct ComplexDivLanes {
  template <class D, class V>
  HWY_INLINE Parts<V> operator()(D d, Parts<V> a, Parts<V> b) const {
    return quotient_of(d, a, b);
  }
};
struct And {
  bool operator()(bool a, bool b) const { return a & b; }
};
struct Or {
  bool operator()(bool a, bool b) const { return a | b; }
};
struct First {
  bool operator()(bool a, bool) const { return a; }
};

bool is_one(const Scalar& s) { return s == Scalar(1) || s == Scalar(true); }

// x + alpha y of 16-bit floats: as in torch, the factor and the product are rounded to 16 bits too.
template <class Format>
struct AddScaledShortLanes {
  float alpha;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    const V factor = rounded(d, hn::Set(d, alpha));
    return hn::Add(x, rounded(d, hn::Mul(factor, y)));
  }
  template <class D, class V>
  static HWY_INLINE V rounded(D d, V v) {
    return Format::to_float(d, Format::from_float(d, v));
  }
};

void add_scaled(const PointwiseLoop& loop, const Scalar& alpha) {
  if (loop.dtype == DType::Float16)
    return run_lanes<Half, 2>(loop, AddScaledShortLanes<HalfBits>{alpha.to<float>()}, kMemoryGrain);
  if (loop.dtype == DType::BFloat16)
    return run_lanes<BFloat16, 2>(loop, AddScaledShortLanes<BFloat16Bits>{alpha.to<float>()}, kMemoryGrain);
  if (is_floating(loop.dtype))
    return run_floating<2>("add_stub", loop, AddScaledLanes{alpha.to_double()}, kMemoryGrain);
  if (run_complex<2>(loop, ComplexAddScaledLanes{alpha.cast<complex128>()}, kMemoryGrain)) return;
  visit_words_complex("add_stub", loop.dtype, [&]<class T>(Tag<T>) {
    run_binary<T>(loop, AddScaled<compute_t<T>>{alpha.cast<compute_t<T>>()});
  });
}

void add_kernel(const PointwiseLoop& loop, Scalar alpha) {
  if (loop.dtype == DType::Bool)
    return alpha.to_bool() ? run_binary<bool>(loop, Or{}) : run_binary<bool>(loop, First{});
  if (!is_one(alpha)) return add_scaled(loop, alpha);
  if (is_floating(loop.dtype)) return run_floating<2>("add_stub", loop, AddLanes{}, kMemoryGrain);
  visit_words_complex("add_stub", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, Add<compute_t<T>>{}); });
}

void sub_kernel(const PointwiseLoop& loop, Scalar alpha) {
  if (is_one(alpha) && is_floating(loop.dtype)) return run_floating<2>("sub_stub", loop, SubLanes{}, kMemoryGrain);
  add_scaled(loop, -alpha);
}

void rsub_kernel(const PointwiseLoop& loop, Scalar alpha) {
  if (is_floating(loop.dtype))
    return run_floating<2>("sub_stub", loop, SubScaledFromLanes{alpha.to_double()}, kMemoryGrain);
  if (run_complex<2>(loop, ComplexSubScaledFromLanes{alpha.cast<complex128>()}, kMemoryGrain)) return;
  visit_words_complex("sub_stub", loop.dtype, [&]<class T>(Tag<T>) {
    run_binary<T>(loop, SubScaledFrom<compute_t<T>>{alpha.cast<compute_t<T>>()});
  });
}

// Products and quotients of 16-bit floats and a number. As in torch, the number is not rounded to 16 bits first.
struct TimesNumberLanes {
  float number;
  bool second;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V y) const {
    return hn::Mul(second ? x : y, hn::Set(d, number));
  }
};
struct OverNumberLanes {
  float number;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x, V) const {
    return hn::Div(x, hn::Set(d, number));
  }
};
struct NumberOverLanes {
  float number;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V, V y) const {
    return hn::Div(hn::Set(d, number), y);
  }
};

template <class F>
void run_short(const PointwiseLoop& loop, const F& f) {
  if (loop.dtype == DType::Float16) return run_lanes<Half, 2>(loop, f, kMemoryGrain);
  run_lanes<BFloat16, 2>(loop, f, kMemoryGrain);
}

void mul_kernel(const PointwiseLoop& loop) {
  if (is_float8(loop.dtype)) {
    if (is_constant(loop, 2)) unsupported_dtype("mul_cpu_reduced_float", loop.dtype);
    return visit_float8("mul_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, Mul<float>{}); });
  }
  for (int k : {1, 2})
    if (is_short_float(loop.dtype) && is_number(loop, k))
      return run_short(loop, TimesNumberLanes{exact_number(loop, k), k == 2});
  if (is_floating(loop.dtype)) return run_floating<2>("mul_cpu", loop, MulLanes{}, kMemoryGrain);
  if (loop.dtype == DType::Bool) return run_binary<bool>(loop, And{});
  visit_words_complex("mul_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_binary<T>(loop, Mul<compute_t<T>>{}); });
}

#if HWY_ARCH_ARM_A64
// The divider takes as long for two doubles in a vector as for one after the other, so doubles that lie apart are best
// divided where they are: a gather before the division would not run beside it. (On x86-64 a vector's quotients take
// less time.)
bool are_doubles_apart(const PointwiseLoop& loop) {
  bool apart = false;
  for (int k = 0; k < loop.noperands && loop.ndim > 0; ++k) {
    const int64_t stride = std::abs(loop.strides[0][k]);
    if (loop.dtypes[k] != DType::Float64 || stride > 64) return false;
    apart |= stride > 8;
  }
  return apart;
}
void divide_doubles(char* const* data, const int64_t* strides, int64_t n, const void*) {
  char* out = data[0];
  const char *a = data[1], *b = data[2];
  for (int64_t i = 0; i < n; ++i, out += strides[0], a += strides[1], b += strides[2])
    *reinterpret_cast<double*>(out) = *reinterpret_cast<const double*>(a) / *reinterpret_cast<const double*>(b);
}
#endif

void div_kernel(const PointwiseLoop& loop) {
#if HWY_ARCH_ARM_A64
  if (loop.dtype == DType::Float64 && are_doubles_apart(loop)) return run_loop(loop, divide_doubles);
#endif
  if (is_short_float(loop.dtype)) {
    if (is_number(loop, 2)) return run_short(loop, OverNumberLanes{exact_number(loop, 2)});
    if (is_number(loop, 1)) return run_short(loop, NumberOverLanes{exact_number(loop, 1)});
  }
  // The divider is slower than memory.
  const int64_t grain = loop.dtype == DType::Float64 ? kHeavyGrain : kMemoryGrain;
  if (is_floating(loop.dtype)) return run_floating<2>("div_cpu", loop, DivLanes{}, grain);
  if (!run_complex<2>(loop, ComplexDivLanes{}, kMemoryGrain)) unsupported_dtype("div_cpu", loop.dtype);
}

// Works on the bits of short floats: nothing is converted to change a sign.
MICA_LANES_1(NegBitsLanes, hn::Xor(x, hn::Set(d, T(0x8000))))
void neg_kernel(const PointwiseLoop& loop) {
  if (loop.dtype == DType::BFloat16 || loop.dtype == DType::Float16)
    return run_lanes<uint16_t, 1>(loop, NegBitsLanes{}, kMemoryGrain);
  if (is_floating(loop.dtype)) return run_floating<1>("neg_cpu", loop, NegLanes{}, kMemoryGrain);
  visit_words_complex("neg_cpu", loop.dtype, [&]<class T>(Tag<T>) { run_unary<T>(loop, Neg<compute_t<T>>{}); });
}

void reciprocal_kernel(const PointwiseLoop& loop) {
  const int64_t grain = loop.dtype == DType::Float64 ? kHeavyGrain : kMemoryGrain;
  if (is_floating(loop.dtype)) return run_floating<1>("reciprocal_cpu", loop, ReciprocalLanes{}, grain);
  if (!run_complex<1>(loop, ComplexReciprocalLanes{}, kMemoryGrain)) unsupported_dtype("reciprocal_cpu", loop.dtype);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
MICA_POINTWISE_SLOT(add)
MICA_POINTWISE_SLOT(sub)
MICA_POINTWISE_SLOT(rsub)
MICA_POINTWISE_SLOT(mul)
MICA_POINTWISE_SLOT(div)
MICA_POINTWISE_SLOT(neg)
MICA_POINTWISE_SLOT(reciprocal)
}  // namespace mica::cpu
#endif
