// Many small matrices at once: a team of threads for each, which keeps its matrix in shared memory.
#pragma once

#include <algorithm>

#include "backends/cuda/places.cuh"

namespace mica::cuda::linalg {

// ---- numbers

template <class T>
struct RealOf {
  using type = T;
};
template <class R>
struct RealOf<Complex<R>> {
  using type = R;
};
template <class T>
using real_t = typename RealOf<T>::type;

template <class T>
__host__ __device__ T conj_of(const T& v) {
  if constexpr (is_complex_v<T>) {
    return T(v.real(), -v.imag());
  } else {
    return v;
  }
}
template <class T>
__host__ __device__ real_t<T> real_of(const T& v) {
  if constexpr (is_complex_v<T>) {
    return v.real();
  } else {
    return v;
  }
}
template <class T>
__host__ __device__ real_t<T> imag_of(const T& v) {
  if constexpr (is_complex_v<T>) {
    return v.imag();
  } else {
    return real_t<T>(0);
  }
}
// The size by which LAPACK chooses pivots.
template <class T>
__host__ __device__ real_t<T> size_of(const T& v) {
  if constexpr (is_complex_v<T>) {
    return fabs(v.real()) + fabs(v.imag());
  } else {
    return fabs(v);
  }
}
template <class T>
__host__ __device__ bool is_finite(const T& v) {
  const real_t<T> zero = real_of(v) * 0 + imag_of(v) * 0;
  return zero == zero;
}

template <class F>
void visit_matrix(const char* op, DType dtype, const F& f) {
  switch (dtype) {
    case DType::Float32:
      return f(Tag<float>{});
    case DType::Float64:
      return f(Tag<double>{});
    case DType::Complex64:
      return f(Tag<complexf>{});
    case DType::Complex128:
      return f(Tag<complexd>{});
    default:
      unsupported_dtype(op, dtype);
  }
}

// Column-major matrices, dense, one after the other.
template <class T>
struct Matrices {
  T* data;
  int64_t rows, columns, count;
  explicit Matrices(const TensorView& t)
      : data(t.ptr<T>()), rows(t.sizes[t.ndim - 2]), columns(t.sizes[t.ndim - 1]), count(1) {
    for (int d = 0; d + 2 < t.ndim; ++d) count *= t.sizes[d];
  }
  __host__ __device__ T* operator[](int64_t i) const { return data + i * rows * columns; }
  int64_t side() const { return std::max(rows, columns); }
  size_t bytes() const { return static_cast<size_t>(rows * columns) * sizeof(T); }
};

// ---- teams

// A warp for matrices of up to 32 rows, four of them in a block; a block for larger ones. Every warp of a team takes
// the sums it needs for itself, so that only what is written to the matrix has to be waited for.
template <int kSize>
struct Team {
  int rank;
  static constexpr int size = kSize, warps = kSize / 32;
  __device__ void sync() const {
    if constexpr (kSize == 32) {
      __syncwarp();
    } else {
      __syncthreads();
    }
  }
  __device__ static void warp_sync() { __syncwarp(); }
  __device__ int lane() const { return rank % 32; }
  __device__ int warp() const { return rank / 32; }
  static constexpr int lanes = 32;
  template <class R>
  __device__ static R sum_real(R v) {
    for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xffffffffu, v, step);
    return v;
  }
  template <class T>
  __device__ static T sum(const T& v) {
    if constexpr (is_complex_v<T>) {
      return T(sum_real(v.real()), sum_real(v.imag()));
    } else {
      return sum_real(v);
    }
  }
  template <class R>
  __device__ static R largest(R v) {
    for (int step = 16; step; step /= 2) {
      const R other = __shfl_xor_sync(0xffffffffu, v, step);
      v = other > v || other != other ? other : v;
    }
    return v;
  }
  // The place of the largest value, of equal ones the first.
  template <class R>
  __device__ static int place_of_largest(R v, int place) {
    for (int step = 16; step; step /= 2) {
      const R other = __shfl_xor_sync(0xffffffffu, v, step);
      const int there = __shfl_xor_sync(0xffffffffu, place, step);
      if (other > v || (other == v && there < place)) v = other, place = there;
    }
    return place;
  }
};

inline constexpr size_t round_up(size_t bytes) { return (bytes + 15) / 16 * 16; }

template <int kSize, class Body>
__global__ void __launch_bounds__(kSize == 32 ? 128 : kSize) team_kernel(int64_t count, size_t bytes, Body body) {
  extern __shared__ __align__(16) unsigned char memory[];
  constexpr int kTeams = kSize == 32 ? 4 : 1;
  const Team<kSize> team{static_cast<int>(threadIdx.x)};
  unsigned char* const mine = memory + threadIdx.y * bytes;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kTeams + threadIdx.y; i < count;
       i += static_cast<int64_t>(gridDim.x) * kTeams) {
    body(team, mine, i);
    team.sync();
  }
}

template <int kSize, class Body>
void launch_teams(int device, int64_t count, size_t bytes, const Body& body) {
  constexpr int kTeams = kSize == 32 ? 4 : 1;
  const size_t shared = bytes * kTeams;
  if (shared > 48 * 1024)
    MICA_CUDA(cudaFuncSetAttribute(team_kernel<kSize, Body>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(shared)));
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((count + kTeams - 1) / kTeams, 1 << 20));
  team_kernel<kSize><<<blocks, dim3(kSize, kTeams), shared, current_stream(device)>>>(count, bytes, body);
  MICA_CUDA(cudaGetLastError());
}

// Runs body(team, shared memory of `bytes`, i) for each of `count` matrices of at most `side` rows and columns.
template <class Body>
void each_matrix(int device, int64_t count, int64_t side, size_t bytes, const Body& body) {
  if (count == 0) return;
  bytes = round_up(bytes);
  if (side <= 32 && bytes <= 32 * 1024) return launch_teams<32>(device, count, bytes, body);
  if (side <= 96) return launch_teams<128>(device, count, bytes, body);
  launch_teams<256>(device, count, bytes, body);
}

// Whether a team should do it: a matrix that fits, and either a small one or one of several.
inline bool suits_teams(int device, int64_t side, size_t bytes, int64_t count) {
  return round_up(bytes) <= properties(device).sharedMemPerBlockOptin && (side <= 64 || count >= 8);
}

}  // namespace mica::cuda::linalg
