// rms_norm of the one row that products begin with (vector.cu): each block normalises it for itself.
#pragma once

#include "backends/cuda/pieces.cuh"
#include "backends/cuda/strided.cuh"

namespace mica::cuda {

inline constexpr int kWarpsOfBlock = kThreads / 32, kPiece = Piece<half>::kCount;

template <class T>
__device__ Piece<T> read(const int4* from) {
  return as_piece<T>(__ldca(from));
}

// A thread's own part of the row and of the norm's weight is asked for (Own) and then brought to the shared memory of
// its block, normalised (bring); the weight is asked for before the row is there.
struct NoNorm {
  template <int kOwn>
  struct Own {
    __device__ void ask_weight(const NoNorm&) {}
  };
};

// The operation rms_norm.
template <class T>
struct RowNorm {
  const T *input, *weight;
  T* out;
  float* rstd;
  int pieces;
  float share, eps;

  // The first 128 threads have other pieces, too, whose squares they add up.
  static constexpr int kAdding = 128;
  template <int kOwn>
  struct Own {
    int4 weight[kOwn] = {}, row[kOwn], others[kOwn];
    __device__ void ask_weight(const RowNorm& p) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        if (p.weight && at(i) < p.pieces) weight[i] = __ldca(reinterpret_cast<const int4*>(p.weight) + at(i));
    }
    __device__ void ask_row(const RowNorm& p) {
      const auto* from = reinterpret_cast<const int4*>(p.input);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (at(i) < p.pieces) row[i] = __ldca(from + at(i));
        if (threadIdx.x < kAdding && at(i) + kAdding < p.pieces) others[i] = __ldca(from + at(i) + kAdding);
      }
    }
    __device__ static int at(int i) { return static_cast<int>(threadIdx.x) + i * kThreads; }
  };
};

// By the additions of the kernel for few rows in normalization/layer_norm.cu: the first 128 threads add the squares. A
// thread has kOwn pieces.
template <class T, class Own>
__device__ void bring(const RowNorm<T>& p, const Own& own, T* to) {
  __shared__ float sums[4];
  constexpr int kAdding = RowNorm<T>::kAdding, kOwn = static_cast<int>(sizeof(own.row) / sizeof(own.row[0]));
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kAdding) {
    float squares = 0;
    const auto add = [&](const Piece<T>& piece) {
#pragma unroll
      for (int j = 0; j < kPiece; ++j) {
        const float v = convert<float>(piece.item[j]);
        squares += v * v;
      }
    };
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (thread + i * kThreads < p.pieces) add(as_piece<T>(own.row[i]));
      if (thread + kAdding + i * kThreads < p.pieces) add(as_piece<T>(own.others[i]));
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, mask);
    if (thread % 32 == 0) sums[thread / 32] = squares;
  }
  __syncthreads();
  const float total = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  const float rstd = 1.0f / ::sqrt(total * p.share + p.eps);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int at = thread + i * kThreads;
    if (at >= p.pieces) continue;
    const auto weight = as_piece<T>(own.weight[i]), row = as_piece<T>(own.row[i]);
    Piece<T> piece;
#pragma unroll
    for (int j = 0; j < kPiece; ++j) {
      float v = convert<float>(row.item[j]) * rstd;
      if (p.weight) v *= convert<float>(weight.item[j]);
      piece.item[j] = convert<T>(v);
    }
    reinterpret_cast<Piece<T>*>(to)[at] = piece;
    if (p.out && blockIdx.x == 0) reinterpret_cast<Piece<T>*>(p.out)[at] = piece;
  }
  if (p.rstd && blockIdx.x == 0 && thread == 0) *p.rstd = rstd;
  __syncthreads();
}

// The steps of a program that writes the norm out (FusedRowNorm::as_written).
template <class T>
struct WrittenNorm {
  const T *input, *weight;
  T* out;
  float *mean, *shifted, *root;
  int count;
  float eps;

  struct alignas(8) Four {
    T item[4];
  };
  template <int kOwn>
  struct Own {
    Four weight[2 * kOwn] = {}, row[2 * kOwn];
    __device__ void ask_weight(const WrittenNorm& p) {
      if (p.weight) ask(weight, p.weight, p.count);
    }
    __device__ void ask_row(const WrittenNorm& p) { ask(row, p.input, p.count); }
    __device__ static void ask(Four (&to)[2 * kOwn], const T* from, int count) {
#pragma unroll
      for (int i = 0; i < 2 * kOwn; ++i) {
        const int four = static_cast<int>(threadIdx.x) + i * kThreads;
        if (4 * four < count) to[i] = reinterpret_cast<const Four*>(from)[four];
      }
    }
  };
};

// By the additions of reduce_rows (reduce/reduce.cuh), which has as many threads for such a row: each thread adds up
// squares in fours by their places, then lanes meet, then warps.
template <class T, class Own>
__device__ void bring(const WrittenNorm<T>& p, const Own& own, T* to) {
  using Four = typename WrittenNorm<T>::Four;
  constexpr int kFours = static_cast<int>(sizeof(own.row) / sizeof(own.row[0]));
  __shared__ float sums[kWarpsOfBlock];
  const int thread = static_cast<int>(threadIdx.x);
  float squares[4] = {};
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    if (4 * (thread + i * kThreads) >= p.count) break;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float v = convert<float>(own.row[i].item[j]);
      squares[j] += v * v;
    }
  }
  float sum = ((squares[0] + squares[1]) + squares[2]) + squares[3];
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  if (thread % 32 == 0) sums[thread / 32] = sum;
  __syncthreads();
  const float even = (sums[0] + sums[4]) + (sums[2] + sums[6]), odd = (sums[1] + sums[5]) + (sums[3] + sums[7]);
  const float mean = (even + odd) / static_cast<float>(p.count), root = ::rsqrt(mean + p.eps);
  if (blockIdx.x == 0 && thread == 0) {
    if (p.mean) *p.mean = mean;
    if (p.shifted) *p.shifted = mean + p.eps;
    if (p.root) *p.root = root;
  }
#pragma unroll
  for (int i = 0; i < kFours; ++i) {
    const int four = thread + i * kThreads;
    if (4 * four >= p.count) break;
    Four result;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      result.item[j] = convert<T>(convert<float>(own.row[i].item[j]) * root);
      if (p.weight) result.item[j] = convert<T>(convert<float>(own.weight[i].item[j]) * convert<float>(result.item[j]));
    }
    reinterpret_cast<Four*>(to)[four] = result;
    if (p.out && blockIdx.x == 0) reinterpret_cast<Four*>(p.out)[four] = result;
  }
  __syncthreads();
}

}  // namespace mica::cuda
