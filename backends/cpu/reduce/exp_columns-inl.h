// Sums of exponentials down many columns at once, each around the largest element of its column so far.

#if defined(MICA_CPU_REDUCE_EXP_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_REDUCE_EXP_COLUMNS_INL_H_
#undef MICA_CPU_REDUCE_EXP_COLUMNS_INL_H_
#else
#define MICA_CPU_REDUCE_EXP_COLUMNS_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/reduce/extremum_runs-inl.h"
#include "backends/cpu/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// `sum` is of exp(x - largest). Where the largest is infinite or NaN, the sum has no meaning.
template <class C>
struct ColumnExponentials {
  static constexpr int64_t kColumns = 1024;
  static constexpr int64_t kRows = 8;

  alignas(64) C largest[kColumns];
  alignas(64) double sum[kColumns];

  void start(int64_t columns) {
    std::fill_n(largest, columns, extreme_start<Extreme::Max, C>());
    std::fill_n(sum, columns, 0.0);
  }

  // At most kRows rows, so that the second look at them finds them in the cache.
  void add_rows(const C* x, int64_t columns, int64_t row_stride, int64_t rows) {
    const hn::ScalableTag<C> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    alignas(64) C next[kColumns], factor[kColumns], part[kColumns];
    std::copy_n(largest, columns, next);
    extreme_of_columns<Extreme::Max>(next, x, columns, row_stride, rows);
    for (int64_t j = 0; j < columns; j += lanes) {
      const int64_t count = std::min(lanes, columns - j);
      const auto top = load_first(d, next + j, count);
      const auto shift = hn::IfThenElseZero(hn::IsFinite(top), top);
      hn::Store(exp_nonpositive(d, hn::Sub(load_first(d, largest + j, count), shift)), d, factor + j);
      auto total = hn::Zero(d);
      for (int64_t r = 0; r < rows; ++r)
        total = hn::Add(total, exp_nonpositive(d, hn::Sub(load_first(d, x + r * row_stride + j, count), shift)));
      hn::Store(total, d, part + j);
    }
    for (int64_t j = 0; j < columns; ++j) sum[j] = sum[j] * factor[j] + part[j];
    std::copy_n(next, columns, largest);
  }
};

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
