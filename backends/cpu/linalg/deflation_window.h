// Aggressive early deflation: the last rows and columns of a block are brought into Schur form on the side. Those
// eigenvalues that the element before the window hardly reaches are eigenvalues of the whole.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "backends/cpu/linalg/double_shift.h"
#include "backends/cpu/linalg/schur.h"
#include "backends/cpu/linalg/shared_factor.h"

namespace mica::cpu::schur {

// H = U^T H U for the columns and rows outside of `size` ones from `start` on, and Z = Z U. Where T is not wanted, not
// beyond the block from `top` to `bottom`.
template <class T>
void apply_outside(const Problem<T>& p, const T* u, int64_t u_lead, int64_t start, int64_t size, int64_t top,
                   int64_t bottom) {
  const int64_t above = p.whole ? 0 : top, end = start + size, columns = (p.whole ? p.n : bottom + 1) - end;
  const int64_t longest = std::max({start - above, columns, p.z ? p.z_rows : int64_t{0}});
  const Scratch<T> before(size * longest + 1);
  const auto from_right = [&](T* x, int64_t lead, int64_t rows) {
    for (int64_t j = 0; j < size; ++j) std::copy_n(x + j * lead, rows, before.data() + j * rows);
    part_product(x, lead, rows, size, size, static_cast<const T*>(before.data()), int64_t{1}, rows, u, int64_t{1},
                 u_lead, 1, 0);
  };
  if (start > above) from_right(p.h + start * p.lead + above, p.lead, start - above);
  if (columns > 0) {
    T* const x = p.h + end * p.lead + start;
    for (int64_t j = 0; j < columns; ++j) std::copy_n(x + j * p.lead, size, before.data() + j * size);
    part_product(x, p.lead, size, columns, size, u, u_lead, int64_t{1}, static_cast<const T*>(before.data()),
                 int64_t{1}, size, 1, 0);
  }
  if (p.z) from_right(p.z + start * p.z_lead, p.z_lead, p.z_rows);
}

constexpr int64_t kOneShift = 80;  // rows up to which there is one double shift at a time

// The Schur form of a dense Hessenberg matrix of `n` rows, as of DoubleShift.
template <class T>
bool solve_window(T* h, int64_t n, T* z, T* real, T* imaginary) {
  if (n <= kOneShift) return DoubleShift<T>(h, n, z, real, imaginary).run();
  return run(Problem<T>{h, n, n, z, n, n, real, imaginary, z != nullptr}, 0, n - 1);
}

struct Deflated {
  int64_t count = 0;   // eigenvalues found, the last ones of the window
  int64_t shifts = 0;  // the eigenvalues of the window before them
  bool failed = false;
};

template <class T>
class Deflation {
 public:
  Deflation(const Problem<T>& problem, int64_t top, int64_t bottom, int64_t width, T tiny)
      : p_(problem),
        top_(top),
        bottom_(bottom),
        n_(width),
        start_(bottom - width + 1),
        spike_(start_ == top ? T(0) : problem.h[(start_ - 1) * problem.lead + start_]),
        tiny_(tiny),
        t_(width * width),
        v_(width * width),
        work_(64 * width) {}

  Deflated run() {
    for (int64_t j = 0; j < n_; ++j) {
      for (int64_t i = 0; i < n_; ++i) t(i, j) = i <= j + 1 ? h(i, j) : T(0);
      std::fill_n(&v(0, j), n_, T(0));
      v(j, j) = 1;
    }
    if (!solve_window(t_.data(), n_, v_.data(), p_.real + start_, p_.imaginary + start_)) return {0, 0, true};
    for (int64_t j = 0; j + 2 < n_; ++j) std::fill_n(&t(j + 2, j), n_ - j - 2, T(0));
    const int64_t left = spike_ == 0 ? 0 : sift();
    if (left == 0) spike_ = 0;
    if (left < n_) sort(left);
    read_values();
    if (left == n_) return {0, n_, false};
    if (left > 1) gather_spike(left);
    if (start_ > top_) p_.h[(start_ - 1) * p_.lead + start_] = spike_ * v(0, 0);
    for (int64_t j = 0; j < n_; ++j) std::copy_n(&t(0, j), std::min(j + 2, n_), &h(0, j));
    if (left > 1) apply_to_vectors(left);
    apply_outside(p_, static_cast<const T*>(v_.data()), n_, start_, n_, top_, bottom_);
    return {n_ - left, left, false};
  }

 private:
  using Integer = lapack::Integer;
  using Routine = lapack::Routine;
  static constexpr T kUnit = std::numeric_limits<T>::epsilon();
  static constexpr T kAlike = 1000;  // by which factor a number may be larger than one of about its size

  T& t(int64_t row, int64_t column) const { return t_[column * n_ + row]; }
  T& v(int64_t row, int64_t column) const { return v_[column * n_ + row]; }
  T& h(int64_t row, int64_t column) const { return p_.h[(start_ + column) * p_.lead + start_ + row]; }

  // The number of rows of the diagonal block that begins in row i, before row `end`.
  int64_t block(int64_t i, int64_t end) const { return i + 1 < end && t(i + 1, i) != 0 ? 2 : 1; }
  T size_of(int64_t i, int64_t rows) const {
    const T size = std::abs(t(i, i));
    return rows == 1 ? size : size + std::sqrt(std::abs(t(i + 1, i))) * std::sqrt(std::abs(t(i, i + 1)));
  }

  // Moves the block at `from` before or behind the block at `to`. Returns where it is then, or -1.
  int64_t move(int64_t from, int64_t to) {
    const char also = 'V';
    const Integer order = static_cast<Integer>(n_);
    Integer first = static_cast<Integer>(from + 1), last = static_cast<Integer>(to + 1), info = 0;
    lapack::call<T>(Routine::trexc, &also, &order, t_.data(), &order, v_.data(), &order, &first, &last, work_.data(),
                    &info);
    return info == 0 ? last - 1 : -1;
  }

  // Leaves eigenvalues that the spike does not reach at the end and moves the others to the front. Returns the number
  // of the others.
  int64_t sift() {
    int64_t kept = 0, left = n_;
    while (kept < left) {
      const int64_t rows = left > 1 && t(left - 1, left - 2) != 0 ? 2 : 1, i = left - rows;
      T size = size_of(i, rows), reach = std::abs(spike_ * v(0, i));
      if (size == 0) size = std::abs(spike_);
      if (rows == 2) reach = std::max(reach, std::abs(spike_ * v(0, i + 1)));
      if (reach <= std::max(tiny_, kUnit * size)) {
        left -= rows;
      } else {
        const int64_t to = move(i, kept);
        kept = to < 0 ? left : to + rows;  // if a move failed, none of the others is tried
      }
    }
    return left;
  }

  // Sorts the first `count`, large ones first, where their sizes differ so much that it matters for accuracy.
  void sort(int64_t count) {
    T most = 0, least = std::numeric_limits<T>::max();
    for (int64_t i = 0; i < count; i += block(i, count)) {
      const T size = size_of(i, block(i, count));
      most = std::max(most, size);
      least = std::min(least, size);
    }
    bool sorted = count < 2 || most <= kAlike * least;
    for (int64_t end = count; !sorted;) {
      sorted = true;
      int64_t i = 0, next = block(0, count);
      while (next < end) {
        const int64_t rows = block(next, end);
        if (size_of(i, next - i) >= size_of(next, rows)) {
          i = next;
        } else {
          sorted = false;
          const int64_t to = move(i, next);
          i = to < 0 ? next : to;
        }
        next = i + block(i, end);
      }
      end = i;
    }
  }

  void read_values() {
    T *const real = p_.real + start_, *const imaginary = p_.imaginary + start_;
    for (int64_t i = 0; i < n_;) {
      if (block(i, n_) == 1) {
        real[i] = t(i, i);
        imaginary[i] = 0;
        ++i;
        continue;
      }
      T a = t(i, i), b = t(i, i + 1), c = t(i + 1, i), d = t(i + 1, i + 1), cosine, sine;
      lapack::call<T>(Routine::lanv2, &a, &b, &c, &d, real + i, imaginary + i, real + i + 1, imaginary + i + 1, &cosine,
                      &sine);
      i += 2;
    }
  }

  // A reflector gathers the spike's elements in `left` rows into the first one, and the window becomes Hessenberg
  // again.
  void gather_spike(int64_t left) {
    const char from_left = 'L', from_right = 'R';
    const Integer order = static_cast<Integer>(n_), count = static_cast<Integer>(left), one = 1;
    const Integer length = static_cast<Integer>(62 * n_);
    std::vector<T> reflector(static_cast<size_t>(left));
    for (int64_t j = 0; j < left; ++j) reflector[static_cast<size_t>(j)] = v(0, j);
    T end = reflector[0], factor = 0;
    lapack::call<T>(Routine::larfg, &count, &end, reflector.data() + 1, &one, &factor);
    reflector[0] = 1;
    T* const work = work_.data() + 2 * n_;
    lapack::call<T>(Routine::larf, &from_left, &count, &order, reflector.data(), &one, &factor, t_.data(), &order,
                    work);
    lapack::call<T>(Routine::larf, &from_right, &count, &count, reflector.data(), &one, &factor, t_.data(), &order,
                    work);
    lapack::call<T>(Routine::larf, &from_right, &order, &count, reflector.data(), &one, &factor, v_.data(), &order,
                    work);
    Integer info = 0;
    lapack::call<T>(Routine::gehrd, &order, &one, &count, t_.data(), &order, work_.data(), work, &length, &info);
  }

  // V times the reflectors of gather_spike, which lie below T's diagonal.
  void apply_to_vectors(int64_t left) {
    const char from_right = 'R', as_is = 'N';
    const Integer order = static_cast<Integer>(n_), count = static_cast<Integer>(left), one = 1;
    const Integer length = static_cast<Integer>(62 * n_);
    Integer info = 0;
    lapack::call<T>(Routine::ormhr, &from_right, &as_is, &order, &count, &one, &count, t_.data(), &order, work_.data(),
                    v_.data(), &order, work_.data() + 2 * n_, &length, &info);
  }

  Problem<T> p_;
  int64_t top_, bottom_, n_, start_;
  T spike_, tiny_;
  Scratch<T> t_, v_, work_;
};

// Looks for eigenvalues in the last `width` rows and columns of the block from `top` to `bottom`. Numbers up to `tiny`
// count as zero.
template <class T>
Deflated deflate(const Problem<T>& problem, int64_t top, int64_t bottom, int64_t width, T tiny) {
  return Deflation<T>(problem, top, bottom, width, tiny).run();
}

}  // namespace mica::cpu::schur
