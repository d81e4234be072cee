// Rows of contiguous memory that a warp or a block works on: held in registers where they fit, so that memory is read
// once, and else walked over.
#pragma once

#include "backends/cuda/block.cuh"
#include "backends/cuda/context.h"
#include "backends/cuda/fetch.cuh"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

// A parameter in the dtype of the elements, or float32 beside 16-bit floats.
template <class T>
struct Parameter {
  const T* same = nullptr;
  const float* wide = nullptr;

  Parameter() = default;
  explicit Parameter(const TensorView& t) {
    if (!t.defined()) return;
    if (t.dtype == DType::Float32) {
      wide = t.ptr<const float>();
    } else {
      same = t.ptr<const T>();
    }
  }
  __device__ bool given() const { return same || wide; }
  __device__ compute_t<T> at(int64_t i) const {
    return wide ? static_cast<compute_t<T>>(wide[i]) : convert<compute_t<T>>(same[i]);
  }
  // Some of them side by side, all of them there and aligned.
  template <int V>
  __device__ void load_piece(compute_t<T> (&to)[V], int64_t first) const {
    if (wide) {
      const auto piece = *reinterpret_cast<const Vector<float, V>*>(wide + first);
#pragma unroll
      for (int j = 0; j < V; ++j) to[j] = static_cast<compute_t<T>>(piece.item[j]);
    } else {
      const auto piece = *reinterpret_cast<const Vector<T, V>*>(same + first);
#pragma unroll
      for (int j = 0; j < V; ++j) to[j] = convert<compute_t<T>>(piece.item[j]);
    }
  }
  // The same, of which those from n on are not read. Whole pieces where all is aligned.
  template <int V>
  __device__ void load(compute_t<T> (&to)[V], int64_t first, int64_t n, bool aligned) const {
    if (aligned && first + V <= n) {
      load_piece(to, first);
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) to[j] = first + j < n ? at(first + j) : compute_t<T>(0);
    }
  }
  // Asks for the one at `i` into the second cache.
  __device__ void fetch(int64_t i) const {
    if (wide) prefetch(wide + i);
    if (same) prefetch(same + i);
  }
  const void* data() const { return wide ? static_cast<const void*>(wide) : same; }
};
// A statistic that is written in the dtype of the elements or in float32.
template <class T>
struct Statistic {
  T* same = nullptr;
  float* wide = nullptr;

  Statistic() = default;
  explicit Statistic(const TensorView& t) {
    if (!t.defined() || t.numel == 0) return;
    if (t.dtype == DType::Float32) {
      wide = t.ptr<float>();
    } else {
      same = t.ptr<T>();
    }
  }
  __device__ bool given() const { return same || wide; }
  __device__ compute_t<T> at(int64_t i) const {
    return wide ? static_cast<compute_t<T>>(wide[i]) : convert<compute_t<T>>(same[i]);
  }
  __device__ void set(int64_t i, compute_t<T> v) const {
    if (wide) wide[i] = static_cast<float>(v);
    if (same) same[i] = convert<T>(v);
  }
};

template <class T>
inline constexpr int kVector = sizeof(T) >= 8   ? 2
                               : sizeof(T) == 4 ? 4
                                                : 8;

// Elements of a row that one thread of a group holds: kChunks vectors, a group's width apart.
template <class T, int kGroup, int kChunks>
struct RowTile {
  static constexpr int V = kVector<T>;
  using C = compute_t<T>;
  C values[kChunks][V];

  __device__ static int index(int chunk, int j) {
    return (chunk * kGroup + static_cast<int>(threadIdx.x) % kGroup) * V + j;
  }
  // One vector of a row, all of it there and aligned. Rows may be of another dtype than T (S).
  template <class S>
  __device__ void load_vector(int chunk, const S* from) {
    const auto piece = *reinterpret_cast<const Vector<S, V>*>(from);
#pragma unroll
    for (int j = 0; j < V; ++j) values[chunk][j] = convert<C>(piece.item[j]);
  }
  template <class S>
  __device__ void store_vector(int chunk, S* to) const {
    Vector<S, V> piece;
#pragma unroll
    for (int j = 0; j < V; ++j) piece.item[j] = convert<S>(values[chunk][j]);
    *reinterpret_cast<Vector<S, V>*>(to) = piece;
  }
  // A row of n elements, of which the tile holds all. Where it is aligned for certain (kAligned), as its length is,
  // there are only whole pieces.
  template <bool kAligned = false, class S>
  __device__ void load(const S* row, int64_t count, bool aligned, C missing) {
    const int n = static_cast<int>(count);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int first = index(c, 0);
      if constexpr (kAligned) {
        if (first < n) {
          load_vector(c, row + first);
        } else {
#pragma unroll
          for (int j = 0; j < V; ++j) values[c][j] = missing;
        }
      } else if (aligned && first + V <= n) {
        load_vector(c, row + first);
      } else {
#pragma unroll
        for (int j = 0; j < V; ++j) values[c][j] = first + j < n ? convert<C>(row[first + j]) : missing;
      }
    }
  }
  // A row that fills the tile, aligned.
  static constexpr int64_t kWidth = int64_t{kGroup} * kChunks * V;
  template <class S>
  __device__ void load_whole(const S* row) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) load_vector(c, row + index(c, 0));
  }
  template <class S>
  __device__ void store_whole(S* row) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) store_vector(c, row + index(c, 0));
  }
  template <class F>
  __device__ void for_each(const F& f) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int j = 0; j < V; ++j) f(values[c][j], c, j);
  }
  template <bool kAligned = false, class S>
  __device__ void store(S* row, int64_t count, bool aligned) const {
    const int n = static_cast<int>(count);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int first = index(c, 0);
      if (kAligned && first >= n) continue;
      if (kAligned || (aligned && first + V <= n)) {
        store_vector(c, row + first);
      } else {
#pragma unroll
        for (int j = 0; j < V; ++j)
          if (first + j < n) row[first + j] = convert<S>(values[c][j]);
      }
    }
  }
};

// A contiguous tensor seen as [outer, count, inner] around one dimension.
struct AroundDim {
  int64_t outer = 1, count = 1, inner = 1;
  AroundDim(const TensorView& t, int64_t dim) {
    for (int64_t d = 0; d < t.ndim; ++d) (d < dim ? outer : d == dim ? count : inner) *= t.sizes[d];
  }
};

template <class... Pointers>
bool rows_aligned(int64_t bytes, Pointers... pointers) {
  uintptr_t bits = static_cast<uintptr_t>(bytes);
  ((bits |= reinterpret_cast<uintptr_t>(pointers)), ...);
  return bits % 16 == 0;
}

// Calls launch with a group width and a number of chunks that hold n elements, or with 0 chunks where none does.
template <class T, class Launch>
void visit_tile(int64_t n, const Launch& launch) {
  constexpr int64_t V = kVector<T>;
  auto run = [&]<int kGroup, int kChunks>() {
    launch(std::integral_constant<int, kGroup>{}, std::integral_constant<int, kChunks>{});
  };
  if constexpr (sizeof(T) == 8) {  // doubles come rarely: fewer kernels
    if (n <= 4 * 32 * V) return run.template operator()<32, 4>();
    if (n <= 4 * 256 * V) return run.template operator()<256, 4>();
  } else {
    if (n <= 32 * V) return run.template operator()<32, 1>();
    if (n <= 4 * 32 * V) return run.template operator()<32, 4>();
    if (n <= 8 * 32 * V) return run.template operator()<32, 8>();
    if (n <= 4 * 128 * V) return run.template operator()<128, 4>();
    if (n <= 4 * 256 * V) return run.template operator()<256, 4>();
    if (n <= 4 * 512 * V) return run.template operator()<512, 4>();
    if (n <= 4 * 1024 * V) return run.template operator()<1024, 4>();
  }
  run.template operator()<512, 0>();
}

// Calls launch with a group width and a number of chunks for which four such tiles fit into registers; false where
// there is none.
template <class T, class Launch>
bool visit_small_tile(int64_t n, const Launch& launch) {
  constexpr int64_t V = kVector<T>;
  auto run = [&]<int kGroup, int kChunks>() {
    launch(std::integral_constant<int, kGroup>{}, std::integral_constant<int, kChunks>{});
    return true;
  };
  if constexpr (sizeof(T) == 8) {
    if (n <= 4 * 32 * V) return run.template operator()<32, 4>();
  } else {
    if (n <= 32 * V) return run.template operator()<32, 1>();
    if constexpr (V == 8)
      if (n <= 3 * 32 * V) return run.template operator()<32, 3>();
    if (n <= 4 * 32 * V) return run.template operator()<32, 4>();
    if constexpr (V < 8) {
      if (n <= 6 * 32 * V) return run.template operator()<32, 6>();
      if (n <= 8 * 32 * V) return run.template operator()<32, 8>();
    }
    if (n <= 4 * 128 * V) return run.template operator()<128, 4>();
  }
  if (n <= 4 * 256 * V) return run.template operator()<256, 4>();
  return false;
}

// Blocks that a multiprocessor is to take at a time, so that their loads, arithmetic and stores overlap: three of 512
// threads that hold 16 numbers each and little else. With more numbers the compiler decides.
template <class T>
constexpr int tile_blocks(int group, int chunks) {
  return group == 512 && chunks * kVector<T> == 16 ? 3 : 1;
}

// Threads of a block that works on rows in groups of kGroup.
inline constexpr int row_threads(int group) { return group < 128 ? 128 : group; }

}  // namespace mica::cuda
