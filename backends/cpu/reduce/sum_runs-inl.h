// Sums of contiguous runs and of columns. Vectors add in blocks short enough to keep rounding errors small; blocks of
// floats meet in doubles, blocks of doubles in a compensated sum.

#if defined(MICA_CPU_REDUCE_SUM_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_REDUCE_SUM_RUNS_INL_H_
#undef MICA_CPU_REDUCE_SUM_RUNS_INL_H_
#else
#define MICA_CPU_REDUCE_SUM_RUNS_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "backends/cpu/simd/lanes-inl.h"
#include "backends/cpu/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The function that maps an element before it is summed. It maps zero to zero.
struct Itself {
  template <class D, class V>
  static HWY_INLINE V map(D, V v) {
    return v;
  }
};
struct NanAsZero {
  template <class D, class V>
  static HWY_INLINE V map(D, V v) {
    return hn::IfThenElseZero(hn::Eq(v, v), v);
  }
};
struct Magnitude {
  template <class D, class V>
  static HWY_INLINE V map(D, V v) {
    return hn::Abs(v);
  }
};

// A sum of doubles with the rounding errors kept apart.
struct Compensated {
  double sum, error;
  HWY_INLINE void add(double v) {
    const double total = sum + v, from_v = total - sum;
    error += (sum - (total - from_v)) + (v - from_v);
    sum = total;
  }
  // At infinity the error is NaN, and the sum is right without it.
  HWY_INLINE double value() const { return std::isfinite(error) ? sum + error : sum; }
};

// Sums of complex numbers, whose parts lie side by side: a run of them is a run of twice as many numbers.
struct ComplexSum {
  double re, im;
};
struct CompensatedComplex {
  Compensated re, im;
};

// The running total of vectors. (Constructors that the compiler writes would not be compiled for the target.)
template <class D>
struct VectorTotal;

template <FloatLanes D>
struct VectorTotal<D> {
  using DD = hn::Repartition<double, D>;
  hn::VFromD<DD> lower, upper;
  HWY_INLINE VectorTotal() : lower(hn::Zero(DD())), upper(hn::Zero(DD())) {}
  HWY_INLINE void add(hn::VFromD<D> v) {
    const hn::Half<D> dh;
    lower = hn::Add(lower, hn::PromoteTo(DD(), hn::LowerHalf(dh, v)));
    upper = hn::Add(upper, hn::PromoteTo(DD(), hn::UpperHalf(dh, v)));
  }
  HWY_INLINE void add_to(double& total) const { total += hn::GetLane(hn::SumOfLanes(DD(), hn::Add(lower, upper))); }
  HWY_INLINE void add_to(ComplexSum& total) const {
    HWY_ALIGN double sums[hn::MaxLanes(DD())];
    hn::Store(hn::Add(lower, upper), DD(), sums);
    for (size_t i = 0; i < hn::Lanes(DD()); i += 2) {
      total.re += sums[i];
      total.im += sums[i + 1];
    }
  }
};

template <DoubleLanes D>
struct VectorTotal<D> {
  hn::VFromD<D> sum, error;
  HWY_INLINE VectorTotal() : sum(hn::Zero(D())), error(hn::Zero(D())) {}
  HWY_INLINE void add(hn::VFromD<D> v) {
    const auto t = two_sum(sum, v);
    sum = t.hi;
    error = hn::Add(error, t.lo);
  }
  HWY_INLINE void add_to(Compensated& total) const {
    HWY_ALIGN double sums[hn::MaxLanes(D())];
    hn::Store(sum, D(), sums);
    for (size_t i = 0; i < hn::Lanes(D()); ++i) total.add(sums[i]);
    total.error += hn::GetLane(hn::SumOfLanes(D(), error));
  }
  HWY_INLINE void add_to(CompensatedComplex& total) const {
    HWY_ALIGN double sums[hn::MaxLanes(D())], errors[hn::MaxLanes(D())];
    hn::Store(sum, D(), sums);
    hn::Store(error, D(), errors);
    for (size_t i = 0; i < hn::Lanes(D()); ++i) {
      Compensated& part = i % 2 ? total.im : total.re;
      part.add(sums[i]);
      part.error += errors[i];
    }
  }
};

template <class V>
HWY_INLINE V sum_of_eight(V a, V b, V c, V d, V e, V f, V g, V h) {
  return hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, d)), hn::Add(hn::Add(e, f), hn::Add(g, h)));
}

// Adds the number v with the index i in its run.
HWY_INLINE void add_one(double& total, double v, int64_t = 0) { total += v; }
HWY_INLINE void add_one(Compensated& total, double v, int64_t = 0) { total.add(v); }
HWY_INLINE void add_one(ComplexSum& total, double v, int64_t i) { (i % 2 ? total.im : total.re) += v; }
HWY_INLINE void add_one(CompensatedComplex& total, double v, int64_t i) { (i % 2 ? total.im : total.re).add(v); }

// Adds x[0..n) to total: a double for floats, a Compensated for doubles, or the same for the parts of complex numbers.
template <class Map, class T, class Total>
HWY_INLINE void sum_run(const T* x, int64_t n, Total& result) {
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), step = 8 * lanes;
  if (n < 8) {
    const hn::CappedTag<T, 1> d1;
    for (int64_t i = 0; i < n; ++i) add_one(result, hn::GetLane(Map::map(d1, hn::LoadU(d1, x + i))), i);
    return;
  }
  VectorTotal<decltype(d)> total;
  int64_t i = 0;
  while (n - i >= step) {
    const int64_t end = i + std::min<int64_t>((n - i) / step, 16) * step;
#define MICA_AT(k) Map::map(d, hn::LoadU(d, x + i + k * lanes))
    V a = MICA_AT(0), b = MICA_AT(1), c = MICA_AT(2), e = MICA_AT(3), f = MICA_AT(4), g = MICA_AT(5), h = MICA_AT(6),
      k = MICA_AT(7);
    for (i += step; i < end; i += step) {
      a = hn::Add(a, MICA_AT(0));
      b = hn::Add(b, MICA_AT(1));
      c = hn::Add(c, MICA_AT(2));
      e = hn::Add(e, MICA_AT(3));
      f = hn::Add(f, MICA_AT(4));
      g = hn::Add(g, MICA_AT(5));
      h = hn::Add(h, MICA_AT(6));
      k = hn::Add(k, MICA_AT(7));
    }
#undef MICA_AT
    total.add(sum_of_eight(a, b, c, e, f, g, h, k));
  }
  if (i < n) {
    V rest = hn::Zero(d);
    for (; i + lanes <= n; i += lanes) rest = hn::Add(rest, Map::map(d, hn::LoadU(d, x + i)));
    if (i < n) rest = hn::Add(rest, Map::map(d, load_first(d, x + i, n - i)));
    total.add(rest);
  }
  total.add_to(result);
}

#if HWY_TARGET <= HWY_AVX3
// The same as sum_run() for each of a vector of neighbouring columns, with the same bits: a lane of a vector there is a
// vector of columns here. Adds the sums to total[column]. For vectors of sixteen floats.
HWY_INLINE void sum_run_of_columns(const float* x, int64_t row_stride, int64_t n, double* result) {
  constexpr int64_t kLanes = 16, kStep = 8 * kLanes;
  const hn::FixedTag<float, 16> d;
  const hn::FixedTag<double, 8> dd;
  const hn::Half<decltype(d)> dh;
  HWY_ALIGN double totals[kLanes][kLanes] = {};  // by lane, then column
  const auto add = [&](int64_t lane, auto sum) HWY_ATTR {
    double* to = totals[lane];
    hn::Store(hn::Add(hn::Load(dd, to), hn::PromoteTo(dd, hn::LowerHalf(dh, sum))), dd, to);
    hn::Store(hn::Add(hn::Load(dd, to + 8), hn::PromoteTo(dd, hn::UpperHalf(dh, sum))), dd, to + 8);
  };
  int64_t i = 0;
  while (n - i >= kStep) {
    const int64_t end = i + std::min<int64_t>((n - i) / kStep, 16) * kStep;
    for (int64_t lane = 0; lane < kLanes; ++lane) {
#define MICA_AT(k) hn::LoadU(d, x + (at + k * kLanes) * row_stride)
      int64_t at = i + lane;
      auto a = MICA_AT(0), b = MICA_AT(1), c = MICA_AT(2), e = MICA_AT(3), f = MICA_AT(4), g = MICA_AT(5),
           h = MICA_AT(6), k = MICA_AT(7);
      for (at += kStep; at < end; at += kStep) {
        a = hn::Add(a, MICA_AT(0));
        b = hn::Add(b, MICA_AT(1));
        c = hn::Add(c, MICA_AT(2));
        e = hn::Add(e, MICA_AT(3));
        f = hn::Add(f, MICA_AT(4));
        g = hn::Add(g, MICA_AT(5));
        h = hn::Add(h, MICA_AT(6));
        k = hn::Add(k, MICA_AT(7));
      }
#undef MICA_AT
      add(lane, sum_of_eight(a, b, c, e, f, g, h, k));
    }
    i = end;
  }
  for (int64_t lane = 0; lane < kLanes && i + lane < n; ++lane) {
    auto rest = hn::Zero(d);
    for (int64_t at = i + lane; at < n; at += kLanes) rest = hn::Add(rest, hn::LoadU(d, x + at * row_stride));
    add(lane, rest);
  }
  // The lanes of doubles, and then their sum, as VectorTotal::add_to() has them.
  for (int64_t half = 0; half < kLanes; half += 8) {
    const auto lanes = [&](int64_t k) HWY_ATTR {
      return hn::Add(hn::Load(dd, totals[k] + half), hn::Load(dd, totals[k + 8] + half));
    };
    const auto even = hn::Add(hn::Add(lanes(0), lanes(4)), hn::Add(lanes(2), lanes(6)));
    const auto odd = hn::Add(hn::Add(lanes(1), lanes(5)), hn::Add(lanes(3), lanes(7)));
    hn::StoreU(hn::Add(hn::LoadU(dd, result + half), hn::Add(even, odd)), dd, result + half);
  }
}
#endif

template <class V, class D>
HWY_INLINE void add_columns(double* total, D, V v) {
  const hn::Repartition<double, D> dd;
  const hn::Half<D> dh;
  const size_t half = hn::Lanes(dd);
  hn::StoreU(hn::Add(hn::LoadU(dd, total), hn::PromoteTo(dd, hn::LowerHalf(dh, v))), dd, total);
  hn::StoreU(hn::Add(hn::LoadU(dd, total + half), hn::PromoteTo(dd, hn::UpperHalf(dh, v))), dd, total + half);
}

template <class V, class D>
HWY_INLINE void add_columns(Compensated* total, D d, V v) {
  static_assert(sizeof(Compensated) == 2 * sizeof(double));
  V sum, error;
  hn::LoadInterleaved2(d, &total->sum, sum, error);
  const Pair<V> next = two_sum(sum, v);
  hn::StoreInterleaved2(next.hi, hn::Add(error, next.lo), d, &total->sum);
}

// Adds x[j], x[j + row_stride]... (count of them) to total[j], for every column j.
template <class Map, class T, class Total>
HWY_INLINE void sum_columns(const T* x, int64_t columns, int64_t row_stride, int64_t count, Total* total) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t r = 0;
  for (; r + 8 <= count; r += 8) {
    const T* p = x + r * row_stride;
    int64_t j = 0;
#define MICA_ROW(k) Map::map(d, hn::LoadU(d, p + k * row_stride + j))
    for (; j + lanes <= columns; j += lanes)
      add_columns(total + j, d,
                  sum_of_eight(MICA_ROW(0), MICA_ROW(1), MICA_ROW(2), MICA_ROW(3), MICA_ROW(4), MICA_ROW(5),
                               MICA_ROW(6), MICA_ROW(7)));
#undef MICA_ROW
#define MICA_ROW(k) Map::map(d1, hn::LoadU(d1, p + k * row_stride + j))
    for (; j < columns; ++j)
      add_one(total[j], hn::GetLane(sum_of_eight(MICA_ROW(0), MICA_ROW(1), MICA_ROW(2), MICA_ROW(3), MICA_ROW(4),
                                                 MICA_ROW(5), MICA_ROW(6), MICA_ROW(7))));
#undef MICA_ROW
  }
  for (; r < count; ++r) {
    const T* p = x + r * row_stride;
    int64_t j = 0;
    for (; j + lanes <= columns; j += lanes) add_columns(total + j, d, Map::map(d, hn::LoadU(d, p + j)));
    for (; j < columns; ++j) add_one(total[j], hn::GetLane(Map::map(d1, hn::LoadU(d1, p + j))));
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
