// One row times a matrix. A few warps multiply the row with two columns: their lanes read pieces of 16 bytes, four of
// which are under way at a time.
#include "backends/cuda/gemm/vector.h"

#include "backends/cuda/launch.cuh"
#include "backends/cuda/pieces.cuh"
#include "backends/cuda/strided.cuh"
#include "mica/backend/fusion.h"

namespace mica::cuda {

namespace {

constexpr int kWarpsOfBlock = 8, kColumns = 2, kPiece = Piece<half>::kCount;

template <class T>
struct Operands {
  const T *row, *matrix, *bias;
  T* out;
  int64_t pitch;  // from column to column
  int columns, pieces;
  float alpha;
};

template <class T>
__device__ Piece<T> read(const int4* from) {
  return as_piece<T>(__ldca(from));
}
// Past the first cache, and the other half of its 256 bytes into the second.
template <class T>
__device__ Piece<T> read_once(const int4* from) {
  int4 v;
  asm volatile("ld.global.L1::no_allocate.L2::256B.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return as_piece<T>(v);
}

template <class T>
__device__ float plus_product(float sum, const Piece<T>& a, const Piece<T>& b) {
#pragma unroll
  for (int i = 0; i < kPiece; ++i) sum = __fmaf_rn(convert<float>(a.item[i]), convert<float>(b.item[i]), sum);
  return sum;
}

// What block `block` of the product computes: kWarps warps have kColumns columns together.
template <class T, int kWarps>
__device__ void multiply_columns(const Operands<T>& p, int block) {
  constexpr int kStep = 32 * kWarps, kAtOnce = 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first = (block * (kWarpsOfBlock / kWarps) + warp / kWarps) * kColumns;
  const auto* row = reinterpret_cast<const int4*>(p.row);
  const int4* columns[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
    columns[c] = reinterpret_cast<const int4*>(p.matrix + min(first + c, p.columns - 1) * p.pitch);
  wait_for_predecessors();
  float sums[kColumns] = {};
  int i = warp % kWarps * 32 + lane;
  for (; i + (kAtOnce - 1) * kStep < p.pieces; i += kAtOnce * kStep) {
    Piece<T> pieces[kColumns][kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) pieces[c][u] = read_once<T>(columns[c] + i + u * kStep);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const Piece<T> of_row = read<T>(row + i + u * kStep);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) sums[c] = plus_product(sums[c], pieces[c][u], of_row);
    }
  }
  for (; i < p.pieces; i += kStep) {
    const Piece<T> of_row = read<T>(row + i);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[c] = plus_product(sums[c], read_once<T>(columns[c] + i), of_row);
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[c] += __shfl_xor_sync(0xffffffffu, sums[c], mask);
  if constexpr (kWarps > 1) {
    __shared__ float of_warps[kWarpsOfBlock][kColumns];
    if (lane == 0)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) of_warps[warp][c] = sums[c];
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      sums[c] = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sums[c] += of_warps[warp / kWarps * kWarps + w][c];
    }
  }
  if (lane != 0 || warp % kWarps != 0) return;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (first + c >= p.columns) return;
    float sum = sums[c] * p.alpha;
    if (p.bias) sum += convert<float>(p.bias[first + c]);
    p.out[first + c] = convert<T>(sum);
  }
}

template <class T, int kWarps>
__global__ void __launch_bounds__(32 * kWarpsOfBlock) row_kernel(Operands<T> p) {
  multiply_columns<T, kWarps>(p, static_cast<int>(blockIdx.x));
}

// Products side by side, each computed as it is alone.
template <class T>
struct Several {
  Operands<T> products[kFusedProducts];
  int first_block[kFusedProducts], count;
};

template <class T, int kWarps>
__global__ void __launch_bounds__(32 * kWarpsOfBlock) rows_kernel(const __grid_constant__ Several<T> p) {
  const int block = static_cast<int>(blockIdx.x);
  int k = 0;
#pragma unroll
  for (int i = 1; i < kFusedProducts; ++i)
    if (i < p.count && block >= p.first_block[i]) k = i;
  multiply_columns<T, kWarps>(p.products[k], block - p.first_block[k]);
}

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

template <class T>
Operands<T> operands(const MatmulCall& call) {
  return {call.a.ptr<const T>(),
          call.b.ptr<const T>(),
          static_cast<const T*>(call.bias),
          call.out.ptr<T>(),
          call.b.strides[2],
          static_cast<int>(call.out.sizes[2]),
          static_cast<int>(call.a.sizes[2] / kPiece),
          static_cast<float>(call.alpha.cast<double>())};
}

// How many warps share a column: so many that each has work.
template <class T>
int warps_of(const Operands<T>& p) {
  return p.pieces <= 32 ? 1 : p.pieces <= 64 ? 2 : 4;
}
template <class T>
int blocks_of(const Operands<T>& p) {
  return static_cast<int>(blocks_for(p.columns, kWarpsOfBlock / warps_of(p) * kColumns));
}

template <class T>
void run(const MatmulCall& call, int device) {
  const Operands<T> p = operands<T>(call);
  const auto start = [&]<int kWarps>() { launch<row_kernel<T, kWarps>>(device, blocks_of(p), 32 * kWarpsOfBlock, p); };
  switch (warps_of(p)) {
    case 1:
      return start.template operator()<1>();
    case 2:
      return start.template operator()<2>();
    default:
      return start.template operator()<4>();
  }
}

template <class T>
void run(const MatmulCall* calls, int count, int device) {
  Several<T> p;
  p.count = count;
  int blocks = 0;
  for (int i = 0; i < count; ++i) {
    p.products[i] = operands<T>(calls[i]);
    p.first_block[i] = blocks;
    blocks += blocks_of(p.products[i]);
  }
  // They have the row, and so the warps of a column, in common.
  const auto start = [&]<int kWarps>() { launch<rows_kernel<T, kWarps>>(device, blocks, 32 * kWarpsOfBlock, p); };
  switch (warps_of(p.products[0])) {
    case 1:
      return start.template operator()<1>();
    case 2:
      return start.template operator()<2>();
    default:
      return start.template operator()<4>();
  }
}

}  // namespace

bool takes_vector(const MatmulCall& call) {
  const TensorView &out = call.out, &a = call.a, &b = call.b;
  if (out.dtype != DType::BFloat16 && out.dtype != DType::Float16) return false;
  if (a.dtype != out.dtype || b.dtype != out.dtype || out.sizes[0] != 1 || out.sizes[1] != 1) return false;
  const int64_t inner = a.sizes[2];
  if (inner == 0 || inner % kPiece || inner > INT32_MAX || out.sizes[2] > INT32_MAX / 32) return false;
  if (a.strides[2] != 1 || b.strides[1] != 1 || (out.sizes[2] > 1 && out.strides[2] != 1)) return false;
  if (b.strides[2] % kPiece || !is_aligned(a.data) || !is_aligned(b.data)) return false;
  if (!(call.beta.to_complex() == complex128(0))) return false;
  // On an H200, as graphs of such products: 3.8 us for 2048 x 2048, 12.6 for 2048 x 11264, 10.3 for 4096 x 4096, for
  // which cuBLASLt takes 5.8, 14 and 12.8. Of matrices that are much larger both read at the memory's speed.
  constexpr int64_t kMostBytes = 64 << 20;
  return inner * out.sizes[2] * 2 <= kMostBytes;
}

bool vector_matmul(const MatmulCall& call) {
  if (!takes_vector(call)) return false;
  const int device = call.out.device.index();
  DeviceGuard guard(device);
  if (call.out.dtype == DType::BFloat16) {
    run<bfloat16>(call, device);
  } else {
    run<half>(call, device);
  }
  return true;
}

void vector_matmuls(const MatmulCall* calls, int count) {
  const int device = calls[0].out.device.index();
  DeviceGuard guard(device);
  if (calls[0].out.dtype == DType::BFloat16) {
    run<bfloat16>(calls, count, device);
  } else {
    run<half>(calls, count, device);
  }
}

}  // namespace mica::cuda
