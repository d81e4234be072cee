// all, any, count_nonzero: over bytes that say whether an element is different from zero.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reduce/truth.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "backends/cpu/reduce/reduction-inl.h"
#include "backends/cpu/simd_register.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Stops looking at the first byte that decides: a zero for all, a one for any.
template <bool kAll>
struct Truth {
  using Loaded = uint8_t;
  using Accumulator = uint8_t;
  static void start(uint8_t& a) { a = kAll; }
  static void row(uint8_t& a, const uint8_t* x, int64_t n, int64_t, const void*) {
    if (a == kAll && n > 0 && std::memchr(x, kAll ? 0 : 1, n)) a = !kAll;
  }
  static void columns(uint8_t* a, const uint8_t* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void*) {
    for (int64_t r = 0; r < count; ++r) {
      const uint8_t* p = x + r * row_stride;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) a[j] = kAll ? a[j] & p[j] : a[j] | p[j];
    }
  }
  static void merge(uint8_t& a, uint8_t b) { a = kAll ? a & b : a | b; }
  static bool result(uint8_t a, int64_t, const void*) { return a; }
};

struct CountNonzero {
  using Loaded = uint8_t;
  using Accumulator = int64_t;
  static void start(int64_t& a) { a = 0; }
  static void row(int64_t& a, const uint8_t* x, int64_t n, int64_t, const void*) {
    const hn::ScalableTag<uint8_t> d;
    const hn::Repartition<uint64_t, decltype(d)> d64;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    auto total = hn::Zero(d64);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) total = hn::Add(total, hn::SumsOf8(hn::LoadU(d, x + i)));
    a += static_cast<int64_t>(hn::GetLane(hn::SumOfLanes(d64, total)));
    for (; i < n; ++i) a += x[i];
  }
  static void columns(int64_t* a, const uint8_t* x, int64_t columns, int64_t row_stride, int64_t count, int64_t,
                      const void*) {
    for (int64_t r = 0; r < count; ++r) {
      const uint8_t* p = x + r * row_stride;
#pragma GCC ivdep
      for (int64_t j = 0; j < columns; ++j) a[j] += p[j];
    }
  }
  static void merge(int64_t& a, int64_t b) { a += b; }
  static int64_t result(int64_t a, int64_t, const void*) { return a; }
};

template <bool kAll>
void truth(const TensorView& out, const TensorView& self, uint64_t dims) {
  const TensorView* outputs[] = {&out};
  constexpr Reduction as_bool = reduction_of<Truth<kAll>>(finish_all<Truth<kAll>, bool>);
  constexpr Reduction as_uint8 = reduction_of<Truth<kAll>>(finish_all<Truth<kAll>, uint8_t>);
  run_reduction(out.dtype == DType::Bool ? as_bool : as_uint8, load_flag(self.dtype), outputs, self, dims);
}

void all_kernel(const TensorView& out, const TensorView& self, uint64_t dims) { truth<true>(out, self, dims); }
void any_kernel(const TensorView& out, const TensorView& self, uint64_t dims) { truth<false>(out, self, dims); }

void count_nonzero_kernel(const TensorView& out, const TensorView& self, uint64_t dims) {
  const TensorView* outputs[] = {&out};
  constexpr Reduction reduction = reduction_of<CountNonzero>(finish_all<CountNonzero, int64_t>);
  run_reduction(reduction, load_flag(self.dtype), outputs, self, dims);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(all_kernel);
HWY_EXPORT(any_kernel);
HWY_EXPORT(count_nonzero_kernel);
MICA_REGISTER_SIMD(reduce_all, all_kernel);
MICA_REGISTER_SIMD(reduce_any, any_kernel);
MICA_REGISTER_SIMD(reduce_count_nonzero, count_nonzero_kernel);
}  // namespace mica::cpu
#endif
