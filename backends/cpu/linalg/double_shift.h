// The real Schur form of a small Hessenberg matrix: the QR iteration with one double shift at a time, as LAPACK's lahqr
// has it.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cpu/linalg/bulges.h"
#include "backends/cpu/linalg/lapack.h"
#include "backends/cpu/scratch.h"

namespace mica::cpu::schur {

// Where the last block begins that ends in row `bottom`, not before `first`. Elements below the diagonal that are
// negligible beside their neighbours become zero (Ahues and Tisseur). `last` is the last row with a column to the left.
template <class T>
int64_t split(T* h, int64_t lead, int64_t first, int64_t bottom, int64_t last, T tiny) {
  constexpr T kUnit = std::numeric_limits<T>::epsilon();
  const auto at = [&](int64_t row, int64_t column) -> T& { return h[column * lead + row]; };
  int64_t top = bottom;
  for (; top > first; --top) {
    const T size = std::abs(at(top, top - 1)), a = at(top - 1, top - 1), b = at(top, top);
    bool negligible = size <= tiny;
    T around = std::abs(a) + std::abs(b);
    if (around == 0) {
      if (top - 2 >= first) around += std::abs(at(top - 1, top - 2));
      if (top + 1 <= last) around += std::abs(at(top + 1, top));
    }
    if (!negligible && size <= kUnit * around) {
      const T above = std::abs(at(top - 1, top)), apart = std::abs(a - b);
      const T more = std::max(size, above), less = std::min(size, above);
      const T far = std::max(std::abs(b), apart), near = std::min(std::abs(b), apart), sum = far + more;
      negligible = less * (more / sum) <= std::max(tiny, kUnit * (near * (far / sum)));
    }
    if (negligible) {
      at(top, top - 1) = 0;
      break;
    }
  }
  return top;
}

template <class T>
class DoubleShift {
 public:
  // `h` has `n` dense rows. `z`, if it is not null, has the same size and is multiplied from the right by the
  // transforms of h. Without it only the eigenvalues are found.
  DoubleShift(T* h, int64_t n, T* z, T* real, T* imaginary)
      : given_(h),
        z_(z),
        n_(n),
        lead_((n + kLine) / kLine * kLine),
        h_(lead_ * (n + 1)),
        u_(z ? lead_ * (n + 1) : 1),
        real_(real),
        imaginary_(imaginary),
        tiny_(std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon() * T(n)) {}

  // Returns false where the iteration does not end.
  bool run() {
    copy_padded(given_, h_.data());
    if (z_) copy_padded(z_, u_.data());
    int64_t bottom = n_ - 1, stuck = 0;
    for (int64_t left = 30 * std::max<int64_t>(10, n_); bottom >= 0; --left) {
      const int64_t top = split(h_.data(), lead_, int64_t{0}, bottom, n_ - 1, tiny_);
      if (top >= bottom - 1) {
        if (top == bottom) {
          real_[top] = at(top, top);
          imaginary_[top] = 0;
        } else {
          settle_pair(top);
        }
        bottom = top - 1;
        stuck = 0;
        continue;
      }
      if (left == 0) return false;
      ++stuck;
      T real[2], imaginary[2];
      choose_shifts(top, bottom, stuck, real, imaginary);
      bulges::chase(bulges::Window<T>{h_.data(), z_ ? u_.data() : nullptr, lead_, z_ ? n_ : bottom + 1, top, bottom, 1,
                                      real, imaginary, z_ ? 0 : top},
                    0, bottom - top);
    }
    for (int64_t j = 0; j < n_; ++j) {
      std::copy_n(h_.data() + j * lead_, n_, given_ + j * n_);
      if (z_) std::copy_n(u_.data() + j * lead_, n_, z_ + j * n_);
    }
    return true;
  }

 private:
  static constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kExceptional = 10;  // after so many sweeps without an eigenvalue other shifts are tried

  T& at(int64_t row, int64_t column) const { return h_[column * lead_ + row]; }

  void copy_padded(const T* from, T* to) const {
    std::fill_n(to, lead_ * (n_ + 1), T(0));
    for (int64_t j = 0; j < n_; ++j) std::copy_n(from + j * n_, n_, to + j * lead_);
  }

  // Takes the eigenvalues of the last two rows and columns as shifts; if both are real, twice the one that is closer to
  // the last element. Now and then it takes others, so that the iteration does not go in circles.
  void choose_shifts(int64_t top, int64_t bottom, int64_t stuck, T* real, T* imaginary) const {
    T a = at(bottom - 1, bottom - 1), b = at(bottom - 1, bottom), c = at(bottom, bottom - 1), d = at(bottom, bottom);
    if (stuck % kExceptional == 0) {
      const bool at_top = stuck / kExceptional % 2 == 1;
      c = at_top ? std::abs(at(top + 1, top)) + std::abs(at(top + 2, top + 1))
                 : std::abs(c) + std::abs(at(bottom - 1, bottom - 2));
      a = d = T(0.75) * c + (at_top ? at(top, top) : d);
      b = T(-0.4375) * c;
    }
    const T size = std::abs(a) + std::abs(b) + std::abs(c) + std::abs(d);
    real[0] = real[1] = imaginary[0] = imaginary[1] = 0;
    if (size == 0) return;
    a /= size;
    b /= size;
    c /= size;
    d /= size;
    const T middle = (a + d) / 2, product = (a - middle) * (d - middle) - b * c;
    const T root = std::sqrt(std::abs(product));
    if (product >= 0) {
      real[0] = real[1] = middle * size;
      imaginary[0] = root * size;
      imaginary[1] = -imaginary[0];
    } else {
      const T one = middle + root, other = middle - root;
      real[0] = real[1] = (std::abs(one - d) <= std::abs(other - d) ? one : other) * size;
    }
  }

  // A block of two rows: a rotation makes it a triangle, or gives it equal elements on the diagonal.
  void settle_pair(int64_t row) const {
    T cosine, sine;
    lapack::call<T>(lapack::Routine::lanv2, &at(row, row), &at(row, row + 1), &at(row + 1, row), &at(row + 1, row + 1),
                    real_ + row, imaginary_ + row, real_ + row + 1, imaginary_ + row + 1, &cosine, &sine);
    if (!z_) return;
    for (int64_t j = row + 2; j < n_; ++j) rotate(at(row, j), at(row + 1, j), cosine, sine);
    for (int64_t i = 0; i < row; ++i) rotate(at(i, row), at(i, row + 1), cosine, sine);
    T *const x = u_.data() + row * lead_, *const y = x + lead_;
    for (int64_t i = 0; i < n_; ++i) rotate(x[i], y[i], cosine, sine);
  }
  static void rotate(T& x, T& y, T cosine, T sine) {
    const T before = x;
    x = cosine * before + sine * y;
    y = cosine * y - sine * before;
  }

  T *given_, *z_;
  int64_t n_, lead_;
  Scratch<T> h_, u_;
  T *real_, *imaginary_;
  T tiny_;
};

}  // namespace mica::cpu::schur
