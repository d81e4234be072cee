// Eigenvalues of Hermitian matrices and singular values, of many matrices of up to 32 rows and columns.
#include "backends/cuda/linalg/jacobi.cuh"
#include "backends/cuda/linalg/kernels.h"

namespace mica::cuda::linalg {

namespace {

using jacobi::Lanes;
using jacobi::Rotation;

constexpr int kThreadsOfBlock = 128;

// Teams of a block, and each one's part of shared memory.
struct Teams {
  int lanes;
  size_t bytes;
  __device__ Lanes mine() const { return {static_cast<int>(threadIdx.x) & (lanes - 1), lanes}; }
  __device__ int place() const { return static_cast<int>(threadIdx.x) / lanes; }
  __device__ int64_t matrix() const { return static_cast<int64_t>(blockIdx.x) * (kThreadsOfBlock / lanes) + place(); }
};
int lanes_for(int n) {
  int lanes = 2;
  while (lanes < n) lanes *= 2;
  return lanes;
}
int even(int n) { return n + n % 2; }
__host__ __device__ int lead_for(int rows) { return rows | 1; }  // columns begin in different banks

template <class Body>
__global__ void __launch_bounds__(kThreadsOfBlock) small_kernel(int64_t count, Teams teams, Body body) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int64_t i = teams.matrix();
  body(teams.mine(), memory + static_cast<size_t>(teams.place()) * teams.bytes, i, i < count);
}
template <class Body>
void launch_small(int device, int64_t count, int lanes, size_t bytes, const Body& body) {
  if (count == 0) return;
  // More lanes than a matrix needs make fewer matrices for a block's memory.
  while (lanes < 32 && round_up(bytes) * static_cast<size_t>(kThreadsOfBlock / lanes) > 64 * 1024) lanes *= 2;
  const Teams teams{lanes, round_up(bytes)};
  const int in_block = kThreadsOfBlock / lanes;
  const size_t shared = teams.bytes * static_cast<size_t>(in_block);
  if (shared > 48 * 1024)
    MICA_CUDA(cudaFuncSetAttribute(small_kernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared)));
  small_kernel<<<static_cast<unsigned>((count + in_block - 1) / in_block), kThreadsOfBlock, shared,
                 current_stream(device)>>>(count, teams, body);
  MICA_CUDA(cudaGetLastError());
}

// Brings what is in a team's memory to a size of about one; the factor, or zero if a number is not finite.
template <class T>
__device__ real_t<T> bring_to_one(const Lanes& team, T* x, int rows, int columns, int lead) {
  using R = real_t<T>;
  R size = 0;
  bool finite = true;
  for (int c = 0; c < columns; ++c)
    for (int i = team.lane; i < rows; i += team.size) {
      const T value = x[c * lead + i];
      finite = finite && is_finite(value);
      const R here = fmax(fabs(real_of(value)), fabs(imag_of(value)));
      size = here > size ? here : size;
    }
  const R factor = jacobi::power_for(team.largest(size));
  const bool all_finite = !team.any(!finite);
  for (int c = 0; c < columns; ++c)
    for (int i = team.lane; i < rows; i += team.size)
      x[c * lead + i] = all_finite ? jacobi::times(x[c * lead + i], factor) : T(0);
  team.sync();
  return all_finite ? factor : R(0);
}

// The place of each number among all, the same for equal ones as they come.
template <bool kFalling, class R>
__device__ int place_among(const R* values, int n, int i) {
  int place = 0;
  for (int j = 0; j < n; ++j) {
    const bool before = kFalling ? values[j] > values[i] : values[j] < values[i];
    place += before || (values[j] == values[i] && j < i);
  }
  return place;
}

template <class T>
struct EighBody {
  using R = real_t<T>;
  T* a;
  R* values;
  int* info;
  int n, players;
  bool upper, vectors;

  size_t bytes() const {
    const size_t matrix = round_up(static_cast<size_t>(players * lead_for(players)) * sizeof(T));
    return matrix * (vectors ? 2 : 1) + round_up(static_cast<size_t>(players / 2) * sizeof(Rotation<T>)) +
           static_cast<size_t>(n) * sizeof(R);
  }
  __device__ void operator()(const Lanes& team, unsigned char* memory, int64_t i, bool active) const {
    const int lead = lead_for(players);
    const size_t matrix = round_up(static_cast<size_t>(players * lead) * sizeof(T));
    T* const x = reinterpret_cast<T*>(memory);
    T* const v = vectors ? reinterpret_cast<T*>(memory + matrix) : nullptr;
    unsigned char* const rest = memory + matrix * (vectors ? 2 : 1);
    auto* const rotations = reinterpret_cast<Rotation<T>*>(rest);
    R* const found = reinterpret_cast<R*>(rest + round_up(static_cast<size_t>(players / 2) * sizeof(Rotation<T>)));
    T* const whole = a + i * n * n;
    const int row = team.lane;
    if (row < players)
      for (int c = 0; c < players; ++c) {
        T value = T(0);
        if (active && row < n && c < n) {
          const bool given = upper ? row <= c : row >= c;
          value = given ? whole[c * n + row] : conj_of(whole[row * n + c]);
          if (row == c) value = T(real_of(value));
        }
        x[c * lead + row] = value;
        if (v) v[c * lead + row] = T(row == c ? R(1) : R(0));
      }
    team.sync();
    const R factor = bring_to_one(team, x, players, players, lead);
    const bool ended = jacobi::diagonalize(team, x, v, players, lead, rotations);
    if (row < n) found[row] = real_of(x[row * lead + row]);
    team.sync();
    if (!active) return;
    if (row == 0) info[i] = factor == 0 || !ended ? (n > 2 ? n - 1 : 1) : 0;
    if (row < n) values[i * n + place_among<false>(found, n, row)] = found[row] / factor;
    if (v)
      for (int c = 0; c < n; ++c) {
        const int to = place_among<false>(found, n, c);
        if (row < n) whole[to * n + row] = v[c * lead + row];
      }
  }
};

// The matrix of singular vectors on the longer side, of `tall` rows, is what the columns become; where the matrix has
// more columns than rows, it is its adjoint that is worked on.
template <class T>
struct SvdBody {
  using R = real_t<T>;
  const T* a;
  T *u, *vh;
  R* values;
  int* info;
  int m, n, players;  // players: the smaller of both, made even
  int vectors;        // none, as many as there are singular values, all

  __host__ __device__ int tall() const { return m > n ? m : n; }
  __host__ __device__ int few() const { return m > n ? n : m; }
  __host__ __device__ int wanted() const { return vectors == 2 ? tall() : few(); }
  __host__ __device__ int columns() const { return players > wanted() ? players : wanted(); }
  size_t bytes() const {
    return round_up(static_cast<size_t>(columns() * lead_for(tall())) * sizeof(T)) +
           (vectors ? round_up(static_cast<size_t>(players * lead_for(players)) * sizeof(T)) : 0) +
           round_up(static_cast<size_t>(players) * sizeof(R)) + static_cast<size_t>(columns()) * sizeof(int);
  }
  __device__ void operator()(const Lanes& team, unsigned char* memory, int64_t i, bool active) const {
    const int rows = tall(), k = few(), lead = lead_for(rows), v_lead = lead_for(players);
    const bool flipped = m < n;
    T* const x = reinterpret_cast<T*>(memory);
    memory += round_up(static_cast<size_t>(columns() * lead) * sizeof(T));
    T* const v = vectors ? reinterpret_cast<T*>(memory) : nullptr;
    if (vectors) memory += round_up(static_cast<size_t>(players * v_lead) * sizeof(T));
    R* const found = reinterpret_cast<R*>(memory);
    int* const place = reinterpret_cast<int*>(memory + round_up(static_cast<size_t>(players) * sizeof(R)));
    const T* const whole = a + i * m * n;
    for (int c = 0; c < columns(); ++c)
      for (int row = team.lane; row < rows; row += team.size)
        x[c * lead + row] = !active || c >= k ? T(0) : flipped ? conj_of(whole[row * m + c]) : whole[c * m + row];
    if (v)
      for (int c = 0; c < players; ++c)
        for (int row = team.lane; row < players; row += team.size) v[c * v_lead + row] = T(row == c ? R(1) : R(0));
    team.sync();
    const R factor = bring_to_one(team, x, rows, k, lead);
    constexpr R kEpsilon = jacobi::epsilon<R>();
    const bool ended =
        jacobi::orthogonalize(team, x, rows, lead, v, players, v_lead, kEpsilon * kEpsilon * kEpsilon * kEpsilon);
    for (int c = team.lane; c < players; c += team.size) {
      R square = 0;
      for (int row = 0; row < rows; ++row) square += jacobi::square_of(x[c * lead + row]);
      found[c] = sqrt(square);
    }
    team.sync();
    if (active && team.lane == 0) info[i] = factor == 0 ? -4 : ended ? 0 : k;
    R largest = 0;
    for (int c = 0; c < k; ++c) largest = found[c] > largest ? found[c] : largest;
    int have = 0;  // columns that are long enough to have a direction
    for (int c = 0; c < k; ++c) have += found[c] > largest * kEpsilon * kEpsilon;
    for (int c = team.lane; c < k; c += team.size) {
      const int to = place_among<true>(found, k, c);
      place[to] = c;
      if (active) values[i * k + to] = found[c] / factor;
    }
    for (int c = k + team.lane; c < columns(); c += team.size) place[c] = c;
    if (!v) return;
    for (int c = 0; c < k; ++c)
      for (int row = team.lane; row < rows && found[c] > 0; row += team.size)
        x[c * lead + row] = jacobi::times(x[c * lead + row], 1 / found[c]);
    team.sync();
    jacobi::complete(team, x, rows, lead, place, have, wanted());
    if (active) write(team, x, lead, v, v_lead, place, i);
  }
  __device__ void write(const Lanes& team, const T* x, int lead, const T* v, int v_lead, const int* place,
                        int64_t i) const {
    const int rows = tall(), k = few(), kept = wanted();
    if (m >= n) {
      T *const left = u + i * m * kept, *const right = vh + i * n * n;
      for (int c = 0; c < kept; ++c)
        for (int row = team.lane; row < rows; row += team.size) left[c * m + row] = x[place[c] * lead + row];
      for (int c = 0; c < n; ++c)
        for (int row = team.lane; row < n; row += team.size) right[c * n + row] = conj_of(v[place[row] * v_lead + c]);
      return;
    }
    T *const left = u + i * m * m, *const right = vh + i * n * kept;
    for (int c = 0; c < k; ++c)
      for (int row = team.lane; row < m; row += team.size) left[c * m + row] = v[place[c] * v_lead + row];
    for (int c = 0; c < n; ++c)
      for (int row = team.lane; row < kept; row += team.size) right[c * kept + row] = conj_of(x[place[row] * lead + c]);
  }
};

// One matrix of more than 8 rows takes longer here than on the host, so there must be several. Matrices of more than 16
// rows must be many, since cuSOLVER has more threads for each. Its eigenvectors of several matrices are not used: those
// of 20 x 20 matrices were 2.6e-4 from orthogonal in float32, a hundred times what rounding explains. So matrices that
// the host does not take are computed here.
constexpr int64_t kLargest = 32;
bool suits(const TensorView& a, int64_t several, int64_t many) {
  const int64_t m = a.sizes[a.ndim - 2], n = a.sizes[a.ndim - 1], side = std::max(m, n), count = a.numel / (m * n);
  return side <= 8 || (side <= 16 && count >= several) || (side <= kLargest && count >= many);
}

}  // namespace

bool suits_small_eigh(const TensorView& a) { return suits(a, 8, 4); }
void small_eigh(const TensorView& a, const TensorView& eigenvalues, const TensorView& info, bool upper, bool vectors) {
  visit_matrix("linalg_eigh_cuda", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    const int n = static_cast<int>(all.rows);
    const EighBody<T> body{all.data, eigenvalues.ptr<real_t<T>>(), info.ptr<int>(), n, even(n), upper, vectors};
    launch_small(a.device.index(), all.count, lanes_for(body.players), body.bytes(), body);
  });
}

bool suits_small_svd(const TensorView& a) { return suits(a, 2, 256); }
void small_svd(const TensorView& a, const TensorView& u, const TensorView& s, const TensorView& vh,
               const TensorView& info, int64_t vectors) {
  visit_matrix("linalg_svd_cuda", a.dtype, [&]<class T>(Tag<T>) {
    const Matrices<T> all(a);
    const int m = static_cast<int>(all.rows), n = static_cast<int>(all.columns), players = even(std::min(m, n));
    const SvdBody<T> body{all.data,
                          vectors ? u.ptr<T>() : nullptr,
                          vectors ? vh.ptr<T>() : nullptr,
                          s.ptr<real_t<T>>(),
                          info.ptr<int>(),
                          m,
                          n,
                          players,
                          static_cast<int>(vectors)};
    launch_small(a.device.index(), all.count, lanes_for(players), body.bytes(), body);
  });
}

}  // namespace mica::cuda::linalg
