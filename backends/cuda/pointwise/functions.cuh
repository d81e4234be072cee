// What pointwise kernels compute, where a fused loop computes it too (backends/cuda/fused): functors that see values of
// the type an element is computed in.
#pragma once

#include "backends/cuda/complex_functions.cuh"
#include "backends/cuda/element.cuh"
#include "backends/cuda/pointwise/variants.h"

namespace mica::cuda {

// ---- arithmetic

// Integer arithmetic wraps around: computed unsigned.
template <class T>
__device__ T wrapping_add(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <class T>
__device__ T wrapping_mul(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a && b;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

template <class T>
struct AddScaled {
  T alpha;
  bool unscaled;
  __device__ T operator()(T a, T b) const { return wrapping_add(a, unscaled ? b : wrapping_mul(alpha, b)); }
};
template <class T>
struct Mul {
  __device__ T operator()(T a, T b) const { return wrapping_mul(a, b); }
};
template <class T>
struct Div {
  __device__ T operator()(T a, T b) const { return a / b; }
};
// The larger, or the smaller. A NaN wins.
template <class T>
struct Extremum {
  bool larger;
  __device__ T operator()(T a, T b) const { return a != a || (larger ? a > b : a < b) ? a : b; }
};

template <class T>
struct PowShort {
  Shortcut shortcut;
  __device__ T operator()(T x, T) const {
    switch (shortcut) {
      case Shortcut::Square:
        return x * x;
      case Shortcut::Cube:
        return x * x * x;
      case Shortcut::Sqrt:
        return ::sqrt(x);
      case Shortcut::Rsqrt:
        return ::rsqrt(x);
      case Shortcut::Reciprocal:
        return T(1) / x;
      default:
        return T(1) / (x * x);
    }
  }
};

// ---- comparison and selection

template <class T>
struct Compare {
  uint32_t holds;
  __device__ bool operator()(T a, T b) const {
    if constexpr (is_complex_v<T>) {
      return holds & (a == b ? kEqual : kUnordered);
    } else {
      return holds & (a < b ? kLess : a == b ? kEqual : a > b ? kGreater : kUnordered);
    }
  }
};

template <class T>
struct Clamp {
  __device__ T operator()(T x, T low, T high) const {
    if (x != x) return x;
    if (low != low) return low;
    const T raised = x < low ? low : x;
    return high != high || high < raised ? high : raised;
  }
};
template <class T>
struct Addcmul {
  T value;
  __device__ T operator()(T self, T a, T b) const { return static_cast<T>(self + value * a * b); }
};
template <class T>
struct Addcdiv {
  T value;
  __device__ T operator()(T self, T a, T b) const { return self + value * (a / b); }
};

// ---- activations and their derivatives

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

}  // namespace mica::cuda
