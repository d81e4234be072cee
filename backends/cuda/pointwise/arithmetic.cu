// add, sub, rsub, mul, div, neg, reciprocal, maximum, minimum.
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

namespace {

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
struct AddToScaled {
  T alpha;
  __device__ T operator()(T a, T b) const { return wrapping_add(wrapping_mul(alpha, a), b); }
};
template <class T>
struct Mul {
  __device__ T operator()(T a, T b) const { return wrapping_mul(a, b); }
};
template <class T>
struct Div {
  __device__ T operator()(T a, T b) const { return a / b; }
};
template <class T>
struct Neg {
  __device__ T operator()(T a) const {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(0 - static_cast<uint64_t>(a));
    } else {
      return -a;
    }
  }
};
template <class T>
struct Reciprocal {
  __device__ T operator()(T a) const { return T(1) / a; }
};

// A NaN wins.
template <class T>
struct Maximum {
  __device__ T operator()(T a, T b) const { return a != a || a > b ? a : b; }
};
template <class T>
struct Minimum {
  __device__ T operator()(T a, T b) const { return a != a || a < b ? a : b; }
};

bool is_one(const Scalar& s) { return s == Scalar(1) || s == Scalar(1.0) || s == Scalar(true); }

Scalar negated(const Scalar& alpha) { return -(alpha.is_bool() ? Scalar(int64_t{alpha.to_bool()}) : alpha); }

}  // namespace

// A sum in float32 of operands of different dtypes, one or both of 16 bits. False where they are of one dtype.
static bool add_mixed(const PointwiseLoop& loop, Scalar alpha) {
  const DType a = loop.dtypes[1], b = loop.dtypes[2];
  if (loop.dtype != DType::Float32 || a == b) return false;
  const AddScaled<float> f{number<float>(alpha), is_one(alpha)};
  if (a == DType::Float32) {
    b == DType::BFloat16 ? run_pointwise<float, float, bfloat16>(loop, f) : run_pointwise<float, float, half>(loop, f);
  } else if (b == DType::Float32) {
    a == DType::BFloat16 ? run_pointwise<float, bfloat16, float>(loop, f) : run_pointwise<float, half, float>(loop, f);
  } else {
    a == DType::BFloat16 ? run_pointwise<float, bfloat16, half>(loop, f)
                         : run_pointwise<float, half, bfloat16>(loop, f);
  }
  return true;
}

void add(const PointwiseLoop& loop, Scalar alpha) {
  if (add_mixed(loop, alpha)) return;
  visit_number_bool("add", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_pointwise<T, T, T>(loop, AddScaled<C>{number<C>(alpha), is_one(alpha)});
  });
}

void sub(const PointwiseLoop& loop, Scalar alpha) { add(loop, negated(alpha)); }

void rsub(const PointwiseLoop& loop, Scalar alpha) {
  visit_number("rsub", loop.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_pointwise<T, T, T>(loop, AddToScaled<C>{number<C>(negated(alpha))});
  });
}

void mul(const PointwiseLoop& loop) {
  visit_number_bool("mul", loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T, T>(loop, Mul<compute_t<T>>{}); });
}
void div(const PointwiseLoop& loop) {
  visit_floating_complex("div", loop.dtype,
                         [&]<class T>(Tag<T>) { run_pointwise<T, T, T>(loop, Div<compute_t<T>>{}); });
}
void neg(const PointwiseLoop& loop) {
  visit_number("neg", loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, Neg<compute_t<T>>{}); });
}
void reciprocal(const PointwiseLoop& loop) {
  visit_floating_complex("reciprocal", loop.dtype,
                         [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, Reciprocal<compute_t<T>>{}); });
}
void maximum(const PointwiseLoop& loop) {
  visit_real_bool("maximum", loop.dtype,
                  [&]<class T>(Tag<T>) { run_pointwise<T, T, T>(loop, Maximum<compute_t<T>>{}); });
}
void minimum(const PointwiseLoop& loop) {
  visit_real_bool("minimum", loop.dtype,
                  [&]<class T>(Tag<T>) { run_pointwise<T, T, T>(loop, Minimum<compute_t<T>>{}); });
}

}  // namespace mica::cuda
