// Activations that have corners or saturate, and their derivatives.
#include "backends/cuda/pointwise/define.cuh"

namespace mica::cuda {

namespace {

template <class T>
__device__ T logistic(T x) {
  return T(1) / (T(1) + ::exp(-x));
}
template <class T>
__device__ T between(T x, T low, T high) {
  return x < low ? low : x > high ? high : x;  // a NaN stays
}

template <class T>
struct Elu {
  T negative, positive, input;
  __device__ T operator()(T x) const { return x > T(0) ? x * positive : ::expm1(x * input) * negative; }
};
template <class T>
struct EluBackward {
  T negative, positive, input;
  __device__ T operator()(T grad, T x) const {
    return grad * (x > T(0) ? positive : ::exp(x * input) * (negative * input));
  }
};
template <class T>
struct Hardtanh {
  T low, high;
  __device__ T operator()(T x) const { return between(x, low, high); }
};
template <class T>
struct HardtanhBackward {
  T low, high;
  __device__ T operator()(T grad, T x) const { return x <= low || x >= high ? T(0) : grad; }
};
template <class T>
struct Hardshrink {
  T bound;
  __device__ T operator()(T x) const { return ::fabs(x) <= bound ? T(0) : x; }
};
template <class T>
struct HardshrinkBackward {
  T bound;
  __device__ T operator()(T grad, T x) const { return ::fabs(x) <= bound ? T(0) : grad; }
};
template <class T>
struct Softshrink {
  T bound;
  __device__ T operator()(T x) const { return x > bound ? x - bound : x < -bound ? x + bound : x * T(0); }
};
template <class T>
struct Softplus {
  T beta, threshold;
  __device__ T operator()(T x) const {
    const T scaled = x * beta;
    return scaled > threshold ? x : ::log1p(::exp(scaled)) / beta;
  }
};
template <class T>
struct SoftplusBackward {
  T beta, threshold;
  __device__ T operator()(T grad, T x) const {
    const T scaled = x * beta;
    return scaled > threshold ? grad : grad * logistic(scaled);
  }
};
template <class T>
struct Threshold {
  T bound, value;
  __device__ T operator()(T x) const { return x <= bound ? value : x; }
};

}  // namespace

MICA_RARE_1(hardsigmoid, Hardsigmoid, visit_floating,
            { return between(x + T(3), T(0), T(6)) * static_cast<T>(1.0 / 6); })
MICA_RARE_1(hardswish, Hardswish, visit_floating,
            { return x * between(x + T(3), T(0), T(6)) * static_cast<T>(1.0 / 6); })
MICA_RARE_2(hardsigmoid_backward, HardsigmoidBackward, visit_floating,
            { return ::fabs(y) < T(3) ? x * static_cast<T>(1.0 / 6) : T(0); })
MICA_RARE_2(hardswish_backward, HardswishBackward, visit_floating, {
  return y <= T(-3) ? T(0) : y < T(3) ? x * (y * static_cast<T>(1.0 / 3) + T(0.5)) : x;
})
MICA_RARE_1(mish, Mish, visit_floating, {
  // tanh(softplus(x)) = n / (n + 2) with n = e^x (e^x + 2).
  const T e = ::exp(x > T(22) ? T(22) : x);
  const T n = e * (e + T(2));
  return x * (n / (n + T(2)));
})
MICA_RARE_2(mish_backward, MishBackward, visit_floating, {
  const T e = ::exp(y > T(22) ? T(22) : y);
  const T n = e * (e + T(2));
  const T t = n / (n + T(2));
  return x * (t + y * logistic(y) * (T(1) - t * t));
})
MICA_RARE_1(log_sigmoid, LogSigmoid, visit_floating, {
  const T low = x < T(0) ? x : x != x ? x : T(0);
  return low - ::log1p(::exp(-::fabs(x)));
})
MICA_RARE_2(log_sigmoid_backward, LogSigmoidBackward, visit_floating, { return x * logistic(-y); })
MICA_RARE_2(prelu, Prelu, visit_floating, { return x > T(0) ? x : y * x; })

// A functor of numbers that come as Scalars.
#define MICA_WITH_NUMBERS(slot, Name, visit, inputs, parameters, ...) \
  void slot parameters {                                              \
    visit(#slot, loop.dtype, [&]<class T>(Tag<T>) {                   \
      using C = compute_t<T>;                                         \
      const Name<C> f{__VA_ARGS__};                                   \
      if constexpr (inputs == 1) {                                    \
        run_rare<T, T>(loop, f);                                      \
      } else {                                                        \
        run_rare<T, T, T>(loop, f);                                   \
      }                                                               \
    });                                                               \
  }
#define MICA_LOOP const PointwiseLoop& loop
MICA_WITH_NUMBERS(elu, Elu, visit_floating, 1, (MICA_LOOP, Scalar alpha, Scalar scale, Scalar input_scale),
                  static_cast<C>(alpha.to_double() * scale.to_double()), number<C>(scale), number<C>(input_scale))
MICA_WITH_NUMBERS(elu_backward, EluBackward, visit_floating, 2,
                  (MICA_LOOP, Scalar alpha, Scalar scale, Scalar input_scale),
                  static_cast<C>(alpha.to_double() * scale.to_double()), number<C>(scale), number<C>(input_scale))
MICA_WITH_NUMBERS(hardtanh, Hardtanh, visit_real, 1, (MICA_LOOP, Scalar low, Scalar high), number<C>(low),
                  number<C>(high))
MICA_WITH_NUMBERS(hardtanh_backward, HardtanhBackward, visit_real, 2, (MICA_LOOP, Scalar low, Scalar high),
                  number<C>(low), number<C>(high))
MICA_WITH_NUMBERS(hardshrink, Hardshrink, visit_floating, 1, (MICA_LOOP, Scalar lambd), number<C>(lambd))
MICA_WITH_NUMBERS(hardshrink_backward, HardshrinkBackward, visit_floating, 2, (MICA_LOOP, Scalar lambd),
                  number<C>(lambd))
MICA_WITH_NUMBERS(softshrink, Softshrink, visit_floating, 1, (MICA_LOOP, Scalar lambd), number<C>(lambd))
MICA_WITH_NUMBERS(softplus, Softplus, visit_floating, 1, (MICA_LOOP, Scalar beta, Scalar threshold), number<C>(beta),
                  number<C>(threshold))
MICA_WITH_NUMBERS(softplus_backward, SoftplusBackward, visit_floating, 2, (MICA_LOOP, Scalar beta, Scalar threshold),
                  number<C>(beta), number<C>(threshold))
MICA_WITH_NUMBERS(threshold, Threshold, visit_real, 1, (MICA_LOOP, Scalar bound, Scalar value), number<C>(bound),
                  number<C>(value))
#undef MICA_LOOP
#undef MICA_WITH_NUMBERS

}  // namespace mica::cuda
