// sum, mean, nansum.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/sum.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <vector>

#include "backends/cpu/reduce/reduction-inl.h"
#include "backends/cpu/reduce/sum_op-inl.h"
#include "backends/cpu/simd_register.h"
#include "core/interleaved.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Wraps around, and therefore adds unsigned.
template <class Map>
struct Sum<int64_t, Map> {
  using Loaded = uint64_t;
  using Accumulator = uint64_t;
  static void start(uint64_t& a) { a = 0; }
  static void row(uint64_t& a, const uint64_t* x, int64_t n, int64_t, const void*) {
    const hn::ScalableTag<uint64_t> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      s0 = hn::Add(s0, hn::LoadU(d, x + i));
      s1 = hn::Add(s1, hn::LoadU(d, x + i + lanes));
      s2 = hn::Add(s2, hn::LoadU(d, x + i + 2 * lanes));
      s3 = hn::Add(s3, hn::LoadU(d, x + i + 3 * lanes));
    }
    a += hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
    for (; i < n; ++i) a += x[i];
  }
  static void columns(uint64_t* a, const uint64_t* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void*) {
    // Four rows at a time: sums are read and written once for all of them.
    int64_t r = 0;
    for (; r + 4 <= count; r += 4) {
      const uint64_t *p0 = x + r * row_stride, *p1 = p0 + row_stride, *p2 = p1 + row_stride, *p3 = p2 + row_stride;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) a[j] += (p0[j] + p1[j]) + (p2[j] + p3[j]);
    }
    for (; r < count; ++r) {
      const uint64_t* p = x + r * row_stride;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) a[j] += p[j];
    }
  }
  static void merge(uint64_t& a, uint64_t b) { a += b; }
  static int64_t result(uint64_t a, int64_t, const void*) { return static_cast<int64_t>(a); }
};

template <class R, class Map>
struct Sum<std::complex<R>, Map> {
  static constexpr bool kFloats = std::is_same_v<R, float>;
  using Loaded = std::complex<R>;
  using Accumulator = std::conditional_t<kFloats, ComplexSum, CompensatedComplex>;
  using Part = std::conditional_t<kFloats, double, Compensated>;
  static const R* parts_of(const Loaded* x) { return reinterpret_cast<const R*>(x); }
  static void start(Accumulator& a) { a = {}; }
  static void row(Accumulator& a, const Loaded* x, int64_t n, int64_t, const void*) {
    sum_run<Map>(parts_of(x), 2 * n, a);
  }
  static void columns(Accumulator* a, const Loaded* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void*) {
    static_assert(sizeof(Accumulator) == 2 * sizeof(Part));
    sum_columns<Map>(parts_of(x), 2 * columns, 2 * row_stride, count, reinterpret_cast<Part*>(a));
  }
  static void merge(Accumulator& a, const Accumulator& b) {
    Sum<R, Map>::merge(a.re, b.re);
    Sum<R, Map>::merge(a.im, b.im);
  }
  static complex128 result(const Accumulator& a, int64_t count, const void* context) {
    return {Sum<R, Map>::result(a.re, count, context), Sum<R, Map>::result(a.im, count, context)};
  }
};

template <class T>
struct Mean : Sum<T> {
  static auto result(const typename Sum<T>::Accumulator& a, int64_t count, const void* context) {
    return Sum<T>::result(a, count, context) / static_cast<double>(count);
  }
};

// Several dtypes are loaded as T, and several may be written.
template <class Op, class T>
void run(const char* name, const TensorView& out, const TensorView& self, uint64_t dims) {
  const TensorView* outputs[] = {&out};
  visit_stored<T>(name, out.dtype, [&]<class Out>(Tag<Out>) {
    constexpr Reduction reduction = reduction_of<Op>(finish_all<Op, Out>);
    run_reduction(reduction, load_number(name, self.dtype), outputs, self, dims);
  });
}

void sum_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_loaded(self.dtype, [&]<class T>(Tag<T>) { run<Sum<T>, T>("sum_cpu", out, self, dims); });
}

void mean_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_loaded(self.dtype, [&]<class T>(Tag<T>) {
    if constexpr (!std::is_same_v<T, int64_t>) {
      run<Mean<T>, T>("mean_cpu", out, self, dims);
    } else {
      unsupported_dtype("mean_cpu", self.dtype);
    }
  });
}

// mica::recording::sum_positions
void sum_positions(const float* from, int64_t step, double* sums, int64_t channels, int64_t positions) {
  int64_t channel = 0;
#if HWY_TARGET <= HWY_AVX3
  for (constexpr int64_t kLanes = 16; channel + kLanes <= channels; channel += kLanes)
    sum_run_of_columns(from + channel, step, positions, sums + channel);
#endif
  std::vector<float> plane(static_cast<size_t>(channel < channels ? positions : 0));
  for (; channel < channels; ++channel) {
    for (int64_t i = 0; i < positions; ++i) plane[static_cast<size_t>(i)] = from[i * step + channel];
    sum_run<Itself>(plane.data(), positions, sums[channel]);
  }
}

void nansum_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  visit_loaded(self.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      run<Sum<T, NanAsZero>, T>("nansum_cpu", out, self, dims);
    } else {
      run<Sum<T>, T>("nansum_cpu", out, self, dims);
    }
  });
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(sum_kernel);
HWY_EXPORT(mean_kernel);
HWY_EXPORT(nansum_kernel);
HWY_EXPORT(sum_positions);
MICA_REGISTER_SIMD(reduce_sum, sum_kernel);
MICA_REGISTER_SIMD(reduce_mean, mean_kernel);
MICA_REGISTER_SIMD(reduce_nansum, nansum_kernel);
static void sum_positions(const float* from, int64_t step, double* sums, int64_t channels, int64_t positions) {
  HWY_DYNAMIC_DISPATCH(sum_positions)(from, step, sums, channels, positions);
}
}  // namespace mica::cpu

void mica::recording::sum_positions(const float* from, int64_t step, double* sums, int64_t channels,
                                    int64_t positions) {
  cpu::sum_positions(from, step, sums, channels, positions);
}
#endif
