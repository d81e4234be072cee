// Tiles for attention in float32 arithmetic, without the matrix unit: float32 inputs, and 16-bit ones with a mask.
//
// A block has 128 threads, as 8 by 16. Tiles are rows of floats in shared memory, four floats longer than they need to
// be: pieces of 16 bytes of 8 neighbouring rows then lie in different banks. A thread has rows y, y + 8, ... of a
// product, and of its columns either x, x + 16, ... (where they are scores) or pieces of four (where they are numbers
// of heads).
#pragma once

#include "backends/cuda/attention/tiles.cuh"

namespace mica::cuda::attention::plain {

inline constexpr int kThreads = 128, kRows = 64, kEach = 8, kPad = 4;

__device__ inline int thread_x() { return threadIdx.x % 16; }
__device__ inline int thread_y() { return threadIdx.x / 16; }

// How many columns of scores a block makes at a time.
template <int kWidth>
inline constexpr int kColumns = kWidth <= 64 ? 64 : 32;
template <int kWidth>
inline constexpr int kTileFloats = kRows*(kWidth + kPad);

enum class MaskKind : int { None, Bool, Same, Float };

// A mask of four dimensions and any strides.
struct Mask {
  const void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, column = 0;
  MaskKind kind = MaskKind::None;

  // What the mask has for a key, and the score after the scale with that.
  template <class T>
  __device__ float read(int64_t at) const {
    if (kind == MaskKind::None) return 0;
    if (kind == MaskKind::Bool) return static_cast<const bool*>(data)[at] ? 1 : 0;
    return kind == MaskKind::Same ? convert<float>(static_cast<const T*>(data)[at])
                                  : static_cast<const float*>(data)[at];
  }
  __device__ float with(float score, float given) const {
    if (kind == MaskKind::None) return score;
    if (kind == MaskKind::Bool) return given != 0 ? score : -INFINITY;
    return score + given;
  }
  template <class T>
  __device__ float apply(float score, int64_t at) const {
    return with(score, read<T>(at));
  }
};

// Copies rows of a matrix to a tile; rows from `valid` on, and numbers from `width` on, become zero. Float32 is copied
// asynchronously, and is there after wait_for_all_but and a barrier.
template <int kCount, int kWidth, class T>
__device__ inline void load_rows(float* tile, const T* from, int64_t row_stride, int64_t valid, int width) {
  constexpr int kPieces = kWidth / 4;
  for (int i = threadIdx.x; i < kCount * kPieces; i += kThreads) {
    const int row = i / kPieces, column = i % kPieces * 4;
    const bool inside = row < valid && column < width;
    float* to = tile + row * (kWidth + kPad) + column;
    const T* place = from + row * row_stride + column;
    if constexpr (std::is_same_v<T, float>) {
      copy_behind(shared_address(to), inside ? place : from, inside);
    } else {
      float4 v{0, 0, 0, 0};
      if (inside) {
        struct alignas(8) Piece {
          T item[4];
        };
        const Piece piece = *reinterpret_cast<const Piece*>(place);
        v = {convert<float>(piece.item[0]), convert<float>(piece.item[1]), convert<float>(piece.item[2]),
             convert<float>(piece.item[3])};
      }
      *reinterpret_cast<float4*>(to) = v;
    }
  }
}

__device__ inline float4 piece_at(const float* p) { return *reinterpret_cast<const float4*>(p); }
__device__ inline void add_product(float& sum, const float4& a, const float4& b) {
  sum = __fmaf_rn(a.x, b.x, sum);
  sum = __fmaf_rn(a.y, b.y, sum);
  sum = __fmaf_rn(a.z, b.z, sum);
  sum = __fmaf_rn(a.w, b.w, sum);
}

// c[i][j] += row y + 8 i of A times row x + 16 j of B.
template <int kCount, int kWidth>
__device__ inline void multiply_rows(float (&c)[kEach][kCount / 16], const float* a, const float* b) {
  constexpr int kPitch = kWidth + kPad;
  a += thread_y() * kPitch;
  b += thread_x() * kPitch;
#pragma unroll 4
  for (int k = 0; k < kWidth; k += 4) {
    float4 right[kCount / 16];
#pragma unroll
    for (int j = 0; j < kCount / 16; ++j) right[j] = piece_at(b + j * 16 * kPitch + k);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const float4 left = piece_at(a + i * 8 * kPitch + k);
#pragma unroll
      for (int j = 0; j < kCount / 16; ++j) add_product(c[i][j], left, right[j]);
    }
  }
}

// c[i] += row y + 8 i of P, kInner numbers, times the rows of V; numbers 4 x.. and, of wide heads, 64 + 4 x.. of it.
template <int kInner, int kWidth>
__device__ inline void multiply_onto(float (&c)[kEach][kWidth / 16], const float* p, const float* v) {
  constexpr int kPitch = kInner + kPad, kPieces = kWidth / 64;
  p += thread_y() * kPitch;
  v += thread_x() * 4;
#pragma unroll 2
  for (int k = 0; k < kInner; k += 4) {
    float4 left[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) left[i] = piece_at(p + i * 8 * kPitch + k);
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int j = 0; j < kPieces; ++j) {
        const float4 right = piece_at(v + (k + n) * (kWidth + kPad) + j * 64);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          const float factor = n == 0 ? left[i].x : n == 1 ? left[i].y : n == 2 ? left[i].z : left[i].w;
          c[i][4 * j] = __fmaf_rn(factor, right.x, c[i][4 * j]);
          c[i][4 * j + 1] = __fmaf_rn(factor, right.y, c[i][4 * j + 1]);
          c[i][4 * j + 2] = __fmaf_rn(factor, right.z, c[i][4 * j + 2]);
          c[i][4 * j + 3] = __fmaf_rn(factor, right.w, c[i][4 * j + 3]);
        }
      }
  }
}

// The weights of a thread into a tile of kCount columns.
template <int kCount>
__device__ inline void store_weights(float* tile, const float (&c)[kEach][kCount / 16]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int j = 0; j < kCount / 16; ++j) tile[(thread_y() + 8 * i) * (kCount + kPad) + thread_x() + 16 * j] = c[i][j];
}

// Rows of a result, each times its own factor.
template <int kWidth, class T>
__device__ inline void store_rows(T* to, int64_t row_stride, int64_t first, int64_t count, int width,
                                  const float (&c)[kEach][kWidth / 16], const float (&factor)[kEach]) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t row = first + thread_y() + 8 * i;
    if (row >= count) continue;
#pragma unroll
    for (int j = 0; j < kWidth / 64; ++j) {
      const int column = j * 64 + thread_x() * 4;
      if (column >= width) continue;
      struct alignas(4 * sizeof(T)) Piece {
        T item[4];
      } piece;
#pragma unroll
      for (int n = 0; n < 4; ++n) piece.item[n] = convert<T>(c[i][4 * j + n] * factor[i]);
      *reinterpret_cast<Piece*>(to + row * row_stride + column) = piece;
    }
  }
}

// A total over the 16 threads that share rows.
template <class F>
__device__ inline float over_row(float v, const F& f) {
#pragma unroll
  for (int mask = 8; mask > 0; mask /= 2) v = f(v, __shfl_xor_sync(0xffffffffu, v, mask));
  return v;
}

// Calls f with an element type and a width of tiles.
template <class F>
void visit(DType dtype, int64_t width, const F& f) {
  const auto with_width = [&]<class T>() {
    if (width <= 64) return f.template operator()<T, 64>();
    f.template operator()<T, 128>();
  };
  if (dtype == DType::Float32) return with_width.template operator()<float>();
  if (dtype == DType::Float16) return with_width.template operator()<half>();
  with_width.template operator()<bfloat16>();
}

}  // namespace mica::cuda::attention::plain
