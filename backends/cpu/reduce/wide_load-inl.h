// Floats and doubles as vectors of doubles.

#if defined(MICA_CPU_REDUCE_WIDE_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_REDUCE_WIDE_LOAD_INL_H_
#undef MICA_CPU_REDUCE_WIDE_LOAD_INL_H_
#else
#define MICA_CPU_REDUCE_WIDE_LOAD_INL_H_
#endif

#include "backends/cpu/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using DoubleVector = hn::VFromD<Doubles>;

HWY_INLINE DoubleVector load_wide(const double* x) { return hn::LoadU(Doubles(), x); }
HWY_INLINE DoubleVector load_wide(const float* x) {
  return hn::PromoteTo(Doubles(), hn::LoadU(hn::Rebind<float, Doubles>(), x));
}

// The first n lanes, zeros behind them.
HWY_INLINE DoubleVector load_wide_first(const double* x, int64_t n) { return load_first(Doubles(), x, n); }
HWY_INLINE DoubleVector load_wide_first(const float* x, int64_t n) {
  return hn::PromoteTo(Doubles(), load_first(hn::Rebind<float, Doubles>(), x, n));
}

HWY_INLINE double sum_lanes(DoubleVector v) { return hn::GetLane(hn::SumOfLanes(Doubles(), v)); }

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
