// Runs of elements of one channel: their moments, the sums that gradients need, and the linear maps of normalisations.

#if defined(MICA_CPU_NORMALIZATION_SLABS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_NORMALIZATION_SLABS_INL_H_
#undef MICA_CPU_NORMALIZATION_SLABS_INL_H_
#else
#define MICA_CPU_NORMALIZATION_SLABS_INL_H_
#endif

#include "backends/cpu/reduce/moments-inl.h"
#include "backends/cpu/softmax/row_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Moments of several runs, each added to the same vector of sums. Runs are short where channels are many.
template <class C>
class MomentSums {
 public:
  MomentSums() { clear(); }

  void add(const C* x, int64_t n) {
    const Doubles d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    while (n > 0) {
      if (count_ == 0) shift_ = static_cast<double>(x[0]);
      const int64_t take = std::min(n, kMost - count_);
      const DoubleVector shift = hn::Set(d, shift_);
      int64_t i = 0;
      for (; i + 2 * lanes <= take; i += 2 * lanes) {
        const DoubleVector a = hn::Sub(load_wide(x + i), shift), b = hn::Sub(load_wide(x + i + lanes), shift);
        sum0_ = hn::Add(sum0_, a);
        sum1_ = hn::Add(sum1_, b);
        squares0_ = hn::MulAdd(a, a, squares0_);
        squares1_ = hn::MulAdd(b, b, squares1_);
      }
      for (; i < take; i += lanes) {
        const int64_t rest = std::min(lanes, take - i);
        const DoubleVector v = hn::IfThenElseZero(hn::FirstN(d, rest), hn::Sub(load_wide_first(x + i, rest), shift));
        sum0_ = hn::Add(sum0_, v);
        squares0_ = hn::MulAdd(v, v, squares0_);
      }
      count_ += take;
      x += take;
      n -= take;
      if (count_ == kMost) flush();
    }
  }

  Moments finish() {
    flush();
    return total_;
  }

 private:
  // As many as can be summed around one shift without loss.
  static constexpr int64_t kMost = sizeof(C) == 4 ? 8192 : 512;

  void flush() {
    if (count_ == 0) return;
    total_.add(moments_from_sums(static_cast<double>(count_), shift_, sum_lanes(hn::Add(sum0_, sum1_)),
                                 sum_lanes(hn::Add(squares0_, squares1_))));
    clear();
  }

  void clear() {
    sum0_ = sum1_ = squares0_ = squares1_ = hn::Zero(Doubles());
    count_ = 0;
  }

  DoubleVector sum0_, sum1_, squares0_, squares1_;
  double shift_ = 0;
  int64_t count_ = 0;
  Moments total_{0, 0, 0};
};

// The sums of g and of g * (x - mean) over runs of a channel.
class GradientSums {
 public:
  GradientSums() { sum0_ = sum1_ = product0_ = product1_ = hn::Zero(Doubles()); }

  template <class C>
  void add(const C* g, const C* x, int64_t n, double mean) {
    const Doubles d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const DoubleVector centre = hn::Set(d, mean);
    int64_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      const DoubleVector g0 = load_wide(g + i), g1 = load_wide(g + i + lanes);
      sum0_ = hn::Add(sum0_, g0);
      sum1_ = hn::Add(sum1_, g1);
      product0_ = hn::MulAdd(g0, hn::Sub(load_wide(x + i), centre), product0_);
      product1_ = hn::MulAdd(g1, hn::Sub(load_wide(x + i + lanes), centre), product1_);
    }
    for (; i < n; i += lanes) {
      const int64_t rest = std::min(lanes, n - i);
      const DoubleVector g0 = load_wide_first(g + i, rest);
      sum0_ = hn::Add(sum0_, g0);
      product0_ = hn::MulAdd(g0, hn::Sub(load_wide_first(x + i, rest), centre), product0_);
    }
  }
  double sum() const { return sum_lanes(hn::Add(sum0_, sum1_)); }
  double product() const { return sum_lanes(hn::Add(product0_, product1_)); }

 private:
  DoubleVector sum0_, sum1_, product0_, product1_;
};

// out = x * scale + shift
template <class C>
HWY_INLINE void scale_and_shift(const C* x, int64_t n, C scale, C shift, C* out) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vscale = hn::Set(d, scale), vshift = hn::Set(d, shift);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), vscale, vshift), d, out + i);
  if (i < n) store_first(hn::MulAdd(load_first(d, x + i, n - i), vscale, vshift), d, out + i, n - i);
}

// out = g * a + (x - mean) * b + c
template <class C>
HWY_INLINE void combine_gradient(const C* g, const C* x, int64_t n, C mean, C a, C b, C c, C* out) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto vmean = hn::Set(d, mean), va = hn::Set(d, a), vb = hn::Set(d, b), vc = hn::Set(d, c);
  const auto of = [&](auto gv, auto xv) { return hn::MulAdd(gv, va, hn::MulAdd(hn::Sub(xv, vmean), vb, vc)); };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(of(hn::LoadU(d, g + i), hn::LoadU(d, x + i)), d, out + i);
  if (i < n) store_first(of(load_first(d, g + i, n - i), load_first(d, x + i, n - i)), d, out + i, n - i);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
