// Mean and spread of a run, summed around a value of its own, in doubles.

#if defined(MICA_CPU_REDUCE_MOMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_REDUCE_MOMENTS_INL_H_
#undef MICA_CPU_REDUCE_MOMENTS_INL_H_
#else
#define MICA_CPU_REDUCE_MOMENTS_INL_H_
#endif

#include <algorithm>

#include "backends/cpu/reduce/wide_load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

struct Moments {
  double count, mean, squares;  // `squares` is the sum of squared distances from the mean

  void add(const Moments& b) {
    if (b.count == 0) return;
    const double total = count + b.count, delta = b.mean - mean;
    mean += delta * (b.count / total);
    squares += b.squares + delta * delta * (count * (b.count / total));
    count = total;
  }
};

// Moments from the sums of (x - shift) and (x - shift)^2. With the first element as shift little is lost in the
// difference: n (mean - x0)^2 is at most n times the result.
HWY_INLINE Moments moments_from_sums(double n, double shift, double sum, double sum_of_squares) {
  const double squares = sum_of_squares - sum * (sum / n);
  return {n, shift + sum / n, squares < 0 ? 0 : squares};
}

// Moments of x[0..n), n > 0.
template <class T>
HWY_INLINE Moments moments_of_run(const T* x, int64_t n) {
  const Doubles d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const double first = static_cast<double>(x[0]);
  const DoubleVector shift = hn::Set(d, first);
  DoubleVector s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, q0 = s0, q1 = s0, q2 = s0, q3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const DoubleVector v0 = hn::Sub(load_wide(x + i), shift), v1 = hn::Sub(load_wide(x + i + lanes), shift);
    const DoubleVector v2 = hn::Sub(load_wide(x + i + 2 * lanes), shift),
                       v3 = hn::Sub(load_wide(x + i + 3 * lanes), shift);
    s0 = hn::Add(s0, v0);
    s1 = hn::Add(s1, v1);
    s2 = hn::Add(s2, v2);
    s3 = hn::Add(s3, v3);
    q0 = hn::MulAdd(v0, v0, q0);
    q1 = hn::MulAdd(v1, v1, q1);
    q2 = hn::MulAdd(v2, v2, q2);
    q3 = hn::MulAdd(v3, v3, q3);
  }
  for (; i < n; i += lanes) {
    const int64_t rest = std::min(lanes, n - i);
    const DoubleVector v = hn::IfThenElseZero(hn::FirstN(d, rest), hn::Sub(load_wide_first(x + i, rest), shift));
    s0 = hn::Add(s0, v);
    q0 = hn::MulAdd(v, v, q0);
  }
  return moments_from_sums(static_cast<double>(n), first, sum_lanes(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))),
                           sum_lanes(hn::Add(hn::Add(q0, q1), hn::Add(q2, q3))));
}

// Moments of a whole run, in chunks that are short enough for sums around one shift.
template <class T>
HWY_INLINE void add_run(Moments& a, const T* x, int64_t n) {
  constexpr int64_t kChunk = sizeof(T) == 4 ? 8192 : 512;
  for (int64_t i = 0; i < n; i += kChunk) a.add(moments_of_run(x + i, std::min(kChunk, n - i)));
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
