// The largest or smallest of a run, and where it stands. A NaN is more extreme than any number, in both directions.

#if defined(MICA_CPU_REDUCE_EXTREMUM_RUNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_REDUCE_EXTREMUM_RUNS_INL_H_
#undef MICA_CPU_REDUCE_EXTREMUM_RUNS_INL_H_
#else
#define MICA_CPU_REDUCE_EXTREMUM_RUNS_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <type_traits>

#include "backends/cpu/simd/lanes-inl.h"
#include "backends/cpu/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

enum class Extreme { Max, Min };

// The value that no element is less extreme than.
template <Extreme E, class T>
constexpr T extreme_start() {
  using Limits = std::numeric_limits<T>;
  if constexpr (Limits::has_infinity) {
    return E == Extreme::Max ? -Limits::infinity() : Limits::infinity();
  } else {
    return E == Extreme::Max ? Limits::min() : Limits::max();
  }
}

// Whether x must replace the extremum so far; false for equal ones, so that the first stays.
template <Extreme E, class T>
HWY_INLINE bool more_extreme(T x, T best) {
  if constexpr (std::is_floating_point_v<T>) {
    return (E == Extreme::Max ? !(x <= best) : !(x >= best)) & (best == best);
  } else {
    return E == Extreme::Max ? x > best : x < best;
  }
}

// A NaN in `best` stays.
template <Extreme E, class V>
HWY_INLINE V extreme_lanes(V best, V x) {
  if constexpr (std::is_integral_v<hn::TFromV<V>>) {
    return E == Extreme::Max ? hn::Max(x, best) : hn::Min(x, best);
  } else {
    const V chosen = E == Extreme::Max ? larger_or_nan(x, best) : smaller_or_nan(x, best);
#if HWY_ARCH_ARM_A64
    return chosen;  // NaN from either side
#else
    return hn::IfThenElse(hn::IsNaN(x), x, chosen);
#endif
  }
}

template <Extreme E, class T>
HWY_INLINE T extreme_of_run(const T* x, int64_t n) {
  T best = extreme_start<E, T>();
  int64_t i = 0;
  const hn::ScalableTag<T> d;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V a = hn::Set(d, best);
  if (n < lanes) {
    if constexpr (std::is_integral_v<T>) {
      for (; i < n; ++i) best = more_extreme<E>(x[i], best) ? x[i] : best;
      return best;
    }
    a = hn::IfThenElse(hn::FirstN(d, n), load_first(d, x, n), a);
  } else {
    V b = a, c = a, e = a;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
      a = extreme_lanes<E>(a, hn::LoadU(d, x + i));
      b = extreme_lanes<E>(b, hn::LoadU(d, x + i + lanes));
      c = extreme_lanes<E>(c, hn::LoadU(d, x + i + 2 * lanes));
      e = extreme_lanes<E>(e, hn::LoadU(d, x + i + 3 * lanes));
    }
    for (; i + lanes <= n; i += lanes) a = extreme_lanes<E>(a, hn::LoadU(d, x + i));
    if (i < n) a = extreme_lanes<E>(a, hn::LoadU(d, x + n - lanes));  // elements may be read twice
    a = extreme_lanes<E>(extreme_lanes<E>(a, b), extreme_lanes<E>(c, e));
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (!hn::AllFalse(d, hn::IsNaN(a))) return std::numeric_limits<T>::quiet_NaN();
    return hn::GetLane(E == Extreme::Max ? hn::MaxOfLanes(d, a) : hn::MinOfLanes(d, a));
  } else {
    HWY_ALIGN T each[hn::MaxLanes(d)];
    hn::Store(a, d, each);
    for (i = 0; i < lanes; ++i) best = more_extreme<E>(each[i], best) ? each[i] : best;
    return best;
  }
}

// best[j] becomes the extremum of itself and the column x[j], x[j + row_stride]...
template <Extreme E, class T>
HWY_INLINE void extreme_of_columns(T* best, const T* x, int64_t columns, int64_t row_stride, int64_t count) {
  for (int64_t r = 0; r < count; ++r) {
    const T* p = x + r * row_stride;
    int64_t j = 0;
    const hn::ScalableTag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    if (r + 4 <= count) {
      for (; j + lanes <= columns; j += lanes) {
        const auto first = extreme_lanes<E>(hn::LoadU(d, p + j), hn::LoadU(d, p + row_stride + j));
        const auto second =
            extreme_lanes<E>(hn::LoadU(d, p + 2 * row_stride + j), hn::LoadU(d, p + 3 * row_stride + j));
        hn::StoreU(extreme_lanes<E>(hn::LoadU(d, best + j), extreme_lanes<E>(first, second)), d, best + j);
      }
      for (; j < columns; ++j)
        for (int k = 0; k < 4; ++k)
          if (more_extreme<E>(p[k * row_stride + j], best[j])) best[j] = p[k * row_stride + j];
      r += 3;
      continue;
    }
    for (; j + lanes <= columns; j += lanes)
      hn::StoreU(extreme_lanes<E>(hn::LoadU(d, best + j), hn::LoadU(d, p + j)), d, best + j);
    for (; j < columns; ++j) best[j] = more_extreme<E>(p[j], best[j]) ? p[j] : best[j];
  }
}

// The first place of `value` in x[0..n), which holds it; the first NaN if value is NaN.
template <class T>
HWY_INLINE int64_t find_first(const T* x, int64_t n, T value) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto wanted = hn::Set(d, value);
  for (int64_t i = 0; i < n; i += lanes) {
    const int64_t count = std::min(lanes, n - i);
    const auto v = count == lanes ? hn::LoadU(d, x + i) : load_first(d, x + i, count);
    auto found = hn::Eq(v, wanted);
    if constexpr (std::is_floating_point_v<T>)
      if (value != value) found = hn::IsNaN(v);
    const intptr_t lane = hn::FindFirstTrue(d, hn::And(found, hn::FirstN(d, count)));
    if (lane >= 0) return i + lane;
  }
  return 0;
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
