// Activations and their derivatives.
#include "backends/cuda/complex_functions.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise/define.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct Relu {
  __device__ T operator()(T x) const { return x < T(0) ? T(0) : x; }  // a NaN stays
};
template <class T>
__device__ T exponential(T x) {
  if constexpr (is_complex_v<T>) {
    return complex_functions::exp(x);
  } else {
    return ::exp(x);
  }
}
template <class T>
struct Sigmoid {
  __device__ T operator()(T x) const { return T(1) / (T(1) + exponential(-x)); }
};
template <class T>
__device__ T conjugate(T x) {
  if constexpr (is_complex_v<T>) {
    return conj(x);
  } else {
    return x;
  }
}
template <class T>
struct SigmoidBackward {
  __device__ T operator()(T grad, T y) const { return grad * conjugate((T(1) - y) * y); }
};
template <class T>
struct TanhBackward {
  __device__ T operator()(T grad, T y) const { return grad * conjugate(T(1) - y * y); }
};
template <class T>
struct ThresholdBackward {
  T bound;
  __device__ T operator()(T grad, T x) const { return x <= bound ? T(0) : grad; }
};
template <class T>
struct LeakyRelu {
  T slope;
  __device__ T operator()(T x) const { return x > T(0) ? x : x * slope; }
};
template <class T>
struct LeakyReluBackward {
  T slope;
  __device__ T operator()(T grad, T x) const { return x > T(0) ? grad : grad * slope; }
};
template <class T>
struct Silu {
  __device__ T operator()(T x) const { return x / (T(1) + exponential(-x)); }
};
template <class T>
struct SiluBackward {
  __device__ T operator()(T grad, T x) const {
    const T s = T(1) / (T(1) + exponential(-x));
    return grad * conjugate(s * (T(1) + x * (T(1) - s)));
  }
};

template <class T>
struct Gelu {
  bool by_tanh;
  __device__ T operator()(T x) const {
    if (by_tanh) return T(0.5) * x * (T(1) + ::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
    return x * T(0.5) * (T(1) + ::erf(x * T(0.7071067811865476)));
  }
};
// The standard normal distribution for results of 16 bits: density times sqrt(2 pi), and the probability of less than x
// to 4e-5 of itself, also where it is small. The tail is a polynomial of 1 / (1 + 0.38 |x|) times the density.
__device__ inline float narrow_normal(float x, float& density) {
  const float size = ::fabsf(x);
  float t;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(density) : "f"(x * x * -0.72134752f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(__fmaf_rn(0.38f, size, 1.0f)));
  float tail = __fmaf_rn(t, -0.08992367f, 0.18886615f);
  tail = __fmaf_rn(tail, t, 0.09198774f);
  tail = __fmaf_rn(tail, t, 0.1578269f);
  tail = __fmaf_rn(tail, t, 0.15122543f) * t * density;
  return x < 0 ? tail : 1.0f - tail;
}
struct NarrowGelu {
  __device__ float operator()(float x) const {
    float density;
    return x * narrow_normal(x, density);
  }
};
struct NarrowGeluBackward {
  __device__ float operator()(float grad, float x) const {
    float density;
    const float below = narrow_normal(x, density);
    return grad * __fmaf_rn(x * 0.3989422804f, density, below);
  }
};
template <class T>
struct GeluBackward {
  bool by_tanh;
  __device__ T operator()(T grad, T x) const {
    if (by_tanh) {
      const T beta = T(0.7978845608028654), kappa = T(0.044715);
      const T t = ::tanh(beta * (x + kappa * x * x * x));
      return grad * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * beta * (T(1) + T(3) * kappa * x * x));
    }
    const T cdf = T(0.5) * (T(1) + ::erf(x * T(0.7071067811865476)));
    return grad * (cdf + x * T(0.3989422804014327) * ::exp(T(-0.5) * x * x));
  }
};

}  // namespace

void relu(const PointwiseLoop& loop) {
  visit_real("relu", loop.dtype, [&]<class T>(Tag<T>) { run_common<T, T>(loop, Relu<compute_t<T>>{}); });
}
void sigmoid(const PointwiseLoop& loop) {
  visit_floating_complex("sigmoid", loop.dtype, [&]<class T>(Tag<T>) {
    if constexpr (is_complex_v<T>) {
      run_rare<T, T>(loop, Sigmoid<T>{});
    } else {
      run_pointwise<T, T>(loop, Sigmoid<compute_t<T>>{});
    }
  });
}
void sigmoid_backward(const PointwiseLoop& loop) {
  visit_floating_complex("sigmoid_backward", loop.dtype,
                         [&]<class T>(Tag<T>) { run_common<T, T, T>(loop, SigmoidBackward<compute_t<T>>{}); });
}
void tanh_backward(const PointwiseLoop& loop) {
  visit_floating_complex("tanh_backward", loop.dtype,
                         [&]<class T>(Tag<T>) { run_common<T, T, T>(loop, TanhBackward<compute_t<T>>{}); });
}
void threshold_backward(const PointwiseLoop& loop, Scalar threshold) {
  visit_real("threshold_backward", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_common<T, T, T>(loop, ThresholdBackward<C>{number<C>(threshold)});
  });
}
void leaky_relu(const PointwiseLoop& loop, Scalar negative_slope) {
  visit_floating("leaky_relu", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_pointwise<T, T>(loop, LeakyRelu<C>{number<C>(negative_slope)});
  });
}
void leaky_relu_backward(const PointwiseLoop& loop, Scalar negative_slope) {
  visit_floating("leaky_relu_backward", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_pointwise<T, T, T>(loop, LeakyReluBackward<C>{number<C>(negative_slope)});
  });
}
void silu(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Complex64) return run_rare<complexf, complexf>(loop, Silu<complexf>{});
  if (loop.dtype == DType::Complex128) return run_rare<complexd, complexd>(loop, Silu<complexd>{});
  visit_floating("silu", loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, Silu<compute_t<T>>{}); });
}
void silu_backward(const PointwiseLoop& loop) {
  if (loop.dtype == DType::Complex64) return run_rare<complexf, complexf, complexf>(loop, SiluBackward<complexf>{});
  if (loop.dtype == DType::Complex128) return run_rare<complexd, complexd, complexd>(loop, SiluBackward<complexd>{});
  visit_floating("silu_backward", loop.dtype,
                 [&]<class T>(Tag<T>) { run_pointwise<T, T, T>(loop, SiluBackward<compute_t<T>>{}); });
}
void gelu(const PointwiseLoop& loop, std::string_view approximate) {
  const bool by_tanh = approximate == "tanh";
  visit_floating("gelu", loop.dtype, [&]<class T>(Tag<T>) {
    if constexpr (sizeof(T) == 2) {
      if (!by_tanh) return run_pointwise<T, T>(loop, NarrowGelu{});
    }
    run_pointwise<T, T>(loop, Gelu<compute_t<T>>{by_tanh});
  });
}
void gelu_backward(const PointwiseLoop& loop, std::string_view approximate) {
  const bool by_tanh = approximate == "tanh";
  visit_floating("gelu_backward", loop.dtype, [&]<class T>(Tag<T>) {
    if constexpr (sizeof(T) == 2) {
      if (!by_tanh) return run_pointwise<T, T, T>(loop, NarrowGeluBackward{});
    }
    run_pointwise<T, T, T>(loop, GeluBackward<compute_t<T>>{by_tanh});
  });
}

}  // namespace mica::cuda
