// Variance, standard deviation and mean. Chunks are summed around a value of their own, in doubles, and merged by their
// means.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/var.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backends/cpu/reduce/moments-inl.h"
#include "backends/cpu/reduce/reduction-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

struct VarContext {
  double correction;
  bool root;
};

template <class T>
struct Var {
  using Loaded = T;
  using Accumulator = Moments;
  static void start(Moments& a) { a = {0, 0, 0}; }

  static void row(Moments& a, const T* x, int64_t n, int64_t, const void*) { add_run(a, x, n); }

  static void columns(Moments* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void*) {
    constexpr int64_t kBlock = 512, kRows = sizeof(T) == 4 ? 1024 : 128;
    alignas(64) double shift[kBlock], sum[kBlock], squares[kBlock];
    for (int64_t from = 0; from < count; from += kRows) {
      const int64_t rows = std::min(kRows, count - from);
      for (int64_t j = 0; j < columns; j += kBlock) {
        const int64_t n = std::min(kBlock, columns - j);
        const T* p = x + from * row_stride + j;
        for (int64_t i = 0; i < n; ++i) {
          shift[i] = static_cast<double>(p[i]);
          sum[i] = squares[i] = 0;
        }
        int64_t r = 1;
        for (; r + 4 <= rows; r += 4) {
          const T *q0 = p + r * row_stride, *q1 = q0 + row_stride, *q2 = q1 + row_stride, *q3 = q2 + row_stride;
          for (int64_t i = 0; i < n; ++i) {
            const double v0 = q0[i] - shift[i], v1 = q1[i] - shift[i], v2 = q2[i] - shift[i], v3 = q3[i] - shift[i];
            sum[i] += (v0 + v1) + (v2 + v3);
            squares[i] += (v0 * v0 + v1 * v1) + (v2 * v2 + v3 * v3);
          }
        }
        for (; r < rows; ++r)
          for (int64_t i = 0; i < n; ++i) {
            const double v = p[r * row_stride + i] - shift[i];
            sum[i] += v;
            squares[i] += v * v;
          }
        for (int64_t i = 0; i < n; ++i)
          a[j + i].add(moments_from_sums(static_cast<double>(rows), shift[i], sum[i], squares[i]));
      }
    }
  }

  static void merge(Moments& a, const Moments& b) { a.add(b); }

  static double result(const Moments& a, int64_t count, const void* context) {
    const auto& c = *static_cast<const VarContext*>(context);
    const double variance = a.squares / std::max(0.0, static_cast<double>(count) - c.correction);
    return c.root ? std::sqrt(variance) : variance;
  }
  static std::pair<double, double> results(const Moments& a, int64_t count, const void* context) {
    return {result(a, count, context), count ? a.mean : std::numeric_limits<double>::quiet_NaN()};
  }
};

void var_kernel(const TensorView& out, const TensorView& mean, const TensorView& self, uint64_t dims, double correction,
                bool root) {
  const TensorView* outputs[] = {&out, &mean};
  const VarContext context{correction, root};
  visit_loaded_floating("std_cpu", self.dtype, [&]<class T>(Tag<T>) {
    const ElementLoad& load = load_number("std_cpu", self.dtype);
    visit_stored<T>("std_cpu", out.dtype, [&]<class Out>(Tag<Out>) {
      constexpr Reduction alone = reduction_of<Var<T>>(finish_all<Var<T>, Out>);
      constexpr Reduction with_mean = reduction_of<Var<T>>(finish_pairs<Var<T>, Out, Out>, 2);
      run_reduction(mean.defined() ? with_mean : alone, load, outputs, self, dims, &context);
    });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(var_kernel);
MICA_REGISTER_SIMD(reduce_var, var_kernel);
}  // namespace mica::cpu
#endif
