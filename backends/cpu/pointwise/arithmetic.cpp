// add, sub, mul, div, neg, reciprocal.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/pointwise/arithmetic.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/pointwise/run_loop.h"
#include "backends/cpu/pointwise/scalar_loops-inl.h"
#include "backends/cpu/simd_register.h"
#include "backends/cpu/visit_dtype.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Integer arithmetic wraps around: computed unsigned.
template <class T>
HWY_INLINE T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}
template <class T>
HWY_INLINE T wrapping_mul(T a, T b) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    using U = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}

template <class T>
struct Add {
  T operator()(T a, T b) const { return wrapping_add(a, b); }
};
template <>
struct Add<bool> {
  bool operator()(bool a, bool b) const { return a || b; }
};
template <class T>
struct AddScaled {
  T alpha;
  T operator()(T a, T b) const { return wrapping_add(a, wrapping_mul(alpha, b)); }
};
template <>
struct AddScaled<bool> {
  bool alpha;
  bool operator()(bool a, bool b) const { return a || (alpha && b); }
};
template <class T>
struct Mul {
  T operator()(T a, T b) const { return wrapping_mul(a, b); }
};
template <>
struct Mul<bool> {
  bool operator()(bool a, bool b) const { return a && b; }
};
template <class T>
struct Div {
  T operator()(T a, T b) const { return a / b; }
};
template <class T>
struct Neg {
  T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(0 - static_cast<std::make_unsigned_t<T>>(a));
    } else {
      return -a;
    }
  }
};
template <class T>
struct Reciprocal {
  T operator()(T a) const { return T(1) / a; }
};

template <template <class> class F, class T>
void run_binary(const PointwiseLoop& loop, const F<compute_t<T>>& f) {
  run_loop(loop, binary_loop<T, T, F<compute_t<T>>>, &f);
}
template <template <class> class F, class T>
void run_unary(const PointwiseLoop& loop, const F<compute_t<T>>& f) {
  run_loop(loop, unary_loop<T, T, F<compute_t<T>>>, &f);
}

void add_kernel(const PointwiseLoop& loop, Scalar alpha) {
  visit_number_bool("add", loop.dtype, [&]<class T>(Tag<T>) {
    if (alpha == Scalar(1) || alpha == Scalar(1.0) || alpha == Scalar(true)) {
      run_binary<Add, T>(loop, {});
    } else {
      run_binary<AddScaled, T>(loop, {alpha.cast<compute_t<T>>()});
    }
  });
}

void sub_kernel(const PointwiseLoop& loop, Scalar alpha) {
  add_kernel(loop, -(alpha.is_bool() ? Scalar(int64_t{alpha.to_bool()}) : alpha));
}

void mul_kernel(const PointwiseLoop& loop) {
  visit_number_bool("mul", loop.dtype, [&]<class T>(Tag<T>) { run_binary<Mul, T>(loop, {}); });
}

void div_kernel(const PointwiseLoop& loop) {
  visit_floating_complex("div", loop.dtype, [&]<class T>(Tag<T>) { run_binary<Div, T>(loop, {}); });
}

void neg_kernel(const PointwiseLoop& loop) {
  visit_number("neg", loop.dtype, [&]<class T>(Tag<T>) { run_unary<Neg, T>(loop, {}); });
}

void reciprocal_kernel(const PointwiseLoop& loop) {
  visit_floating_complex("reciprocal", loop.dtype, [&]<class T>(Tag<T>) { run_unary<Reciprocal, T>(loop, {}); });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(add_kernel);
HWY_EXPORT(sub_kernel);
HWY_EXPORT(mul_kernel);
HWY_EXPORT(div_kernel);
HWY_EXPORT(neg_kernel);
HWY_EXPORT(reciprocal_kernel);
MICA_REGISTER_SIMD(add, add_kernel);
MICA_REGISTER_SIMD(sub, sub_kernel);
MICA_REGISTER_SIMD(mul, mul_kernel);
MICA_REGISTER_SIMD(div, div_kernel);
MICA_REGISTER_SIMD(neg, neg_kernel);
MICA_REGISTER_SIMD(reciprocal, reciprocal_kernel);
}  // namespace mica::cpu
#endif
