// Sums of exponentials of elements that lie side by side, around the largest of them.

#if defined(MICA_CPU_REDUCE_EXP_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_REDUCE_EXP_RUNS_INL_H_
#undef MICA_CPU_REDUCE_EXP_RUNS_INL_H_
#else
#define MICA_CPU_REDUCE_EXP_RUNS_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Exponentials of several vectors of numbers that are not positive. Where none is far below 0, the vectors go through
// each step together, except with AVX-512.
template <class D, class V, size_t kCount>
HWY_INLINE void exp_of_nonpositive(D d, V (&x)[kCount]) {
  if constexpr (MICA_SIMD_AVX512) {
    for (V& v : x) v = exp_nonpositive(d, v);
  } else {
    exp(d, x);
  }
}

// The sum of exp(x - largest), where no x is larger; each term is also written to `out` if kWrite. Meanwhile the memory
// at `ahead` is fetched: arithmetic on this row then overlaps with waiting for what comes next.
template <bool kWrite, class C>
HWY_INLINE double sum_of_exponentials(const C* x, int64_t n, C largest, C* out, const C* ahead) {
  const hn::ScalableTag<C> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kChunk = 4096;  // as many exponentials as a sum of C takes without harm
  const V shift = hn::Set(d, largest);
  double total = 0;
  for (int64_t i = 0; i < n;) {
    const int64_t end = std::min(n, i + kChunk);
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      for (int64_t k = 0; k < 4 * lanes; k += 64 / static_cast<int64_t>(sizeof(C))) __builtin_prefetch(ahead + i + k);
      V e[4];
      for (int64_t k = 0; k < 4; ++k) e[k] = hn::Sub(hn::LoadU(d, x + i + k * lanes), shift);
      exp_of_nonpositive(d, e);
      if constexpr (kWrite)
        for (int64_t k = 0; k < 4; ++k) hn::StoreU(e[k], d, out + i + k * lanes);
      s0 = hn::Add(s0, e[0]);
      s1 = hn::Add(s1, e[1]);
      s2 = hn::Add(s2, e[2]);
      s3 = hn::Add(s3, e[3]);
    }
    for (; i < end; i += lanes) {
      const int64_t rest = std::min(lanes, end - i);
      const V e = exp_nonpositive(d, hn::Sub(load_first(d, x + i, rest), shift));
      if constexpr (kWrite) store_first(e, d, out + i, rest);
      s0 = hn::Add(s0, hn::IfThenElseZero(hn::FirstN(d, rest), e));
    }
    i = end;
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)))));
  }
  return total;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
