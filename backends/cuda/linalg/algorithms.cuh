// Decompositions of one matrix by one team. Matrices are column-major; `lead` elements lie between columns. Every
// function begins and ends with the team in step.
#pragma once

#include <cmath>

#include "backends/cuda/linalg/team.cuh"

namespace mica::cuda::linalg {

// L with L L^H = a replaces the lower triangle. 0, or the order of the first minor that is not positive.
template <class T, class Team>
__host__ __device__ int cholesky(const Team& team, T* a, int n, int lead) {
  for (int j = 0; j < n; ++j) {
    const real_t<T> square = real_of(a[j * lead + j]);
    if (!(square > 0)) return j + 1;
    const real_t<T> root = sqrt(square);
    team.sync();
    if (team.rank == 0) a[j * lead + j] = T(root);
    for (int i = j + 1 + team.rank; i < n; i += team.size) a[j * lead + i] /= root;
    team.sync();
    const int rest = n - j - 1;
    for (int e = team.rank; e < rest * rest; e += team.size) {
      const int row = j + 1 + e % rest, column = j + 1 + e / rest;
      if (row >= column) a[column * lead + row] -= a[j * lead + row] * conj_of(a[j * lead + column]);
    }
    team.sync();
  }
  return 0;
}

// The row of the largest element of a column from `from` on.
template <class T, class Team>
__host__ __device__ int pivot_row(const Team& team, const T* column, int from, int rows) {
  int place = from;
  real_t<T> best = -1;
  for (int i = from + team.lane(); i < rows; i += team.lanes) {
    const real_t<T> here = size_of(column[i]);
    if (here > best) best = here, place = i;
  }
  return team.place_of_largest(best, place);
}

template <class T, class Team>
__host__ __device__ void swap_rows(const Team& team, T* a, int columns, int lead, int one, int other) {
  if (one == other) return;
  for (int c = team.rank; c < columns; c += team.size) {
    const T kept = a[c * lead + one];
    a[c * lead + one] = a[c * lead + other];
    a[c * lead + other] = kept;
  }
}

// L without its diagonal of ones and U replace a. 0, or the place of the first zero on U's diagonal. Without pivots
// (null) no rows are exchanged.
template <class T, class Team>
__host__ __device__ int lu(const Team& team, T* a, int m, int n, int lead, int* pivots) {
  int info = 0;
  const int steps = m < n ? m : n;
  for (int k = 0; k < steps; ++k) {
    if (pivots) {
      const int chosen = pivot_row(team, a + k * lead, k, m);
      team.sync();
      swap_rows(team, a, n, lead, k, chosen);
      if (team.rank == 0) pivots[k] = chosen + 1;
      team.sync();
    }
    const T pivot = a[k * lead + k];
    if (pivot == T(0)) {
      if (!info) info = k + 1;
      if (pivots) continue;  // the whole column is zero
    }
    for (int i = k + 1 + team.rank; i < m; i += team.size) a[k * lead + i] /= pivot;
    team.sync();
    const int height = m - k - 1, width = n - k - 1;
    for (int e = team.rank; e < height * width; e += team.size) {
      const int row = k + 1 + e % height, column = k + 1 + e / height;
      a[column * lead + row] -= a[k * lead + row] * a[column * lead + k];
    }
    team.sync();
  }
  return info;
}

// The inverse replaces a, by elimination with the largest pivots. 0, or the place of the first pivot that is zero.
// `places` has room for n numbers.
template <class T, class Team>
__host__ __device__ int invert(const Team& team, T* a, int n, int* places) {
  for (int k = 0; k < n; ++k) {
    const int chosen = pivot_row(team, a + k * n, k, n);
    team.sync();
    swap_rows(team, a, n, n, k, chosen);
    if (team.rank == 0) places[k] = chosen;
    team.sync();
    const T pivot = a[k * n + k];
    if (pivot == T(0)) return k + 1;
    const T inverse = T(1) / pivot;
    for (int e = team.rank; e < n * n; e += team.size) {
      const int row = e % n, column = e / n;
      if (row != k && column != k) a[e] -= a[k * n + row] * (a[column * n + k] * inverse);
    }
    team.sync();
    for (int i = team.rank; i < n; i += team.size) {
      if (i == k) {
        a[k * n + k] = inverse;
      } else {
        a[i * n + k] *= inverse;
        a[k * n + i] *= -inverse;
      }
    }
    team.sync();
  }
  for (int k = n - 1; k >= 0; --k) {  // columns are exchanged as rows were, in the opposite order
    const int other = places[k];
    if (other == k) continue;
    for (int i = team.rank; i < n; i += team.size) {
      const T kept = a[k * n + i];
      a[k * n + i] = a[other * n + i];
      a[other * n + i] = kept;
    }
    team.sync();
  }
  return 0;
}

// How a triangle is read: as it lies, transposed, and with its elements conjugated.
struct Triangle {
  bool upper;  // as it lies
  bool transposed, conjugated, unit;
  __host__ __device__ bool solves_upwards() const { return upper != transposed; }
};
// Elements of right-hand sides, of any strides.
template <class T>
struct Sides {
  T* data;
  int64_t row, column;
  int count;
  __host__ __device__ T& at(int i, int c) const { return data[i * row + c * column]; }
};

// The solution of a x = b replaces b.
template <class T, class Team>
__host__ __device__ void solve_triangle(const Team& team, const T* a, int n, int lead, const Triangle& how,
                                        const Sides<T>& b) {
  const auto element = [&](int i, int k) {
    const T v = how.transposed ? a[i * static_cast<int64_t>(lead) + k] : a[k * static_cast<int64_t>(lead) + i];
    return how.conjugated ? conj_of(v) : v;
  };
  const bool upwards = how.solves_upwards();
  for (int step = 0; step < n; ++step) {
    const int k = upwards ? n - 1 - step : step;
    if (!how.unit) {
      const T diagonal = element(k, k);
      for (int c = team.rank; c < b.count; c += team.size) b.at(k, c) /= diagonal;
      team.sync();
    }
    const int rest = n - 1 - step, first = upwards ? 0 : k + 1;
    for (int e = team.rank; e < rest * b.count; e += team.size) {
      const int i = first + e % rest, c = e / rest;
      b.at(i, c) -= element(i, k) * b.at(k, c);
    }
    team.sync();
  }
}

// Exchanges the rows of b as a decomposition has, or undoes it. A pivot that names no row is passed over.
template <class T, class Team>
__host__ __device__ void exchange_rows(const Team& team, const Sides<T>& b, int n, const int* pivots, bool undo) {
  for (int c = team.rank; c < b.count; c += team.size)
    for (int step = 0; step < n; ++step) {
      const int k = undo ? n - 1 - step : step, other = pivots[k] - 1;
      if (other == k || other < 0 || other >= n) continue;
      const T kept = b.at(k, c);
      b.at(k, c) = b.at(other, c);
      b.at(other, c) = kept;
    }
  team.sync();
}

// ---- reflections I - tau v v^H, the first element of v being 1

// x -= tau w v with w = v^H x, or with v conjugated; one warp's work. `v` without its first element, which x[0] meets.
template <class T, class Team>
__host__ __device__ void reflect(const Team& team, T* x, int64_t step, const T* v, int length, const T& tau,
                                 bool conjugated) {
  T sum = T(0);
  for (int i = 1 + team.lane(); i < length; i += team.lanes) sum += (conjugated ? v[i] : conj_of(v[i])) * x[i * step];
  const T by = tau * (team.sum(sum) + x[0]);
  team.warp_sync();  // x[0] has been read
  if (team.lane() == 0) x[0] -= by;
  for (int i = 1 + team.lane(); i < length; i += team.lanes) x[i * step] -= by * (conjugated ? conj_of(v[i]) : v[i]);
}

// The reflections that make a triangular, as LAPACK packs them: R above, the vectors below the diagonal.
template <class T, class Team>
__host__ __device__ void qr(const Team& team, T* a, int m, int n, int lead, T* taus) {
  using R = real_t<T>;
  const int steps = m < n ? m : n;
  for (int j = 0; j < steps; ++j) {
    T* const x = a + j * lead + j;
    const int length = m - j;
    R scale = 0;
    for (int i = 1 + team.lane(); i < length; i += team.lanes) {
      const R here = size_of(x[i]);
      scale = here > scale || here != here ? here : scale;
    }
    scale = team.largest(scale);
    const T alpha = x[0];
    const R below = R(0);
    T tau = T(0), factor = T(0), beta = alpha;
    if (scale != below || imag_of(alpha) != below) {
      R tail = 0;
      if (scale != below) {
        R sum = 0;
        for (int i = 1 + team.lane(); i < length; i += team.lanes) {
          const R re = real_of(x[i]) / scale, im = imag_of(x[i]) / scale;
          sum += re * re + im * im;
        }
        tail = scale * sqrt(team.sum(sum));
      }
      const R length_of_all = hypot(hypot(real_of(alpha), imag_of(alpha)), tail);
      const R turned = real_of(alpha) >= 0 ? -length_of_all : length_of_all;
      tau = (T(turned) - alpha) / turned;
      if constexpr (is_complex_v<T>) tau = T((turned - alpha.real()) / turned, -alpha.imag() / turned);
      factor = T(1) / (alpha - T(turned));
      beta = T(turned);
    }
    team.sync();
    if (team.rank == 0) {
      x[0] = beta;
      taus[j] = tau;
    }
    if (tau != T(0))
      for (int i = 1 + team.rank; i < length; i += team.size) x[i] *= factor;
    team.sync();
    if (tau != T(0))
      for (int c = j + 1 + team.warp(); c < n; c += team.warps)
        reflect(team, a + c * lead + j, 1, x, length, conj_of(tau), false);
    team.sync();
  }
}

// The first n columns of the reflections' product replace their vectors; k reflections, k <= n <= m.
template <class T, class Team>
__host__ __device__ void reflections_product(const Team& team, T* a, int m, int n, int k, int lead, const T* taus) {
  for (int c = k; c < n; ++c)
    for (int i = team.rank; i < m; i += team.size) a[c * lead + i] = T(i == c ? 1 : 0);
  team.sync();
  for (int j = k - 1; j >= 0; --j) {
    T* const v = a + j * lead + j;
    const int length = m - j;
    const T tau = taus[j];
    for (int c = j + 1 + team.warp(); c < n; c += team.warps) reflect(team, a + c * lead + j, 1, v, length, tau, false);
    team.sync();
    for (int i = team.rank; i < m; i += team.size) {
      T& here = a[j * lead + i];
      here = i < j ? T(0) : i == j ? T(1) - tau : -tau * here;
    }
    team.sync();
  }
}

// c (m x n) becomes Q c, Q^H c, c Q or c Q^H; the vectors of the k reflections are a's columns.
template <class T, class Team>
__host__ __device__ void apply_reflections(const Team& team, const T* a, int k, int lead, const T* taus, T* c, int m,
                                           int n, int64_t c_lead, bool left, bool adjoint) {
  for (int step = 0; step < k; ++step) {
    const int j = left == adjoint ? step : k - 1 - step;
    const T tau = adjoint ? conj_of(taus[j]) : taus[j];
    const T* const v = a + j * static_cast<int64_t>(lead) + j;
    const int vectors = left ? n : m, length = (left ? m : n) - j;
    for (int x = team.warp(); x < vectors; x += team.warps)
      reflect(team, left ? c + x * c_lead + j : c + j * c_lead + x, left ? int64_t{1} : c_lead, v, length, tau, !left);
    team.sync();
  }
}

}  // namespace mica::cuda::linalg
