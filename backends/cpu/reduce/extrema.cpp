// amax, amin, aminmax.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/extrema.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <utility>

#include "backends/cpu/reduce/extremum_runs-inl.h"
#include "backends/cpu/reduce/reduction-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

template <class T, Extreme E>
struct Extremum {
  using Loaded = T;
  using Accumulator = T;
  static void start(T& a) { a = extreme_start<E, T>(); }
  static void row(T& a, const T* x, int64_t n, int64_t, const void*) { merge(a, extreme_of_run<E>(x, n)); }
  static void columns(T* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t, const void*) {
    extreme_of_columns<E>(a, x, columns, row_stride, count);
  }
  static void merge(T& a, T b) {
    if (more_extreme<E>(b, a)) a = b;
  }
  static T result(T a, int64_t, const void*) { return a; }
};

template <class T>
struct MinAndMax {
  using Low = Extremum<T, Extreme::Min>;
  using High = Extremum<T, Extreme::Max>;
  using Loaded = T;
  struct Accumulator {
    T low, high;
  };
  static void start(Accumulator& a) {
    Low::start(a.low);
    High::start(a.high);
  }
  static void row(Accumulator& a, const T* x, int64_t n, int64_t first, const void*) {
    constexpr int64_t kChunk = 4096;  // stays in the cache for the second look
    for (int64_t i = 0; i < n; i += kChunk) {
      Low::row(a.low, x + i, std::min(kChunk, n - i), first, nullptr);
      High::row(a.high, x + i, std::min(kChunk, n - i), first, nullptr);
    }
  }
  static void columns(Accumulator* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void*) {
    constexpr int64_t kBlock = 256;
    T low[kBlock], high[kBlock];
    for (int64_t j = 0; j < columns; j += kBlock) {
      const int64_t n = std::min(kBlock, columns - j);
      for (int64_t i = 0; i < n; ++i) {
        low[i] = a[j + i].low;
        high[i] = a[j + i].high;
      }
      for (int64_t r = 0; r < count; r += 16) {
        extreme_of_columns<Extreme::Min>(low, x + r * row_stride + j, n, row_stride, std::min<int64_t>(16, count - r));
        extreme_of_columns<Extreme::Max>(high, x + r * row_stride + j, n, row_stride, std::min<int64_t>(16, count - r));
      }
      for (int64_t i = 0; i < n; ++i) a[j + i] = {low[i], high[i]};
    }
  }
  static void merge(Accumulator& a, const Accumulator& b) {
    Low::merge(a.low, b.low);
    High::merge(a.high, b.high);
  }
  static std::pair<T, T> results(const Accumulator& a, int64_t, const void*) { return {a.low, a.high}; }
};

template <Extreme E>
void extremum(const char* op, const TensorView& out, const TensorView& self, uint64_t dims) {
  const TensorView* outputs[] = {&out};
  visit_loaded_ordered(op, self.dtype, [&]<class T>(Tag<T>) {
    const ElementLoad& load = load_as_stored(op, self.dtype);
    visit_stored<T>(op, out.dtype, [&]<class Out>(Tag<Out>) {
      constexpr Reduction reduction = reduction_of<Extremum<T, E>>(finish_all<Extremum<T, E>, Out>);
      run_reduction(reduction, load, outputs, self, dims);
    });
  });
}

void amax_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  extremum<Extreme::Max>("max_values_cpu", out, self, dims);
}
void amin_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  extremum<Extreme::Min>("min_values_cpu", out, self, dims);
}

void aminmax_kernel(const TensorView& min, const TensorView& max, const TensorView& self, uint64_t dims) {
  const TensorView* outputs[] = {&min, &max};
  visit_loaded_ordered("aminmax_cpu", self.dtype, [&]<class T>(Tag<T>) {
    const ElementLoad& load = load_as_stored("aminmax_cpu", self.dtype);
    visit_stored<T>("aminmax_cpu", min.dtype, [&]<class Out>(Tag<Out>) {
      constexpr Reduction reduction = reduction_of<MinAndMax<T>>(finish_pairs<MinAndMax<T>, Out, Out>, 2);
      run_reduction(reduction, load, outputs, self, dims);
    });
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(amax_kernel);
HWY_EXPORT(amin_kernel);
HWY_EXPORT(aminmax_kernel);
MICA_REGISTER_SIMD(reduce_amax, amax_kernel);
MICA_REGISTER_SIMD(reduce_amin, amin_kernel);
MICA_REGISTER_SIMD(reduce_aminmax, aminmax_kernel);
}  // namespace mica::cpu
#endif
