// argmax, argmin, max and min with indices: the extremum of a dimension together with the first place where it stands.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/places.cpp"
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
struct Place {
  using Loaded = T;
  struct Accumulator {
    T value;
    int64_t index;  // -1 before the first element
  };
  static void start(Accumulator& a) { a = {extreme_start<E, T>(), -1}; }

  // Finds the extremum of a chunk first. Only where it is new does it look for the place, in the chunk that is still in
  // the cache.
  static void row(Accumulator& a, const T* x, int64_t n, int64_t first, const void*) {
    constexpr int64_t kChunk = 4096;
    for (int64_t i = 0; i < n; i += kChunk) {
      const int64_t count = std::min(kChunk, n - i);
      const T best = extreme_of_run<E>(x + i, count);
      if (a.index < 0 || more_extreme<E>(best, a.value)) a = {best, first + i + find_first(x + i, count, best)};
    }
  }

  static void columns(Accumulator* a, const T* x, int64_t columns, int64_t row_stride, int64_t count, int64_t first,
                      const void*) {
    // Indices have the width of the values, so that they share vector lanes. As many rows are taken at a time as such
    // an index can count.
    using Index = std::conditional_t<
        sizeof(T) == 1, uint8_t,
        std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>>;
    constexpr int64_t kBlock = 256, kRows = sizeof(T) == 1 ? 255 : sizeof(T) == 2 ? 65535 : int64_t{1} << 30;
    alignas(64) T best[kBlock];
    alignas(64) Index place[kBlock];
    for (int64_t from = 0; from < count; from += kRows) {
      const int64_t rows = std::min(kRows, count - from);
      for (int64_t j = 0; j < columns; j += kBlock) {
        const T* p = x + from * row_stride + j;
        const int64_t n = std::min(kBlock, columns - j);
        for (int64_t i = 0; i < n; ++i) {
          best[i] = p[i];
          place[i] = 0;
        }
        for (int64_t r = 1; r < rows; ++r) {
          const T* q = p + r * row_stride;
          const Index here = static_cast<Index>(r);
          for (int64_t i = 0; i < n; ++i) {
            const bool better = more_extreme<E>(q[i], best[i]);
            best[i] = better ? q[i] : best[i];
            place[i] = better ? here : place[i];
          }
        }
        for (int64_t i = 0; i < n; ++i) merge(a[j + i], {best[i], first + from + place[i]});
      }
    }
  }

  // b comes after a.
  static void merge(Accumulator& a, const Accumulator& b) {
    if (b.index >= 0 && (a.index < 0 || more_extreme<E>(b.value, a.value))) a = b;
  }
  static int64_t result(const Accumulator& a, int64_t, const void*) { return a.index; }
  static std::pair<T, int64_t> results(const Accumulator& a, int64_t, const void*) { return {a.value, a.index}; }
};

template <Extreme E>
void place(const char* op, const TensorView& out, const TensorView& self, uint64_t dims) {
  const TensorView* outputs[] = {&out};
  visit_loaded_ordered(op, self.dtype, [&]<class T>(Tag<T>) {
    constexpr Reduction reduction = reduction_of<Place<T, E>>(finish_all<Place<T, E>, int64_t>, 1, true);
    run_reduction(reduction, load_as_stored(op, self.dtype), outputs, self, dims);
  });
}

template <Extreme E>
void value_and_place(const char* op, const TensorView& values, const TensorView& indices, const TensorView& self,
                     uint64_t dims) {
  const TensorView* outputs[] = {&values, &indices};
  visit_loaded_ordered(op, self.dtype, [&]<class T>(Tag<T>) {
    const ElementLoad& load = load_as_stored(op, self.dtype);
    visit_stored<T>(op, values.dtype, [&]<class Out>(Tag<Out>) {
      constexpr Reduction reduction = reduction_of<Place<T, E>>(finish_pairs<Place<T, E>, Out, int64_t>, 2, true);
      run_reduction(reduction, load, outputs, self, dims);
    });
  });
}

void argmax_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  place<Extreme::Max>("argmax_cpu", out, self, dims);
}
void argmin_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  place<Extreme::Min>("argmin_cpu", out, self, dims);
}
void max_kernel(const TensorView& values, const TensorView& indices, const TensorView& self, uint64_t dims) {
  value_and_place<Extreme::Max>("max_cpu", values, indices, self, dims);
}
void min_kernel(const TensorView& values, const TensorView& indices, const TensorView& self, uint64_t dims) {
  value_and_place<Extreme::Min>("min_cpu", values, indices, self, dims);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(argmax_kernel);
HWY_EXPORT(argmin_kernel);
HWY_EXPORT(max_kernel);
HWY_EXPORT(min_kernel);
MICA_REGISTER_SIMD(reduce_argmax, argmax_kernel);
MICA_REGISTER_SIMD(reduce_argmin, argmin_kernel);
MICA_REGISTER_SIMD(reduce_max_with_index, max_kernel);
MICA_REGISTER_SIMD(reduce_min_with_index, min_kernel);
}  // namespace mica::cpu
#endif
