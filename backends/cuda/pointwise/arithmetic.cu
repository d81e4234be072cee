// add, sub, rsub, mul, div, neg, reciprocal, maximum, minimum.
#include "backends/cuda/kernels.h"
#include "backends/cuda/pointwise/functions.cuh"
#include "backends/cuda/transposed.cuh"

namespace mica::cuda {

namespace {

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

// The sums and products that meet a transposed matrix often enough for a loop of their own.
template <class T, class F>
void run_arithmetic(const PointwiseLoop& loop, const F& f) {
  if constexpr (is_short_float_v<T>) {
    if (run_transposed<T>(loop, f)) return;
  }
  run_pointwise<T, T, T>(loop, f);
}

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

// A factor as the type of elements whose sign makes no difference.
template <class C>
static C factor(const Scalar& alpha) {
  if constexpr (std::is_integral_v<C> && !std::is_same_v<C, bool>) {
    return static_cast<C>(alpha.cast<int64_t>());
  } else {
    return number<C>(alpha);
  }
}

void add(const PointwiseLoop& loop, Scalar alpha) {
  if (add_mixed(loop, alpha)) return;
  auto run = [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    run_arithmetic<T>(loop, AddScaled<C>{factor<C>(alpha), is_one(alpha)});
  };
  if (loop.dtype == DType::Bool) return run(Tag<bool>{});
  visit_wrapping_number("add", loop.dtype, run);
}

void sub(const PointwiseLoop& loop, Scalar alpha) { add(loop, negated(alpha)); }

// The same sum with its operands the other way round.
void rsub(const PointwiseLoop& loop, Scalar alpha) {
  PointwiseLoop turned = loop;
  std::swap(turned.data[1], turned.data[2]);
  std::swap(turned.dtypes[1], turned.dtypes[2]);
  for (int d = 0; d < turned.ndim; ++d) std::swap(turned.strides[d][1], turned.strides[d][2]);
  turned.numbers = (loop.numbers & ~6u) | (loop.numbers & 2u) << 1 | (loop.numbers & 4u) >> 1;
  add(turned, negated(alpha));
}

void mul(const PointwiseLoop& loop) {
  visit_wrapping_number("mul", loop.dtype, [&]<class T>(Tag<T>) { run_arithmetic<T>(loop, Mul<compute_t<T>>{}); });
}
void div(const PointwiseLoop& loop) {
  visit_floating_complex("div", loop.dtype,
                         [&]<class T>(Tag<T>) { run_pointwise<T, T, T>(loop, Div<compute_t<T>>{}); });
}
void neg(const PointwiseLoop& loop) {
  visit_wrapping_number("neg", loop.dtype, [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, Neg<compute_t<T>>{}); });
}
void reciprocal(const PointwiseLoop& loop) {
  visit_floating_complex("reciprocal", loop.dtype,
                         [&]<class T>(Tag<T>) { run_pointwise<T, T>(loop, Reciprocal<compute_t<T>>{}); });
}
static void extremum(const char* op, const PointwiseLoop& loop, bool larger) {
  auto run = [&]<class T>(Tag<T>) { run_pointwise<T, T, T>(loop, Extremum<compute_t<T>>{larger}); };
  if (loop.dtype == DType::Bool) return run(Tag<uint8_t>{});  // bytes of 0 and 1
  visit_real(op, loop.dtype, run);
}
void maximum(const PointwiseLoop& loop) { extremum("maximum", loop, true); }
void minimum(const PointwiseLoop& loop) { extremum("minimum", loop, false); }

}  // namespace mica::cuda
