#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/linalg/hessenberg.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/linalg/hessenberg.h"
#include "backends/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Makes the reflector that leaves only the first of `count` elements: the vector, which begins with one, replaces the
// elements in `v`. Returns its factor, or 0 where nothing is to be done; `end` becomes the new first element.
template <class T>
T make_reflector(T* v, int64_t count, T& end) {
  // Squares within these bounds lose no digits to underflow and do not overflow when they are added.
  constexpr T kLeast = std::numeric_limits<T>::min() * T(1e6) / std::numeric_limits<T>::epsilon(),
              kMost = std::numeric_limits<T>::max() / 4;
  const auto square_of_rest = [&] {
    T sums[4] = {};
    int64_t i = 1;
    for (; i + 4 <= count; i += 4)
      for (int64_t q = 0; q < 4; ++q) sums[q] += v[i + q] * v[i + q];
    for (; i < count; ++i) sums[0] += v[i] * v[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  };
  T scale = 1, square = square_of_rest();
  end = v[0];
  if (!(square >= kLeast && square + v[0] * v[0] <= kMost)) {
    T top = 0;
    for (int64_t i = 1; i < count; ++i) top = std::max(top, std::abs(v[i]));
    if (top < std::numeric_limits<T>::min()) return 0;
    scale = std::max(top, std::abs(v[0]));
    for (int64_t i = 0; i < count; ++i) v[i] /= scale;
    square = square_of_rest();
    if (square == 0) return 0;
  }
  const T first = v[0], norm = std::sqrt(square + first * first), turned = first < 0 ? norm : -norm;
  const T by = 1 / (first - turned);
  v[0] = 1;
  for (int64_t i = 1; i < count; ++i) v[i] *= by;
  end = turned * scale;
  return (turned - first) / turned;
}

// w = A v for kVectors vectors of rows.
template <int kVectors, class T>
HWY_INLINE void multiply_rows(const T* a, int64_t lead, int64_t columns, const T* v, T* w) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[kVectors];
  for (int q = 0; q < kVectors; ++q) sums[q] = hn::Zero(d);
  for (int64_t j = 0; j < columns; ++j, a += lead) {
    const auto by = hn::Set(d, v[j]);
    for (int q = 0; q < kVectors; ++q) sums[q] = hn::MulAdd(hn::Load(d, a + q * lanes), by, sums[q]);
  }
  for (int q = 0; q < kVectors; ++q) hn::Store(sums[q], d, w + q * lanes);
}

template <class T>
void multiply(const T* a, int64_t lead, int64_t rows, int64_t columns, const T* v, T* w) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  int64_t i = 0;
  for (; i + 8 * lanes <= rows; i += 8 * lanes) multiply_rows<8>(a + i, lead, columns, v, w + i);
  for (; i + 4 * lanes <= rows; i += 4 * lanes) multiply_rows<4>(a + i, lead, columns, v, w + i);
  for (; i < rows; i += lanes) multiply_rows<1>(a + i, lead, columns, v, w + i);
}

// Columns -= w (factor v_j), which is the reflector from the right, then the same from the left, where v has zeros
// before row `start`.
template <int kColumns, bool kRight, class T>
HWY_INLINE void reflect(T* HWY_RESTRICT a, int64_t lead, int64_t start, int64_t rows, const T* HWY_RESTRICT w,
                        const T* HWY_RESTRICT v, T factor, int64_t column) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V by[kColumns], sums[kColumns];
  for (int q = 0; q < kColumns; ++q) {
    if (kRight) by[q] = hn::Set(d, factor * v[column + q]);
    sums[q] = hn::Zero(d);
  }
  if (kRight)
    for (int64_t i = 0; i < start; i += lanes) {
      const V x = hn::Load(d, w + i);
      for (int q = 0; q < kColumns; ++q)
        hn::Store(hn::NegMulAdd(x, by[q], hn::Load(d, a + q * lead + i)), d, a + q * lead + i);
    }
  for (int64_t i = start; i < rows; i += lanes) {
    const V x = kRight ? hn::Load(d, w + i) : hn::Zero(d), y = hn::Load(d, v + i);
    for (int q = 0; q < kColumns; ++q) {
      V value = hn::Load(d, a + q * lead + i);
      if (kRight) {
        value = hn::NegMulAdd(x, by[q], value);
        hn::Store(value, d, a + q * lead + i);
      }
      sums[q] = hn::MulAdd(value, y, sums[q]);
    }
  }
  for (int q = 0; q < kColumns; ++q) sums[q] = hn::Mul(hn::Set(d, factor), hn::SumOfLanes(d, sums[q]));
  for (int64_t i = start; i < rows; i += lanes) {
    const V y = hn::Load(d, v + i);
    for (int q = 0; q < kColumns; ++q)
      hn::Store(hn::NegMulAdd(y, sums[q], hn::Load(d, a + q * lead + i)), d, a + q * lead + i);
  }
}

template <class T>
void reduce_columns(T* a, int64_t lead, int64_t n, int64_t first, int64_t last, T* tau) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const int64_t rows = (last + lanes) / lanes * lanes;
  const Scratch<T> room(2 * rows);
  T *const v = room.data(), *const w = v + rows;
  std::fill(v, v + rows, T(0));
  for (int64_t k = first; k < last; ++k) {
    T* const x = a + k * lead;
    v[k] = 0;
    std::copy(x + k + 1, x + last + 1, v + k + 1);
    tau[k] = make_reflector(v + k + 1, last - k, x[k + 1]);
    if (tau[k] == 0) {
      std::fill(x + k + 2, x + last + 1, T(0));
      continue;
    }
    std::copy(v + k + 2, v + last + 1, x + k + 2);
    const int64_t start = (k + 1) / lanes * lanes;
    multiply(x + lead, lead, rows, last - k, v + k + 1, w);
    int64_t j = k + 1;
    for (; j + 4 <= last + 1; j += 4) reflect<4, true>(a + j * lead, lead, start, rows, w, v, tau[k], j);
    for (; j <= last; ++j) reflect<1, true>(a + j * lead, lead, start, rows, w, v, tau[k], j);
    for (; j < n; ++j) reflect<1, false>(a + j * lead, lead, start, rows, w, v, tau[k], j);
  }
}

void reduce_float32(float* a, int64_t lead, int64_t n, int64_t first, int64_t last, float* tau) {
  reduce_columns(a, lead, n, first, last, tau);
}
void reduce_float64(double* a, int64_t lead, int64_t n, int64_t first, int64_t last, double* tau) {
  reduce_columns(a, lead, n, first, last, tau);
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(reduce_float32);
HWY_EXPORT(reduce_float64);

namespace hessenberg {
void reduce(float* a, int64_t lead, int64_t n, int64_t first, int64_t last, float* tau) {
  HWY_DYNAMIC_DISPATCH(reduce_float32)(a, lead, n, first, last, tau);
}
void reduce(double* a, int64_t lead, int64_t n, int64_t first, int64_t last, double* tau) {
  HWY_DYNAMIC_DISPATCH(reduce_float64)(a, lead, n, first, last, tau);
}
}  // namespace hessenberg
}  // namespace mica::cpu
#endif
