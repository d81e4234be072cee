// Products with a matrix of which two in every four elements of a row are kept (one in two for float32), by the sparse
// instructions of the matrix unit. All element types have the same layout in bytes: an instruction takes 16 rows of 32
// kept bytes, which stand for 64 bytes of the inner dimension, and 64 bytes of each of 8 columns of the dense matrix.
#include "backends/cuda/attention/tiles.cuh"
#include "backends/cuda/context.h"
#include "backends/cuda/sparse/semi_structured.h"

namespace mica::cuda {

namespace {

using attention::commit;
using attention::copy_behind;
using attention::load_matrices;
using attention::shared_address;
using attention::wait_for_all_but;

constexpr int kRows = 128, kColumns = 128;  // of a block's part of the result
constexpr int kDepth = 128;                 // bytes of the inner dimension in a step; what is kept is half of them
constexpr int kThreads = 256, kStages = 3;  // warps: two along the rows, four along the columns
constexpr int kKeptBytes = kRows * kDepth / 2, kDenseBytes = kColumns * kDepth, kPlaceBytes = 2048;
constexpr int kStageBytes = kKeptBytes + kDenseBytes + kPlaceBytes;

template <class T>
using sum_t = std::conditional_t<std::is_same_v<T, int8_t>, int32_t, float>;

// c += a b; `places` says which elements are kept, in two lanes of every four where the lanes serve two instructions.
template <class T, int kSelector>
__device__ inline void multiply_kept(sum_t<T> (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[4],
                                     uint32_t places) {
#define MICA_KEPT(shape, kinds, constraint)                                                                           \
  asm volatile("mma.sp::ordered_metadata.sync.aligned." shape ".row.col." kinds                                       \
               " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, %13;\n"                           \
               : "+" constraint(c[0]), "+" constraint(c[1]), "+" constraint(c[2]), "+" constraint(c[3])               \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places), \
                 "n"(kSelector))
  if constexpr (std::is_same_v<T, half>) {
    MICA_KEPT("m16n8k32", "f32.f16.f16.f32", "f");
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    MICA_KEPT("m16n8k32", "f32.bf16.bf16.f32", "f");
  } else if constexpr (std::is_same_v<T, float>) {
    MICA_KEPT("m16n8k16", "f32.tf32.tf32.f32", "f");
  } else {
    MICA_KEPT("m16n8k64", "s32.s8.s8.s32", "r");
  }
#undef MICA_KEPT
}

struct Product {
  const char* kept;        // rows of kept_row bytes
  const uint32_t* places;  // which elements are kept, in the order of lanes
  const char* dense;       // columns of the dense matrix, dense_column bytes apart
  int64_t kept_row, dense_column;
  int64_t rows, columns, steps;
  int64_t out_row, out_column;  // strides of the result, in elements
};

// Pieces of 16 bytes of a tile of kept elements, whose rows have four: permuted so that eight rows lie in all banks.
__device__ inline uint32_t kept_offset(int row, int piece) {
  return static_cast<uint32_t>(row * (kDepth / 2) + ((piece ^ (row >> 1 & 3)) << 4));
}
__device__ inline uint32_t dense_offset(int column, int piece) {
  return static_cast<uint32_t>(column * kDepth + ((piece ^ (column & 7)) << 4));
}

// The words that say which elements are kept lie in the order of lanes: 32 words for 32 rows and one instruction's
// depth, for int8 for 16 rows.
template <class T>
constexpr int kRowsOfWords = std::is_same_v<T, int8_t> ? 16 : 32;

template <class T>
__device__ inline void load_stage(const Product& p, uint32_t stage, int64_t row0, int64_t column0, int64_t step) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = 0; i < kKeptBytes / 16 / kThreads; ++i) {
    const int at = thread + i * kThreads, row = at / 4, piece = at % 4;
    const bool inside = row0 + row < p.rows;
    const char* from = p.kept + (inside ? row0 + row : 0) * p.kept_row + step * (kDepth / 2) + piece * 16;
    copy_behind(stage + kept_offset(row, piece), from, inside);
  }
#pragma unroll
  for (int i = 0; i < kDenseBytes / 16 / kThreads; ++i) {
    const int at = thread + i * kThreads, column = at / 8, piece = at % 8;
    const bool inside = column0 + column < p.columns;
    const char* from = p.dense + (inside ? column0 + column : 0) * p.dense_column + step * kDepth + piece * 16;
    copy_behind(stage + kKeptBytes + dense_offset(column, piece), from, inside);
  }
  // Two instructions' depth; rows beyond the last take the words of the last, which are words that exist.
  constexpr int kGroups = kRows / kRowsOfWords<T>, kPieces = kGroups * 2 * 8;
  if (thread < kPieces) {
    const int group = thread / 8 % kGroups, depth = thread / (8 * kGroups), piece = thread % 8;
    const int64_t groups = p.rows / kRowsOfWords<T>, wanted = row0 / kRowsOfWords<T> + group;
    const int64_t from = ((step * 2 + depth) * groups + (wanted < groups ? wanted : groups - 1)) * 32 + piece * 4;
    copy_behind(stage + kKeptBytes + kDenseBytes + thread * 16, p.places + from, true);
  }
}

template <class Out, class Sum>
__device__ inline Out rounded(Sum value) {
  if constexpr (std::is_same_v<Out, int8_t>) {
    return static_cast<int8_t>(value < -128 ? -128 : value > 127 ? 127 : value);
  } else {
    return convert<Out>(value);
  }
}

template <class T, class Out>
__global__ void __launch_bounds__(kThreads) product_kernel(Product p, Out* out, const Out* bias) {
  extern __shared__ __align__(128) unsigned char memory[];
  const uint32_t base = shared_address(memory);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kRows, column0 = static_cast<int64_t>(blockIdx.y) * kColumns;
  sum_t<T> sums[4][4][4] = {};

#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < p.steps) load_stage<T>(p, base + s * kStageBytes, row0, column0, s);
    commit();
  }
  for (int64_t step = 0; step < p.steps; ++step) {
    wait_for_all_but<kStages - 2>();
    __syncthreads();
    const int64_t next = step + kStages - 1;
    if (next < p.steps)
      load_stage<T>(p, base + static_cast<uint32_t>(next % kStages) * kStageBytes, row0, column0, next);
    commit();
    const uint32_t stage_at = static_cast<uint32_t>(step % kStages) * kStageBytes, stage = base + stage_at;
    const auto* words = reinterpret_cast<const uint32_t*>(memory + stage_at + kKeptBytes + kDenseBytes);
#pragma unroll
    for (int depth = 0; depth < 2; ++depth) {
      uint32_t b[4][4];
#pragma unroll
      for (int n = 0; n < 4; ++n)
        load_matrices(b[n], stage + kKeptBytes + dense_offset(warp_column + n * 8 + lane % 8, depth * 4 + lane / 8));
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        uint32_t a[4];
        load_matrices(a, stage + kept_offset(warp_row + m * 16 + lane % 16, depth * 2 + lane / 16));
        constexpr int kGroups = kRows / kRowsOfWords<T>;
        const uint32_t places = words[(depth * kGroups + (warp_row + m * 16) / kRowsOfWords<T>)*32 + lane];
        // Where 32 rows share the words, lanes 0 and 1 of every four have those of the first 16, lanes 2 and 3 the
        // rest.
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          if (kRowsOfWords<T> == 32 && m % 2) {
            multiply_kept<T, kRowsOfWords<T> == 32 ? 1 : 0>(sums[m][n], a, b[n], places);
          } else {
            multiply_kept<T, 0>(sums[m][n], a, b[n], places);
          }
        }
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int half_tile = 0; half_tile < 2; ++half_tile) {
      const int64_t row = row0 + warp_row + m * 16 + half_tile * 8 + lane / 4;
      if (row >= p.rows) continue;
      const auto added = bias ? static_cast<sum_t<T>>(convert<compute_t<Out>>(bias[row])) : sum_t<T>(0);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int64_t column = column0 + warp_column + n * 8 + lane % 4 * 2 + j;
          if (column < p.columns)
            out[row * p.out_row + column * p.out_column] = rounded<Out>(sums[m][n][half_tile * 2 + j] + added);
        }
      }
    }
  }
}

template <class T, class Out>
void run(const TensorView& out, const TensorView& kept, const TensorView& places, const TensorView& dense,
         const TensorView& bias) {
  Product p;
  p.kept = static_cast<const char*>(kept.data);
  p.places = static_cast<const uint32_t*>(places.data);
  p.dense = static_cast<const char*>(dense.data);
  p.kept_row = kept.sizes[1] * static_cast<int64_t>(sizeof(T));
  p.dense_column = dense.strides[0] * static_cast<int64_t>(sizeof(T));
  p.rows = kept.sizes[0], p.columns = dense.sizes[0];
  p.steps = p.kept_row / (kDepth / 2);
  p.out_row = out.strides[0], p.out_column = out.strides[1];
  const auto kernel = product_kernel<T, Out>;
  constexpr int kBytes = kStages * kStageBytes;
  const int device = out.device.index();
  MICA_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  const dim3 blocks(static_cast<unsigned>((p.rows + kRows - 1) / kRows),
                    static_cast<unsigned>((p.columns + kColumns - 1) / kColumns));
  kernel<<<blocks, kThreads, kBytes, current_stream(device)>>>(p, static_cast<Out*>(out.data),
                                                               static_cast<const Out*>(bias.data));
  MICA_CUDA(cudaGetLastError());
}

void product(const TensorView& out, const TensorView& kept, const TensorView& places, const TensorView& dense,
             const TensorView& bias) {
  const int device = out.device.index();
  DeviceGuard guard(device);
  MICA_CHECK(properties(device).major >= 8,
             "semi-structured sparse products need a GPU of compute capability 8.0 or more");
  MICA_CHECK(dense.sizes[0] <= int64_t{65535} * kColumns, "the dense matrix has too many columns: ", dense.sizes[0]);
  switch (kept.dtype) {
    case DType::Float16:
      return run<half, half>(out, kept, places, dense, bias);
    case DType::BFloat16:
      return run<bfloat16, bfloat16>(out, kept, places, dense, bias);
    case DType::Float32:
      return run<float, float>(out, kept, places, dense, bias);
    default:
      if (out.dtype == DType::Int32) return run<int8_t, int32_t>(out, kept, places, dense, bias);
      return run<int8_t, int8_t>(out, kept, places, dense, bias);
  }
}

}  // namespace

const SemiStructuredApi& semi_structured() {
  static const SemiStructuredApi api{product};
  return api;
}

}  // namespace mica::cuda
