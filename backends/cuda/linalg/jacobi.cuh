// Jacobi's iteration for many small matrices: a team of 2 to 32 lanes of a warp for each, with its matrix in shared
// memory. The teams of a warp go in step, so that all of them wait for the slowest.
#pragma once

#include <cfloat>

#include "backends/cuda/linalg/team.cuh"

namespace mica::cuda::linalg::jacobi {

inline constexpr int kMostSweeps = 40;  // far more than any matrix was seen to need
inline constexpr unsigned kAll = 0xffffffffu;

template <class R>
__device__ constexpr R epsilon() {
  return sizeof(R) == 4 ? R(FLT_EPSILON) : R(DBL_EPSILON);
}

// The lanes of a team, a power of two.
struct Lanes {
  int lane, size;
  __device__ static void sync() { __syncwarp(); }
  template <class R>
  __device__ R largest(R v) const {
    for (int step = size / 2; step; step /= 2) {
      const R other = __shfl_xor_sync(kAll, v, step);
      v = other > v ? other : v;
    }
    return v;
  }
  template <class R>
  __device__ R sum_real(R v) const {
    for (int step = size / 2; step; step /= 2) v += __shfl_xor_sync(kAll, v, step);
    return v;
  }
  template <class T>
  __device__ T sum(const T& v) const {
    if constexpr (is_complex_v<T>) {
      return T(sum_real(v.real()), sum_real(v.imag()));
    } else {
      return sum_real(v);
    }
  }
  // The place of the largest value, of equal ones the first.
  template <class R>
  __device__ int place_of_largest(R v, int place) const {
    for (int step = size / 2; step; step /= 2) {
      const R other = __shfl_xor_sync(kAll, v, step);
      const int there = __shfl_xor_sync(kAll, place, step);
      if (other > v || (other == v && there < place)) v = other, place = there;
    }
    return place;
  }
  __device__ bool any(bool v) const {
    const unsigned votes = __ballot_sync(kAll, v);
    const int first = static_cast<int>(threadIdx.x % 32) & ~(size - 1);
    return (votes >> first & (size == 32 ? kAll : (1u << size) - 1)) != 0;
  }
};

// A tournament of an even number of players: every two meet once in players - 1 rounds.
struct Pair {
  int p, q;
};
__device__ inline Pair pair_of(int round, int k, int players) {
  const int others = players - 1;
  int p = round + k, q = round - k;
  if (p >= others) p -= others;
  if (q < 0) q += others;
  if (k == 0) q = others;
  return p < q ? Pair{p, q} : Pair{q, p};
}

template <class T>
__device__ real_t<T> square_of(const T& v) {
  if constexpr (is_complex_v<T>) {
    return v.real() * v.real() + v.imag() * v.imag();
  } else {
    return v * v;
  }
}
template <class T>
__device__ real_t<T> absolute(const T& v) {
  if constexpr (is_complex_v<T>) {
    return hypot(v.real(), v.imag());
  } else {
    return fabs(v);
  }
}
template <class T>
__device__ T times(const T& v, real_t<T> by) {
  if constexpr (is_complex_v<T>) {
    return T(v.real() * by, v.imag() * by);
  } else {
    return v * by;
  }
}

// The unitary matrix of two rows [c, s; -conj(s), c] that makes a Hermitian one diagonal.
template <class T>
struct Rotation {
  using R = real_t<T>;
  R c = 1;
  T s = T(0);
  R shift = 0;  // what the first element of the diagonal loses and the second one gains

  Rotation() = default;
  // Of [first, off; conj(off), second]; `size` is the absolute value of off, and not zero.
  __device__ Rotation(R first, R second, const T& off, R size) {
    const R tau = (second - first) / (2 * size);
    const R steep = fabs(tau), root = steep * epsilon<R>() > 1 ? steep : sqrt(1 + steep * steep);  // no overflow
    const R t = (tau >= 0 ? R(1) : R(-1)) / (steep + root);
    c = 1 / sqrt(1 + t * t);
    s = times(off, t * c / size);
    shift = t * size;
  }
  // Two elements of one row.
  __device__ void columns(T& x, T& y) const {
    const T before = x;
    x = times(x, c) - conj_of(s) * y;
    y = s * before + times(y, c);
  }
  // Two elements of one column, by the adjoint from the left.
  __device__ void rows(T& x, T& y) const {
    const T before = x;
    x = times(x, c) - s * y;
    y = conj_of(s) * before + times(y, c);
  }
};

// Elements that are read before the first of them is written, so that they are waited for together.
inline constexpr int kAtOnce = 4;

// Every second row of two columns, from `part` on.
template <class T>
__device__ void rotate(const Rotation<T>& by, T* one, T* other, int part, int rows) {
  for (int first = part; first < rows; first += 2 * kAtOnce) {
    T x[kAtOnce], y[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + 2 * j;
      if (i >= rows) continue;
      x[j] = one[i];
      y[j] = other[i];
      by.columns(x[j], y[j]);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + 2 * j;
      if (i >= rows) continue;
      one[i] = x[j];
      other[i] = y[j];
    }
  }
}

// A power of two that brings a number of this size to between 1 and 2.
template <class R>
__device__ R power_for(R size) {
  constexpr int kLimit = sizeof(R) == 4 ? 120 : 1000;
  if (!(size > 0)) return 1;
  const int e = ilogb(size);
  return ldexp(R(1), -(e < -kLimit ? -kLimit : e > kLimit ? kLimit : e));
}

// The elements outside the diagonal of a Hermitian matrix of an even number of rows go to zero; the columns of v, if
// there is one, become the eigenvectors. `rotations` has room for half as many as there are rows. The matrix has been
// brought to a size of about one. False if it did not end.
template <class T>
__device__ bool diagonalize(const Lanes& team, T* a, T* v, int n, int lead, Rotation<T>* rotations) {
  using R = real_t<T>;
  const int half = n / 2, width = team.size / 2;  // pairs, and room for them
  const R least = epsilon<R>() / (2 * n);
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    bool rotated = false;
    for (int round = 0; round < n - 1; ++round) {
      bool here = false;
      if (team.lane < half) {
        const Pair pair = pair_of(round, team.lane, n);
        const T off = a[pair.q * lead + pair.p];
        const R size = absolute(off);
        here = size > least;
        rotations[team.lane] =
            here ? Rotation<T>(real_of(a[pair.p * lead + pair.p]), real_of(a[pair.q * lead + pair.q]), off, size)
                 : Rotation<T>();
      }
      rotated |= here;
      if (!__any_sync(kAll, here)) continue;
      team.sync();
      const int k = team.lane % width;
      if (k < half) {
        const Rotation<T> left = rotations[k];
        const Pair row = pair_of(round, k, n);
        constexpr int kBlocks = 2;
        for (int first = team.lane / width; first < half; first += 2 * kBlocks) {
          T x[kBlocks], y[kBlocks], z[kBlocks], w[kBlocks];
#pragma unroll
          for (int j = 0; j < kBlocks; ++j) {
            const int l = first + 2 * j;
            if (l >= half) continue;
            const Pair column = pair_of(round, l, n);
            x[j] = a[column.p * lead + row.p], y[j] = a[column.q * lead + row.p];
            z[j] = a[column.p * lead + row.q], w[j] = a[column.q * lead + row.q];
            if (k == l) {
              if (left.shift == 0) continue;
              x[j] = T(real_of(x[j]) - left.shift);
              w[j] = T(real_of(w[j]) + left.shift);
              y[j] = z[j] = T(0);
              continue;
            }
            const Rotation<T> right = rotations[l];
            right.columns(x[j], y[j]);
            right.columns(z[j], w[j]);
            left.rows(x[j], z[j]);
            left.rows(y[j], w[j]);
          }
#pragma unroll
          for (int j = 0; j < kBlocks; ++j) {
            const int l = first + 2 * j;
            if (l >= half) continue;
            const Pair column = pair_of(round, l, n);
            a[column.p * lead + row.p] = x[j], a[column.q * lead + row.p] = y[j];
            a[column.p * lead + row.q] = z[j], a[column.q * lead + row.q] = w[j];
          }
        }
      }
      if (v && team.lane < n) {  // a row for each lane
        for (int first = 0; first < half; first += kAtOnce) {
          T x[kAtOnce], y[kAtOnce];
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            if (first + j >= half) continue;
            const Pair column = pair_of(round, first + j, n);
            x[j] = v[column.p * lead + team.lane];
            y[j] = v[column.q * lead + team.lane];
            rotations[first + j].columns(x[j], y[j]);
          }
#pragma unroll
          for (int j = 0; j < kAtOnce; ++j) {
            if (first + j >= half) continue;
            const Pair column = pair_of(round, first + j, n);
            v[column.p * lead + team.lane] = x[j];
            v[column.q * lead + team.lane] = y[j];
          }
        }
      }
      team.sync();
    }
    if (!__any_sync(kAll, rotated)) return true;
    if (sweep + 1 == kMostSweeps) return !team.any(rotated);
  }
  return true;
}

// The columns of x, an even number, are made orthogonal to each other by rotations, which v takes part in if there is
// one. Two lanes work on a pair of columns. A column whose square is at most `least` counts as zero.
template <class T>
__device__ bool orthogonalize(const Lanes& team, T* x, int rows, int x_lead, T* v, int n, int v_lead, real_t<T> least) {
  using R = real_t<T>;
  const int k = team.lane / 2, part = team.lane % 2;
  const R tolerance = epsilon<R>() * sqrt(R(rows));
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    bool rotated = false;
    for (int round = 0; round < n - 1; ++round) {
      const bool works = k < n / 2;
      const Pair pair = pair_of(round, works ? k : 0, n);
      T *const one = x + pair.p * x_lead, *const other = x + pair.q * x_lead;
      R first = 0, second = 0;
      T product = T(0);
      if (works)
        for (int i = part; i < rows; i += 2) {
          first += square_of(one[i]);
          second += square_of(other[i]);
          product += conj_of(one[i]) * other[i];
        }
      first += __shfl_xor_sync(kAll, first, 1);
      second += __shfl_xor_sync(kAll, second, 1);
      if constexpr (is_complex_v<T>) {
        product += T(__shfl_xor_sync(kAll, product.real(), 1), __shfl_xor_sync(kAll, product.imag(), 1));
      } else {
        product += __shfl_xor_sync(kAll, product, 1);
      }
      const R size = absolute(product);
      if (works && first > least && second > least && size > tolerance * sqrt(first) * sqrt(second)) {
        rotated = true;
        const Rotation<T> rotation(first, second, product, size);
        rotate(rotation, one, other, part, rows);
        if (v) rotate(rotation, v + pair.p * v_lead, v + pair.q * v_lead, part, n);
      }
      team.sync();
    }
    if (!__any_sync(kAll, rotated)) return true;
    if (sweep + 1 == kMostSweeps) return !team.any(rotated);
  }
  return true;
}

// Columns from `have` to `want` are chosen such that all are orthonormal as the first ones are; `place` says where a
// column lies. The number that a team has may differ from those of the warp's others.
template <class T>
__device__ void complete(const Lanes& team, T* x, int rows, int lead, const int* place, int have, int want) {
  using R = real_t<T>;
  for (int c = 0; c < want; ++c) {
    const bool needed = c >= have;
    if (!__any_sync(kAll, needed)) continue;
    T* const column = x + place[c] * lead;
    R most = -1;
    int chosen = 0;
    for (int i = team.lane; i < rows; i += team.size) {  // the unit vector that is farthest from what is there
      R rest = 1;
      for (int j = 0; j < c; ++j) rest -= square_of(x[place[j] * lead + i]);
      if (rest > most) most = rest, chosen = i;
    }
    chosen = team.place_of_largest(most, chosen);
    team.sync();
    if (needed)
      for (int i = team.lane; i < rows; i += team.size) column[i] = T(i == chosen ? R(1) : R(0));
    for (int pass = 0; pass < 2; ++pass)
      for (int j = 0; j < c; ++j) {
        const T* const before = x + place[j] * lead;
        T product = T(0);
        for (int i = team.lane; i < rows; i += team.size) product += conj_of(before[i]) * column[i];
        product = team.sum(product);
        if (needed)
          for (int i = team.lane; i < rows; i += team.size) column[i] -= product * before[i];
      }
    R square = 0;
    for (int i = team.lane; i < rows; i += team.size) square += square_of(column[i]);
    square = team.sum_real(square);
    if (needed)
      for (int i = team.lane; i < rows; i += team.size) column[i] = times(column[i], 1 / sqrt(square));
    team.sync();
  }
}

}  // namespace mica::cuda::linalg::jacobi
