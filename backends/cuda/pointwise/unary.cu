// Functions of one number.
#include "backends/cuda/complex_functions.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise/define.cuh"

namespace mica::cuda {

// A functor whose body sees `x`, of the type that T is computed in.
#define MICA_FUNCTOR_1(Name, ...)                         \
  template <class T>                                      \
  struct Name {                                           \
    __device__ auto operator()(T x) const { __VA_ARGS__ } \
  };
// ... and the kernel of its slot. Functions of complex numbers are long, so they have one loop.
#define MICA_UNARY(slot, Name, visit, ...)               \
  namespace {                                            \
  MICA_FUNCTOR_1(Name, __VA_ARGS__)                      \
  }                                                      \
  void slot(const PointwiseLoop& loop) {                 \
    visit(#slot, loop.dtype, [&]<class T>(Tag<T>) {      \
      if constexpr (is_complex_v<T>) {                   \
        run_rare<T, T>(loop, Name<T>{});                 \
      } else {                                           \
        run_pointwise<T, T>(loop, Name<compute_t<T>>{}); \
      }                                                  \
    });                                                  \
  }
// Real numbers through the CUDA library, complex ones through Thrust.
#define MICA_MATH(how, slot, Name)          \
  how(slot, Name, visit_floating_complex, { \
    if constexpr (is_complex_v<T>) {        \
      return complex_functions::slot(x);    \
    } else {                                \
      return ::slot(x);                     \
    }                                       \
  })

MICA_MATH(MICA_UNARY, exp, Exp)
MICA_MATH(MICA_UNARY, log, Log)
MICA_MATH(MICA_UNARY, sin, Sin)
MICA_MATH(MICA_UNARY, cos, Cos)
MICA_MATH(MICA_RARE_1, tan, Tan)
MICA_MATH(MICA_RARE_1, sinh, Sinh)
MICA_MATH(MICA_RARE_1, cosh, Cosh)
MICA_MATH(MICA_UNARY, tanh, Tanh)
MICA_MATH(MICA_UNARY, sqrt, Sqrt)
MICA_UNARY(rsqrt, Rsqrt, visit_floating_complex, {
  if constexpr (is_complex_v<T>) {
    return T(1) / complex_functions::sqrt(x);
  } else {
    return ::rsqrt(x);
  }
})
MICA_UNARY(exp2, Exp2, visit_floating_complex, {
  if constexpr (is_complex_v<T>) {
    return complex_functions::exp(x * T(static_cast<typename T::value_type>(0.69314718055994530942)));
  } else {
    return ::exp2(x);
  }
})
MICA_UNARY(expm1, Expm1, visit_floating_complex, {
  if constexpr (is_complex_v<T>) {
    const auto half = ::sin(x.imag() / 2);
    return T(::expm1(x.real()) * ::cos(x.imag()) - 2 * half * half, ::exp(x.real()) * ::sin(x.imag()));
  } else {
    return ::expm1(x);
  }
})
MICA_UNARY(log1p, Log1p, visit_floating_complex, {
  if constexpr (is_complex_v<T>) {
    const auto a = x.real(), b = x.imag();
    const bool near = ::fabs(a) < 0.5 && ::fabs(b) < 0.5;
    const auto size = near ? ::log1p(a * (a + 2) + b * b) / 2 : ::log(::hypot(a + 1, b));
    return T(size, ::atan2(b, a + 1));
  } else {
    return ::log1p(x);
  }
})
MICA_UNARY(log2, Log2, visit_floating_complex, {
  if constexpr (is_complex_v<T>) {
    return complex_functions::log(x) * T(static_cast<typename T::value_type>(1.44269504088896340736));
  } else {
    return ::log2(x);
  }
})
MICA_RARE_1(log10, Log10, visit_floating_complex, {
  if constexpr (is_complex_v<T>) {
    return complex_functions::log10(x);
  } else {
    return ::log10(x);
  }
})
MICA_UNARY(erf, Erf, visit_floating, { return ::erf(x); })
MICA_RARE_1(erfc, Erfc, visit_floating, { return ::erfc(x); })
// Halves are rounded to even. Integers are their own integers.
#define MICA_ROUNDING(slot, Name, function)                                                                       \
  namespace {                                                                                                     \
  MICA_FUNCTOR_1(Name, return ::function(x);)                                                                     \
  }                                                                                                               \
  void slot(const PointwiseLoop& loop) {                                                                          \
    if (is_integral(loop.dtype)) return copy(loop);                                                               \
    visit_floating(#slot, loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, Name<compute_t<T>>{}); }); \
  }
MICA_ROUNDING(floor, Floor, floor)
MICA_ROUNDING(ceil, Ceil, ceil)
MICA_ROUNDING(trunc, Trunc, trunc)
MICA_ROUNDING(round, Round, rint)
#undef MICA_ROUNDING

namespace {

template <class T>
struct Abs {
  __device__ auto operator()(T x) const {
    if constexpr (is_complex_v<T>) {
      return cuda::abs(x);
    } else if constexpr (std::is_integral_v<T>) {
      return x < 0 ? static_cast<T>(0 - static_cast<uint64_t>(x)) : x;
    } else {
      return ::fabs(x);
    }
  }
};
// -1, 0 or 1; 0 for NaN. A complex number's direction.
template <class T>
struct Sign {
  __device__ T operator()(T x) const {
    if constexpr (is_complex_v<T>) {
      const auto magnitude = cuda::abs(x);
      return magnitude == 0 ? T(0) : x / magnitude;
    } else {
      return static_cast<T>((x > T(0)) - (x < T(0)));
    }
  }
};
template <class T>
struct Conjugate {
  __device__ T operator()(T x) const { return conj(x); }
};
template <class T>
struct LogicalNot {
  Truth<T> truth;
  __device__ bool operator()(T x) const { return !truth(x); }
};
template <class T>
struct IsNan {
  __device__ bool operator()(T x) const { return x != x; }
};
template <class T>
struct IsFinite {
  __device__ bool operator()(T x) const {
    if constexpr (is_complex_v<T>) {
      return ::isfinite(x.real()) && ::isfinite(x.imag());
    } else {
      return ::isfinite(x);
    }
  }
};
template <class T>
struct IsInf {
  __device__ bool operator()(T x) const {
    if constexpr (is_complex_v<T>) {
      return ::isinf(x.real()) || ::isinf(x.imag());
    } else {
      return ::isinf(x);
    }
  }
};

template <class T>
struct RealOf {
  using type = T;
};
template <class R>
struct RealOf<Complex<R>> {
  using type = R;
};

}  // namespace

void abs(const PointwiseLoop& loop) {
  const DType t = loop.dtype;
  if (t == DType::UInt8 || t == DType::UInt16 || t == DType::UInt32 || t == DType::UInt64) return copy(loop);
  auto run = [&]<class T>(Tag<T>) { run_pointwise<typename RealOf<T>::type, T>(loop, Abs<compute_t<T>>{}); };
  if (t == DType::Int8) return run(Tag<int8_t>{});
  if (t == DType::Int16) return run(Tag<int16_t>{});
  if (t == DType::Int32) return run(Tag<int32_t>{});
  if (t == DType::Int64) return run(Tag<int64_t>{});
  visit_floating_complex("abs", t, run);
}
void sign(const PointwiseLoop& loop) {
  visit_real_bool("sign", loop.dtype, [&]<class T>(Tag<T>) { run_common<T, T>(loop, Sign<compute_t<T>>{}); });
}
void sgn(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Complex64) return run_rare<complexf, complexf>(loop, Sign<complexf>{});
  if (loop.dtype == DType::Complex128) return run_rare<complexd, complexd>(loop, Sign<complexd>{});
  sign(loop);
}
void conj_physical(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Complex64) return run_pointwise<complexf, complexf>(loop, Conjugate<complexf>{});
  if (loop.dtype == DType::Complex128) return run_pointwise<complexd, complexd>(loop, Conjugate<complexd>{});
  unsupported_dtype("conj", loop.dtype);
}
void logical_not(const PointwiseLoop& loop) {
  visit_truth(loop.dtype, [&]<class T>(Tag<T>, Truth<T> truth) { run_pointwise<bool, T>(loop, LogicalNot<T>{truth}); });
}

// Integers and bools are all finite.
static bool whole(const PointwiseLoop& loop, bool value) {
  if (is_floating(loop.dtype) || is_complex(loop.dtype)) return false;
  run_pointwise<bool>(loop, Always{value});
  return true;
}
void isnan(const PointwiseLoop& loop) {
  if (whole(loop, false)) return;
  visit_floating_complex("isnan", loop.dtype,
                         [&]<class T>(Tag<T>) { run_pointwise<bool, T>(loop, IsNan<compute_t<T>>{}); });
}
void isfinite(const PointwiseLoop& loop) {
  if (whole(loop, true)) return;
  visit_floating_complex("isfinite", loop.dtype,
                         [&]<class T>(Tag<T>) { run_pointwise<bool, T>(loop, IsFinite<compute_t<T>>{}); });
}
void isinf(const PointwiseLoop& loop) {
  if (whole(loop, false)) return;
  visit_floating_complex("isinf", loop.dtype,
                         [&]<class T>(Tag<T>) { run_pointwise<bool, T>(loop, IsInf<compute_t<T>>{}); });
}

}  // namespace mica::cuda
