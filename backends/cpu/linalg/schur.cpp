// The QR iteration with many small bulges and aggressive early deflation (Braman, Byers, Mathias). Shifts come in
// chains. Their reflectors are gathered into an orthogonal matrix, which reaches the rest of H and Z as products.
// Eigenvalues are found in a window at the end of the block at hand, before the iteration has made an element below the
// diagonal small.
#include "backends/cpu/linalg/schur.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "backends/cpu/linalg/bulges.h"
#include "backends/cpu/linalg/deflation_window.h"
#include "backends/cpu/linalg/shared_factor.h"

namespace mica::cpu::schur {
namespace {

constexpr int64_t kWhole = kOneShift;            // a block of at most so many rows is solved as one window
constexpr int64_t kStuck = 5, kExceptional = 6;  // after so many rounds without an eigenvalue
// Per cent of a window's rows: with more eigenvalues than that, another window is worth it.
constexpr int64_t kEnoughOfHundred = 14;

// How many shifts a sweep over so many rows uses.
int64_t shifts_for(int64_t rows) {
  if (rows < 30) return 4;
  if (rows < 60) return 6;
  if (rows < 150) return 10;
  if (rows < 590) return std::max<int64_t>(10, static_cast<int64_t>(double(rows) / std::log2(double(rows)))) / 2 * 2;
  return rows < 3000 ? 64 : 128;
}
int64_t window_for(int64_t rows) { return rows <= 500 ? shifts_for(rows) : shifts_for(rows) * 3 / 2; }

template <class T>
class Iteration {
 public:
  Iteration(const Problem<T>& problem, int64_t first, int64_t last)
      : p_(problem), first_(first), last_(last), tiny_(std::numeric_limits<T>::min() / kUnit * T(last - first + 1)) {}

  bool run() {
    const int64_t rows = last_ - first_ + 1;
    const int64_t most_window = std::max<int64_t>(kWhole, (rows - 1) / 3);
    int64_t bottom = last_, stuck = 1, width = 0, shorter = -1;
    for (int64_t round = 0; round < 30 * std::max<int64_t>(10, rows); ++round) {
      if (bottom < first_) return true;
      const int64_t top = split(p_.h, p_.lead, first_, bottom, last_, tiny_), size = bottom - top + 1,
                    most = std::min(size, most_window);
      // The window is as wide as recommended. Where it finds nothing, it becomes twice as wide, then narrower again.
      width = stuck < kStuck ? std::min(most, window_for(rows)) : std::min(most, 2 * width);
      if (size <= kWhole || width >= size - 1)
        width = std::min(size, std::max(most, kWhole));
      else if (width < most_window &&
               std::abs(at(bottom - width + 1, bottom - width)) > std::abs(at(bottom - width, bottom - width - 1)))
        ++width;
      if (stuck < kStuck) {
        shorter = -1;
      } else if (shorter >= 0 || width >= most) {
        ++shorter;
        if (width - shorter < 2) shorter = 0;
        width -= shorter;
      }
      const Deflated found = deflate(p_, top, bottom, width, tiny_);
      if (found.failed) return false;
      bottom -= found.count;
      const int64_t left = bottom - top + 1;
      if (left > 2 && (found.count == 0 || (100 * found.count <= width * kEnoughOfHundred && left > kWhole))) {
        int64_t count = std::min(shifts_for(rows), left - 1) / 2 * 2;
        count = choose_shifts(top, bottom, std::max<int64_t>(2, count), found.shifts, stuck % kExceptional == 0);
        if (count >= 2) sweep(top, bottom, p_.real + bottom + 1 - count, p_.imaginary + bottom + 1 - count, count / 2);
      }
      stuck = found.count > 0 ? 1 : stuck + 1;
    }
    return false;
  }

 private:
  static constexpr T kUnit = std::numeric_limits<T>::epsilon();

  T& at(int64_t row, int64_t column) const { return p_.h[column * p_.lead + row]; }

  // Puts the shifts of a sweep before `bottom`, one pair after the other. Returns their number, which is always even.
  int64_t choose_shifts(int64_t top, int64_t bottom, int64_t wanted, int64_t found, bool exceptional) {
    T *const real = p_.real, *const imaginary = p_.imaginary;
    if (exceptional) {
      for (int64_t i = bottom; i >= std::max(bottom - wanted + 2, top + 2); i -= 2) {
        const T size = std::abs(at(i, i - 1)) + std::abs(at(i - 1, i - 2));
        T a = T(0.75) * size + at(i, i), b = size, c = T(-0.4375) * size, d = a;
        solve_pair(a, b, c, d, i);
      }
      if (bottom - wanted + 1 == top) {
        real[top] = real[top + 1] = at(top + 1, top + 1);
        imaginary[top] = imaginary[top + 1] = 0;
      }
      return wanted;
    }
    if (found <= wanted / 2) {
      // The window has too few left, so the eigenvalues of the last rows and columns are taken.
      const int64_t start = bottom - wanted + 1;
      const Scratch<T> copy(wanted * wanted);
      for (int64_t j = 0; j < wanted; ++j)
        for (int64_t i = 0; i < wanted; ++i) copy[j * wanted + i] = i <= j + 1 ? at(start + i, start + j) : T(0);
      found = solve_window(copy.data(), wanted, static_cast<T*>(nullptr), real + start, imaginary + start) ? wanted : 0;
      if (found == 0) {
        T a = at(bottom - 1, bottom - 1), b = at(bottom - 1, bottom), c = at(bottom, bottom - 1),
          d = at(bottom, bottom);
        solve_pair(a, b, c, d, bottom);
        found = 2;
      }
    }
    const int64_t start = bottom - found + 1;
    if (found > wanted) sort_shifts(start, bottom);
    // A conjugate pair stays together, and so do two real ones.
    for (int64_t i = bottom; i >= start + 2; i -= 2)
      if (imaginary[i] != -imaginary[i - 1]) {
        std::rotate(real + i - 2, real + i, real + i + 1);
        std::rotate(imaginary + i - 2, imaginary + i, imaginary + i + 1);
      }
    if (found == 2 && imaginary[bottom] == 0) {
      const int64_t closer =
          std::abs(real[bottom] - at(bottom, bottom)) < std::abs(real[bottom - 1] - at(bottom, bottom)) ? bottom
                                                                                                        : bottom - 1;
      real[bottom] = real[bottom - 1] = real[closer];
    }
    return std::min(wanted, found) / 2 * 2;
  }

  void solve_pair(T& a, T& b, T& c, T& d, int64_t i) {
    T cosine, sine;
    lapack::call<T>(lapack::Routine::lanv2, &a, &b, &c, &d, p_.real + i - 1, p_.imaginary + i - 1, p_.real + i,
                    p_.imaginary + i, &cosine, &sine);
  }

  // Sorts large shifts first, so that the smallest are used. Conjugate ones stay neighbours.
  void sort_shifts(int64_t start, int64_t bottom) {
    T *const real = p_.real, *const imaginary = p_.imaginary;
    const auto size = [&](int64_t i) { return std::abs(real[i]) + std::abs(imaginary[i]); };
    bool sorted = false;
    for (int64_t end = bottom; end > start && !sorted; --end) {
      sorted = true;
      for (int64_t i = start; i < end; ++i)
        if (size(i) < size(i + 1)) {
          sorted = false;
          std::swap(real[i], real[i + 1]);
          std::swap(imaginary[i], imaginary[i + 1]);
        }
    }
  }

  // One sweep of a chain of bulges, a window of the matrix after the other.
  void sweep(int64_t top, int64_t bottom, const T* real, const T* imaginary, int64_t pairs) {
    using bulges::kSpacing;
    // The smallest shifts, which are last in the list, are used first.
    std::vector<T> shifts(static_cast<size_t>(4 * pairs));
    for (int64_t b = 0; b < pairs; ++b)
      for (int64_t k = 0; k < 2; ++k) {
        shifts[static_cast<size_t>(2 * b + k)] = real[2 * (pairs - 1 - b) + k];
        shifts[static_cast<size_t>(2 * pairs + 2 * b + k)] = imaginary[2 * (pairs - 1 - b) + k];
      }
    const int64_t chain = kSpacing * pairs, together = chain - 1;
    const int64_t steps = bottom - top + chain - kSpacing;
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
    const int64_t lead = (chain + together + 2 + kLine - 1) / kLine * kLine;
    const Scratch<T> h(lead * lead), u(lead * lead);
    for (int64_t t = 0; t < steps; t += together) {
      const int64_t until = std::min(steps, t + together);
      // From the column that the uppermost bulge leaves to the last row that the lowest one reaches.
      const int64_t start = std::max(top, top + t - chain + kSpacing - 1), end = std::min(bottom, top + until + 2);
      const int64_t size = end - start + 1;
      std::fill(h.data(), h.data() + lead * (size + 1), T(0));
      std::fill(u.data(), u.data() + lead * (size + 1), T(0));
      for (int64_t j = 0; j < size; ++j) {
        std::copy_n(&at(start, start + j), size, h.data() + j * lead);
        u[j * lead + j] = 1;
      }
      bulges::chase(bulges::Window<T>{h.data(), u.data(), lead, size, top - start, bottom - start, pairs, shifts.data(),
                                      shifts.data() + 2 * pairs},
                    t, until);
      for (int64_t j = 0; j < size; ++j) std::copy_n(h.data() + j * lead, size, &at(start, start + j));
      apply_outside(p_, static_cast<const T*>(u.data()), lead, start, size, top, bottom);
    }
  }

  Problem<T> p_;
  int64_t first_, last_;
  T tiny_;
};

}  // namespace

bool run(const Problem<float>& problem, int64_t first, int64_t last) {
  return Iteration<float>(problem, first, last).run();
}
bool run(const Problem<double>& problem, int64_t first, int64_t last) {
  return Iteration<double>(problem, first, last).run();
}

}  // namespace mica::cpu::schur
