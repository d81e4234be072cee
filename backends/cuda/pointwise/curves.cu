// Inverse trigonometric and hyperbolic functions, logarithms of sums, sinc, lerp.
#include "backends/cuda/complex_functions.cuh"
#include "backends/cuda/pointwise/define.cuh"

namespace mica::cuda {

// Real numbers through the CUDA library, complex ones through Thrust.
#define MICA_CURVE(slot, Name)                      \
  MICA_RARE_1(slot, Name, visit_floating_complex, { \
    if constexpr (is_complex_v<T>) {                \
      return complex_functions::slot(x);            \
    } else {                                        \
      return ::slot(x);                             \
    }                                               \
  })
MICA_CURVE(acos, Acos)
MICA_CURVE(asin, Asin)
MICA_CURVE(atan, Atan)
MICA_CURVE(acosh, Acosh)
MICA_CURVE(asinh, Asinh)
MICA_CURVE(atanh, Atanh)
#undef MICA_CURVE

MICA_RARE_1(sinc, Sinc, visit_floating_complex, {
  if (x == T(0)) return T(1);
  if constexpr (is_complex_v<T>) {
    const T y = x * T(static_cast<typename T::value_type>(3.14159265358979323846));
    return complex_functions::sin(y) / y;
  } else {
    const T y = x * static_cast<T>(3.14159265358979323846);
    return ::sin(y) / y;
  }
})
MICA_RARE_2(atan2, Atan2, visit_floating, { return ::atan2(x, y); })
MICA_RARE_2(hypot, Hypot, visit_floating, { return ::hypot(x, y); })
MICA_RARE_2(xlogy, Xlogy, visit_floating, { return y != y ? y : x == T(0) ? T(0) : x * ::log(y); })
MICA_RARE_2(logaddexp2, Logaddexp2, visit_floating, {
  if (x == y && ::isinf(x)) return x;
  const T big = ::fmax(x, y);
  return x != x || y != y ? x + y : big + ::log1p(::exp2(-::fabs(x - y))) * static_cast<T>(1.44269504088896340736);
})
MICA_RARE_2(logaddexp, Logaddexp, visit_floating_complex, {
  if constexpr (is_complex_v<T>) {
    const T big = x.real() < y.real() ? y : x;
    const T rest = x.real() < y.real() ? x : y;
    if (::isinf(big.real()) && big.real() == rest.real())
      return big.real() < 0 ? big : complex_functions::log(complex_functions::exp(x) + complex_functions::exp(y));
    return big + complex_functions::log(T(1) + complex_functions::exp(rest - big));
  } else {
    if (x == y && ::isinf(x)) return x;
    return x != x || y != y ? x + y : ::fmax(x, y) + ::log1p(::exp(-::fabs(x - y)));
  }
})

namespace {

// From whichever end is nearer, so that both ends are met exactly.
template <class T>
struct Lerp {
  __device__ T operator()(T start, T end, T weight) const {
    bool near;
    if constexpr (is_complex_v<T>) {
      near = abs(weight) < 0.5;
    } else {
      near = ::fabs(weight) < T(0.5);
    }
    return near ? start + weight * (end - start) : end - (end - start) * (T(1) - weight);
  }
};
struct LerpByNumber {
  float weight;
  __device__ float operator()(float start, float end, float) const { return Lerp<float>{}(start, end, weight); }
};

}  // namespace

void lerp(const PointwiseLoop& loop) {
  const bool is_short = loop.dtype == DType::Float16 || loop.dtype == DType::BFloat16;
  if (is_short && loop.numbers >> 3 & 1) {
    // torch computes with the number itself, not rounded to 16 bits; it stands eight bytes behind its element.
    LerpByNumber f;
    std::memcpy(&f.weight, loop.data[3] + 8, sizeof(float));
    if (loop.dtype == DType::Float16) return run_pointwise<half, half, half, half>(loop, f);
    return run_pointwise<bfloat16, bfloat16, bfloat16, bfloat16>(loop, f);
  }
  visit_floating_complex("lerp", loop.dtype,
                         [&]<class T>(Tag<T>) { run_pointwise<T, T, T, T>(loop, Lerp<compute_t<T>>{}); });
}

}  // namespace mica::cuda
