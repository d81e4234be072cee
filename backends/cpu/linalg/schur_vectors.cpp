#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/linalg/schur_vectors.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "backends/cpu/linalg/schur_vectors.h"
#include "backends/cpu/linalg/shared_factor.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct Number {
  T re = 0, im = 0;
  T size() const { return std::abs(re) + std::abs(im); }
  Number times(T by) const { return {re * by, im * by}; }
  Number minus(Number b) const { return {re - b.re, im - b.im}; }
  Number times(Number b) const { return {re * b.re - im * b.im, re * b.im + im * b.re}; }
  // Divides by Smith's method, whose steps stay in range.
  Number over(Number b) const {
    if (std::abs(b.re) >= std::abs(b.im)) {
      const T ratio = b.im / b.re, by = 1 / (b.re + b.im * ratio);
      return {(re + im * ratio) * by, (im - re * ratio) * by};
    }
    const T ratio = b.re / b.im, by = 1 / (b.im + b.re * ratio);
    return {(re * ratio + im) * by, (im * ratio - re) * by};
  }
};

// Finds all vectors together, one row of T after the other from the last. The sum over the rows below is a product in
// which the vectors are the lanes; then every vector has one division.
template <class T>
class BackSubstitution {
 public:
  BackSubstitution(const T* t, int64_t lead, int64_t n, const T* real, const T* imaginary, T* x)
      : t_(t),
        lead_(lead),
        n_(n),
        real_(real),
        imaginary_(imaginary),
        x_(x),
        tiny_(std::numeric_limits<T>::min() / kUnit * T(n)) {}

  void run() {
    std::fill_n(x_, n_ * n_, T(0));
    for (int64_t end = n_; end > 0; end = begin_) {
      begin_ = std::max<int64_t>(0, end - kRows);
      if (begin_ > 0 && t(begin_, begin_ - 1) != 0) --begin_;
      // Rows of X are columns of its transpose, which is what the product sees.
      part_product(&x(begin_, end), n_, n_ - end, end - begin_, n_ - end, static_cast<const T*>(x_) + end * n_ + end,
                   int64_t{1}, n_, t_ + end * lead_ + begin_, lead_, int64_t{1}, 1, 0);
      for (int64_t row = end - 1; row >= begin_; --row) {
        const bool two = row > 0 && t(row, row - 1) != 0;
        if (two) --row;
        for (int64_t r = row; r <= row + two; ++r)
          for (int64_t i = row + two + 1; i < end; ++i) add_scaled(&x(r, i), &x(i, i), t(r, i), n_ - i);
        if (two) {
          start_pair(row);
          for (int64_t k = row + 2; k < n_; k += imaginary_[k] != 0 ? 2 : 1) solve_two(row, k);
        } else {
          x(row, row) = 1;
          for (int64_t k = row + 1; k < n_; k += imaginary_[k] != 0 ? 2 : 1) solve_one(row, k);
        }
      }
    }
  }

 private:
  static constexpr int64_t kRows = 32;
  static constexpr T kUnit = std::numeric_limits<T>::epsilon();
  static constexpr T kLarge = sizeof(T) == 4 ? T(1e10) : T(1e100);  // elements are kept below it

  T t(int64_t row, int64_t column) const { return t_[column * lead_ + row]; }
  T& x(int64_t row, int64_t column) const { return x_[row * n_ + column]; }

  static HWY_INLINE void add_scaled(T* HWY_RESTRICT to, const T* HWY_RESTRICT from, T by, int64_t count) {
    const hn::ScalableTag<T> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto factor = hn::Set(d, by);
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes)
      hn::StoreU(hn::MulAdd(hn::LoadU(d, from + i), factor, hn::LoadU(d, to + i)), d, to + i);
    for (; i < count; ++i) to[i] += by * from[i];
  }

  // The vector of the block itself: one of its two elements is real, the other imaginary.
  void start_pair(int64_t row) const {
    const T above = t(row, row + 1), below = t(row + 1, row), w = imaginary_[row];
    const bool upper = std::abs(above) >= std::abs(below);
    x(row, row) = upper ? T(1) : -w / below;
    x(row + 1, row + 1) = upper ? w / above : T(1);
  }

  // Scales vector k down, together with its elements of the present rows that are not stored yet.
  void shrink(int64_t k, T by, std::initializer_list<Number<T>*> kept) const {
    const int64_t columns = imaginary_[k] != 0 ? 2 : 1;
    for (int64_t i = begin_; i < std::min(n_, k + columns); ++i)
      for (int64_t c = k; c < k + columns; ++c) x(i, c) *= by;
    for (Number<T>* number : kept) *number = number->times(by);
  }

  // A quotient of vector k. A division by zero becomes one by the least number that is not negligible, as in LAPACK's
  // laln2.
  Number<T> quotient(Number<T> a, Number<T> b, int64_t k, std::initializer_list<Number<T>*> kept) const {
    const T least = std::max(kUnit * (std::abs(real_[k]) + std::abs(imaginary_[k])), tiny_);
    if (b.size() < least) b = {least, 0};
    if (a.size() <= kLarge * b.size()) return a.over(b);
    T by = 1 / a.size();
    shrink(k, by, kept);
    Number<T> found = a.times(by).over(b);
    if (found.size() > kLarge) {
      by = 1 / found.size();
      shrink(k, by, kept);
      found = found.times(by);
    }
    return found;
  }

  Number<T> sum(int64_t row, int64_t k) const { return {-x(row, k), imaginary_[k] != 0 ? -x(row, k + 1) : T(0)}; }
  void store(int64_t row, int64_t k, Number<T> value) const {
    x(row, k) = value.re;
    if (imaginary_[k] != 0) x(row, k + 1) = value.im;
  }

  void solve_one(int64_t row, int64_t k) const {
    const T apart = t(row, row) - real_[k];
    if (imaginary_[k] == 0) {
      const T s = x(row, k), size = std::abs(apart);
      if (size >= std::max(kUnit * std::abs(real_[k]), tiny_) && std::abs(s) <= kLarge * size) {
        x(row, k) = -s / apart;
        return;
      }
    }
    store(row, k, quotient(sum(row, k), {apart, -imaginary_[k]}, k, {}));
  }

  void solve_two(int64_t row, int64_t k) const {
    Number<T> first = sum(row, k), second = sum(row + 1, k);
    Number<T> a{t(row, row) - real_[k], -imaginary_[k]}, b{t(row, row + 1), 0};
    Number<T> c{t(row + 1, row), 0}, d{t(row + 1, row + 1) - real_[k], -imaginary_[k]};
    if (a.size() < c.size()) {
      std::swap(a, c);
      std::swap(b, d);
      std::swap(first, second);
    }
    const Number<T> by = c.over(a);  // c is not zero where a is larger, and the block has no zeros beside its diagonal
    Number<T> y = quotient(second.minus(by.times(first)), d.minus(by.times(b)), k, {&first});
    const Number<T> z = quotient(first.minus(b.times(y)), a, k, {&y});
    store(row, k, z);
    store(row + 1, k, y);
  }

  const T* t_;
  int64_t lead_, n_;
  const T *real_, *imaginary_;
  T* x_;
  T tiny_;
  int64_t begin_ = 0;  // the present rows
};

void vectors_float32(const float* t, int64_t lead, int64_t n, const float* real, const float* imaginary, float* x) {
  BackSubstitution<float>(t, lead, n, real, imaginary, x).run();
}
void vectors_float64(const double* t, int64_t lead, int64_t n, const double* real, const double* imaginary, double* x) {
  BackSubstitution<double>(t, lead, n, real, imaginary, x).run();
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu {
HWY_EXPORT(vectors_float32);
HWY_EXPORT(vectors_float64);

namespace schur {
void vectors(const float* t, int64_t lead, int64_t n, const float* real, const float* imaginary, float* x) {
  HWY_DYNAMIC_DISPATCH(vectors_float32)(t, lead, n, real, imaginary, x);
}
void vectors(const double* t, int64_t lead, int64_t n, const double* real, const double* imaginary, double* x) {
  HWY_DYNAMIC_DISPATCH(vectors_float64)(t, lead, n, real, imaginary, x);
}
}  // namespace schur
}  // namespace mica::cpu
#endif
