// logsumexp: the largest element so far, and the sum of exponentials of the distances to it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/logsumexp.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "backends/cpu/reduce/exp_columns-inl.h"
#include "backends/cpu/reduce/exp_runs-inl.h"
#include "backends/cpu/reduce/reduction-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

template <class T>
struct LogSumExp {
  using Loaded = T;
  // Where the largest is infinite or NaN it is the result, and the sum has no meaning.
  struct Accumulator {
    T largest;
    double sum;
  };
  static void start(Accumulator& a) { a = {-std::numeric_limits<T>::infinity(), 0}; }

  static void raise(Accumulator& a, T largest) {
    if (!more_extreme<Extreme::Max>(largest, a.largest)) return;
    if (a.sum != 0) a.sum *= std::exp(static_cast<double>(a.largest) - static_cast<double>(largest));
    a.largest = largest;
  }

  static void row(Accumulator& a, const T* x, int64_t n, int64_t, const void*) {
    constexpr int64_t kChunk = 4096;  // stays in the cache for the second look
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      raise(a, extreme_of_run<Extreme::Max>(x + i, count));
      if (std::isfinite(a.largest)) {
        const T* const end = x + i + count;
        a.sum += sum_of_exponentials<false>(x + i, count, a.largest, static_cast<T*>(nullptr), end);
      }
    }
  }

  static void columns(Accumulator* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void*) {
    using Columns = ColumnExponentials<T>;
    Columns block;
    for (int64_t j = 0; j < columns; j += Columns::kColumns) {
      const int64_t n = std::min(Columns::kColumns, columns - j);
      // Starts from the accumulators, so that a few rows at a time need no additional exponential for each column.
      for (int64_t i = 0; i < n; ++i) block.largest[i] = a[j + i].largest, block.sum[i] = a[j + i].sum;
      for (int64_t r = 0; r < count; r += Columns::kRows)
        block.add_rows(x + r * row_stride + j, n, row_stride, std::min(Columns::kRows, count - r));
      for (int64_t i = 0; i < n; ++i) a[j + i] = {block.largest[i], block.sum[i]};
    }
  }

  static void merge(Accumulator& a, const Accumulator& b) {
    raise(a, b.largest);
    if (!std::isfinite(a.largest) || !std::isfinite(b.largest)) return;
    a.sum += a.largest == b.largest ? b.sum
                                    : b.sum * std::exp(static_cast<double>(b.largest) - static_cast<double>(a.largest));
  }

  static double result(const Accumulator& a, int64_t, const void*) {
    return std::isfinite(a.largest) ? a.largest + std::log(a.sum) : a.largest;
  }
};

void logsumexp_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  const TensorView* outputs[] = {&out};
  visit_loaded_floating("logsumexp_cpu", self.dtype, [&]<class T>(Tag<T>) {
    const ElementLoad& load = load_number("logsumexp_cpu", self.dtype);
    visit_stored<T>("logsumexp_cpu", out.dtype, [&]<class Out>(Tag<Out>) {
      constexpr Reduction reduction = reduction_of<LogSumExp<T>>(finish_all<LogSumExp<T>, Out>);
      run_reduction(reduction, load, outputs, self, dims);
    });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(logsumexp_kernel);
MICA_REGISTER_SIMD(reduce_logsumexp, logsumexp_kernel);
}  // namespace mica::cpu
#endif
