// Vector norms. Complex numbers come as their absolute values.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backends/cpu/reduce/extremum_runs-inl.h"
#include "backends/cpu/reduce/reduction-inl.h"
#include "backends/cpu/reduce/sum_op-inl.h"
#include "backends/cpu/reduce/wide_load-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

template <class T>
struct Norm1 : Sum<T, Magnitude> {};

// The sum of squares of x[0..n) in doubles, in which squares of floats neither overflow nor lose digits.
template <class T>
HWY_INLINE double wide_squares(const T* x, int64_t n) {
  const Doubles d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  DoubleVector s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const DoubleVector a0 = load_wide(x + i), a1 = load_wide(x + i + lanes);
    const DoubleVector a2 = load_wide(x + i + 2 * lanes), a3 = load_wide(x + i + 3 * lanes);
    s0 = hn::MulAdd(a0, a0, s0);
    s1 = hn::MulAdd(a1, a1, s1);
    s2 = hn::MulAdd(a2, a2, s2);
    s3 = hn::MulAdd(a3, a3, s3);
  }
  for (; i < n; i += lanes) {
    const DoubleVector v = load_wide_first(x + i, std::min(lanes, n - i));
    s0 = hn::MulAdd(v, v, s0);
  }
  return sum_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

// The same in floats, for n = kSteps * 8 * lanes elements: eight sums of kSteps squares in each lane meet in doubles.
constexpr int64_t kSteps = 16;
HWY_INLINE double narrow_squares(const float* x) {
  const hn::ScalableTag<float> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), step = 8 * lanes;
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (int64_t i = 0; i < kSteps * step; i += step) {
#define MICA_SQUARE(k)                           \
  {                                              \
    const V v = hn::LoadU(d, x + i + k * lanes); \
    s##k = hn::MulAdd(v, v, s##k);               \
  }
    MICA_SQUARE(0)
    MICA_SQUARE(1)
    MICA_SQUARE(2)
    MICA_SQUARE(3)
    MICA_SQUARE(4)
    MICA_SQUARE(5)
    MICA_SQUARE(6)
    MICA_SQUARE(7)
#undef MICA_SQUARE
  }
  VectorTotal<decltype(d)> total;
  total.add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
  total.add(hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  double sum = 0;
  total.add_to(sum);
  return sum;
}

template <class T>
struct Norm2 {
  using Loaded = T;
  using Accumulator = double;
  static void start(double& a) { a = 0; }
  static void row(double& a, const T* x, int64_t n, int64_t, const void*) {
    constexpr int64_t kChunk = 2048;
    int64_t i = 0;
    if constexpr (std::is_same_v<T, float>) {
      // Below the first bound, squares that floats cannot hold could count. Above the second, a sum is near infinity.
      constexpr double kLeast = 0x1p-80, kGreatest = 0x1p120;
      const int64_t chunk = kSteps * 8 * static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
      for (; i + chunk <= n; i += chunk) {
        const double sum = narrow_squares(x + i);
        a += sum >= kLeast && sum <= kGreatest ? sum : wide_squares(x + i, chunk);
      }
    }
    for (; i < n; i += kChunk) a += wide_squares(x + i, std::min(kChunk, n - i));
  }
  static void columns(double* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t, const void*) {
    for (int64_t r = 0; r < count; ++r) {
      const T* p = x + r * row_stride;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) a[j] += static_cast<double>(p[j]) * static_cast<double>(p[j]);
    }
  }
  static void merge(double& a, double b) { a += b; }
  static double result(double a, int64_t, const void*) { return std::sqrt(a); }
};

template <class T, Extreme E>
struct NormExtreme {
  using Loaded = T;
  using Accumulator = T;
  static void start(T& a) { a = E == Extreme::Max ? T(0) : std::numeric_limits<T>::infinity(); }
  static void row(T& a, const T* x, int64_t n, int64_t, const void*) {
    constexpr int64_t kChunk = 1024;
    alignas(64) T magnitudes[kChunk];
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      for (int64_t k = 0; k < count; ++k) magnitudes[k] = std::fabs(x[i + k]);
      merge(a, extreme_of_run<E>(magnitudes, count));
    }
  }
  static void columns(T* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t, const void*) {
    for (int64_t r = 0; r < count; ++r)
      for (int64_t j = 0; j < columns; ++j) merge(a[j], std::fabs(x[r * row_stride + j]));
  }
  static void merge(T& a, T b) {
    if (more_extreme<E>(b, a)) a = b;
  }
  static T result(T a, int64_t, const void*) { return a; }
};

// The sum of powers, its root taken at the end. The context is the exponent.
template <class T>
struct NormP {
  using Loaded = T;
  using Accumulator = double;
  static double power(T x, double p) {
    return p == 3 ? std::fabs(double(x) * x * x) : std::pow(std::fabs(static_cast<double>(x)), p);
  }
  static void start(double& a) { a = 0; }
  static void row(double& a, const T* x, int64_t n, int64_t, const void* context) {
    const double p = *static_cast<const double*>(context);
    for (int64_t i = 0; i < n; ++i) a += power(x[i], p);
  }
  static void columns(double* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void* context) {
    const double p = *static_cast<const double*>(context);
    for (int64_t r = 0; r < count; ++r)
      for (int64_t j = 0; j < columns; ++j) a[j] += power(x[r * row_stride + j], p);
  }
  static void merge(double& a, double b) { a += b; }
  static double result(double a, int64_t, const void* context) {
    return std::pow(a, 1 / *static_cast<const double*>(context));
  }
};

template <class T>
struct Norm0 {
  using Loaded = T;
  using Accumulator = double;
  static void start(double& a) { a = 0; }
  static void row(double& a, const T* x, int64_t n, int64_t, const void*) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += x[i] != T(0);
    a += static_cast<double>(count);
  }
  static void columns(double* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t, const void*) {
    for (int64_t r = 0; r < count; ++r)
      for (int64_t j = 0; j < columns; ++j) a[j] += x[r * row_stride + j] != T(0);
  }
  static void merge(double& a, double b) { a += b; }
  static double result(double a, int64_t, const void*) { return a; }
};

template <class Op>
void run(const ElementLoad& load, const TensorView& out, const TensorView& self, uint64_t dims, const double& p) {
  const TensorView* outputs[] = {&out};
  visit_floating("norm_cpu", out.dtype, [&]<class Out>(Tag<Out>) {
    constexpr Reduction reduction = reduction_of<Op>(finish_all<Op, Out>);
    run_reduction(reduction, load, outputs, self, dims, &p);
  });
}

void norm_kernel(const TensorView& out, const TensorView& self, uint64_t dims, double p) {
  const ElementLoad& load = load_magnitude("norm_cpu", self.dtype);
  const DType loaded = is_complex(self.dtype) ? DType::Float64 : self.dtype;
  visit_loaded_floating("norm_cpu", loaded, [&]<class T>(Tag<T>) {
    if (p == 2) return run<Norm2<T>>(load, out, self, dims, p);
    if (p == 1) return run<Norm1<T>>(load, out, self, dims, p);
    if (p == 0) return run<Norm0<T>>(load, out, self, dims, p);
    if (std::isinf(p)) {
      return p > 0 ? run<NormExtreme<T, Extreme::Max>>(load, out, self, dims, p)
                   : run<NormExtreme<T, Extreme::Min>>(load, out, self, dims, p);
    }
    run<NormP<T>>(load, out, self, dims, p);
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(norm_kernel);
MICA_REGISTER_SIMD(reduce_norm, norm_kernel);
}  // namespace mica::cpu
#endif
