// Tiles of 16-bit matrices in shared memory, the matrix unit's instructions on them, and loads that run behind.
#pragma once

#include "backends/cuda/element.cuh"

namespace mica::cuda::attention {

// A tile of rows of kWidth elements. Pieces of 16 bytes are permuted within a row, so that a column of pieces lies in
// different banks.
template <int kWidth>
__device__ inline uint32_t tile_offset(int row, int piece) {
  return static_cast<uint32_t>(row * kWidth * 2 + ((piece ^ (row & 7)) << 4));
}

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// 16 bytes from global memory, or zeros.
__device__ inline void copy_behind(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(valid ? 16 : 0));
}
__device__ inline void commit() { asm volatile("cp.async.commit_group;\n" ::); }
template <int kLeft>
__device__ inline void wait_for_all_but() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft));
}

__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ inline void load_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// c += a b with a 16 x 16 and b 16 x 8.
template <class T>
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

template <class T>
__device__ inline uint32_t pack(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, half>) {
    const __half2 v = __floats2half2_rn(low, high);
    memcpy(&bits, &v, 4);
  } else {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &v, 4);
  }
  return bits;
}

// Rows [0, kRows) of a matrix into a tile; rows from `valid` on and elements from `width` on become zero. A thread's
// pieces lie a fixed number of rows apart, a multiple of eight, so that the permutation is the same for all of them.
template <int kRows, int kWidth, int kThreads, class T>
__device__ inline void load_tile(uint32_t tile, const T* from, int64_t row_stride, int64_t valid, int width) {
  constexpr int kPieces = kWidth / 8, kStep = kThreads / kPieces;
  static_assert(kStep % 8 == 0 && kRows % kStep == 0);
  const int piece = threadIdx.x % kPieces, row = threadIdx.x / kPieces;
  const int last = piece * 8 < width ? (valid < kRows ? static_cast<int>(valid) : kRows) : 0;
  const uint32_t to = tile + tile_offset<kWidth>(row, piece);
  const T* place = from + row * row_stride + piece * 8;
#pragma unroll
  for (int i = 0; i < kRows / kStep; ++i) {
    const bool inside = row + i * kStep < last;
    copy_behind(to + i * kStep * kWidth * 2, inside ? place : from, inside);
    place += kStep * row_stride;
  }
}

// c[m][j] += the product of kTiles times 16 rows of A (from `row` on) with rows of B, both stored along the inner
// dimension: scores of queries with kColumns keys. What is loaded of B serves all tiles.
template <int kTiles, int kColumns, int kWidth, class T>
__device__ inline void multiply_rows(float (&c)[kTiles][kColumns / 8][4], uint32_t a_tile, int row, uint32_t b_tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kWidth / 16; ++k) {
    uint32_t a[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
      load_matrices(a[m], a_tile + tile_offset<kWidth>(row + m * 16 + lane % 16, k * 2 + lane / 16));
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      uint32_t b[4];
      load_matrices(b, b_tile + tile_offset<kWidth>(n * 16 + lane % 8 + lane / 16 * 8, k * 2 + lane / 8 % 2));
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        multiply<T>(c[m][2 * n], a[m], b[0], b[1]);
        multiply<T>(c[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// c += P V, with P the values of accumulators, 16 x kInner each, and V stored in rows of the inner dimension.
template <int kTiles, int kInner, int kWidth, class T>
__device__ inline void multiply_accumulated(float (&c)[kTiles][kWidth / 8][4], const float (&p)[kTiles][kInner / 8][4],
                                            uint32_t v_tile) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kInner / 16; ++k) {
    uint32_t a[kTiles][4];
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      a[m][0] = pack<T>(p[m][2 * k][0], p[m][2 * k][1]);
      a[m][1] = pack<T>(p[m][2 * k][2], p[m][2 * k][3]);
      a[m][2] = pack<T>(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
      a[m][3] = pack<T>(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kWidth / 16; ++n) {
      uint32_t b[4];
      load_transposed(b, v_tile + tile_offset<kWidth>(k * 16 + lane % 16, n * 2 + lane / 16));
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        multiply<T>(c[m][2 * n], a[m], b[0], b[1]);
        multiply<T>(c[m][2 * n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

struct Strides {
  int64_t batch, head, row;
};

// What all kernels share. Heads of keys and values may be shared by several of queries.
template <class T>
struct Problem {
  const T *query, *key, *value;
  Strides query_strides, key_strides, value_strides;
  int64_t heads, kv_heads, length, keys;
  int width;
  bool causal;
  float scale;
};

inline constexpr float kLog2E = 1.4426950408889634f;

// A power of two as the special-function unit gives it.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace mica::cuda::attention
