#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/linalg/bulges.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/linalg/bulges.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using bulges::kSpacing;
using bulges::Window;

// x -= v (t . x) for three rows or columns from `first` on, where v begins with one and t is v times a factor.
template <class T>
struct Reflector {
  int64_t first;
  T v1, v2, t0, t1, t2;
  T end;  // the first element that the reflector is made from becomes this; the others vanish
};

template <class T>
HWY_INLINE Reflector<T> reflector_of(T x0, T x1, T x2) {
  constexpr T kLeast = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
  T scale = 1, square = x1 * x1 + x2 * x2;
  if (square < kLeast) {
    scale = std::max({std::abs(x0), std::abs(x1), std::abs(x2)});
    if ((x1 == 0 && x2 == 0) || scale < std::numeric_limits<T>::min()) return {0, 0, 0, 0, 0, 0, x0};
    x0 /= scale;
    x1 /= scale;
    x2 /= scale;
    square = x1 * x1 + x2 * x2;
  }
  const T end = -std::copysign(std::sqrt(x0 * x0 + square), x0);
  const T factor = (end - x0) / end, by = 1 / (x0 - end), v1 = x1 * by, v2 = x2 * by;
  return {0, v1, v2, factor, factor * v1, factor * v2, end * scale};
}

// The reflector from the first column of (H - s)(H - s') for the block that begins at `x`, of three rows.
template <class T>
HWY_INLINE Reflector<T> reflector_of_shifts(const T* x, int64_t lead, const T* real, const T* imaginary) {
  const T *const y = x + lead, *const z = y + lead;
  const T size = std::abs(x[0] - real[1]) + std::abs(imaginary[1]) + std::abs(x[1]) + std::abs(x[2]);
  if (!(size > 0)) return {0, 0, 0, 0, 0, 0, 0};
  const T x1 = x[1] / size, x2 = x[2] / size, sum = real[0] + real[1];
  return reflector_of(
      (x[0] - real[0]) * ((x[0] - real[1]) / size) - imaginary[0] * (imaginary[1] / size) + y[0] * x1 + z[0] * x2,
      x1 * (x[0] + y[1] - sum) + z[1] * x2, x2 * (x[0] + z[2] - sum) + x1 * y[2]);
}

// The reflector with which a bulge leaves column `at`, of which only the first element below the diagonal stays.
template <class T>
HWY_INLINE Reflector<T> leave(const Window<T>& w, int64_t at, int64_t pair) {
  const T *const real = w.real + 2 * pair, *const imaginary = w.imaginary + 2 * pair;
  T* const corner = w.h + (at + 1) * w.lead + at + 1;
  Reflector<T> made;
  if (at < w.top) {
    made = reflector_of_shifts(corner, w.lead, real, imaginary);
  } else {
    T* const x = w.h + at * w.lead + at + 1;
    // A bulge that has vanished has lost its shifts, so it is made anew.
    const T bound = std::numeric_limits<T>::epsilon() / 2 * (std::abs(x[-1]) + std::abs(corner[0]));
    if (std::max({std::abs(x[0]), std::abs(x[1]), std::abs(x[2])}) <= bound) {
      made = reflector_of_shifts(corner, w.lead, real, imaginary);
      x[0] = 0;
    } else {
      made = reflector_of(x[0], x[1], x[2]);
      x[0] = made.end;
    }
    x[1] = x[2] = 0;
  }
  made.first = at + 1;
  return made;
}

template <class T>
HWY_INLINE void from_left(T* x, int64_t lead, int64_t columns, const Reflector<T>& r) {
  for (int64_t j = 0; j < columns; ++j, x += lead) {
    const T sum = r.t0 * x[0] + r.t1 * x[1] + r.t2 * x[2];
    x[0] -= sum;
    x[1] -= r.v1 * sum;
    x[2] -= r.v2 * sum;
  }
}

// Works on whole vectors of rows: the matrices are zero beyond their rows.
template <class T>
HWY_INLINE void from_right(T* HWY_RESTRICT x, int64_t lead, int64_t above, int64_t rows, const Reflector<T>& r) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto t0 = hn::Set(d, r.t0), t1 = hn::Set(d, r.t1), t2 = hn::Set(d, r.t2);
  const auto v1 = hn::Set(d, r.v1), v2 = hn::Set(d, r.v2);
  for (int64_t i = above; i < rows; i += lanes) {
    const auto x0 = hn::Load(d, x + i), x1 = hn::Load(d, x + lead + i), x2 = hn::Load(d, x + 2 * lead + i);
    const auto sum = hn::MulAdd(t2, x2, hn::MulAdd(t1, x1, hn::Mul(t0, x0)));
    hn::Store(hn::Sub(x0, sum), d, x + i);
    hn::Store(hn::NegMulAdd(v1, sum, x1), d, x + lead + i);
    hn::Store(hn::NegMulAdd(v2, sum, x2), d, x + 2 * lead + i);
  }
}

template <class T>
void chase_down(const Window<T>& w, int64_t first, int64_t last) {
  constexpr int64_t kTogether = 32;  // reflectors at a time
  Reflector<T> made[kTogether];
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>())), above = w.above / lanes * lanes;
  for (int64_t t = first; t < last; ++t) {
    // Columns from top - 1 to bottom - 2 are left. The last bulges to be made are the uppermost.
    const int64_t over = t - (w.bottom - w.top - 1);
    const int64_t begin = over > 0 ? (over + kSpacing - 1) / kSpacing : 0, end = std::min(w.pairs, t / kSpacing + 1);
    for (int64_t b = begin; b < end; b += kTogether) {
      const int64_t count = std::min(kTogether, end - b);
      // None of these reflectors changes the elements that another is made from.
      for (int64_t k = 0; k < count; ++k) made[k] = leave(w, w.top - 1 + t - kSpacing * (b + k), b + k);
      for (int64_t k = 0; k < count; ++k)
        from_left(w.h + made[k].first * w.lead + made[k].first, w.lead, w.size - made[k].first, made[k]);
      for (int64_t k = 0; k < count; ++k) {
        from_right(w.h + made[k].first * w.lead, w.lead, above, std::min(made[k].first + 4, w.size), made[k]);
        if (w.u) from_right(w.u + made[k].first * w.lead, w.lead, 0, w.size, made[k]);
      }
    }
  }
}

void chase_float32(const Window<float>& w, int64_t first, int64_t last) { chase_down(w, first, last); }
void chase_float64(const Window<double>& w, int64_t first, int64_t last) { chase_down(w, first, last); }

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(chase_float32);
HWY_EXPORT(chase_float64);

namespace bulges {
void chase(const Window<float>& window, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(chase_float32)(window, first, last);
}
void chase(const Window<double>& window, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(chase_float64)(window, first, last);
}
}  // namespace bulges
}  // namespace mica::cpu
#endif
