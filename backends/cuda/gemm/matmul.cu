// The kernel slot `matmul`: cuBLASLt where it can, and else tiles that take every dtype and any strides.
#include "backends/cuda/kernels.h"
#include "backends/cuda/gemm/cublas_lt.h"
#include "backends/cuda/gemm/dot.h"
#include "backends/cuda/gemm/padded.h"
#include "backends/cuda/gemm/vector.h"
#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

namespace {

constexpr int kTile = 16;

struct Strides {
  int64_t batch, row, column;
};
Strides strides(const TensorView& t) { return {t.strides[0], t.strides[1], t.strides[2]}; }

template <class T, class Acc>
struct Operands {
  const T *a, *b, *bias;
  T* out;
  Strides a_strides, b_strides, out_strides;
  int64_t rows, columns, inner;
  Acc alpha, beta;
  bool reads_out;
};

template <class T, class Acc>
__global__ void __launch_bounds__(kTile* kTile) tile_kernel(Operands<T, Acc> p, int64_t batch_begin) {
  __shared__ alignas(16) unsigned char raw[2 * kTile * kTile * sizeof(Acc)];
  auto* left = reinterpret_cast<Acc*>(raw);
  auto* right = left + kTile * kTile;
  const int64_t batch = batch_begin + blockIdx.z;
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kTile + threadIdx.y,
                column = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.x;
  const int here = threadIdx.y * kTile + threadIdx.x;
  Acc sum = Acc(0);
  for (int64_t k = 0; k < p.inner; k += kTile) {
    const bool in_a = row < p.rows && k + threadIdx.x < p.inner, in_b = column < p.columns && k + threadIdx.y < p.inner;
    left[here] =
        in_a ? convert<Acc>(
                   p.a[batch * p.a_strides.batch + row * p.a_strides.row + (k + threadIdx.x) * p.a_strides.column])
             : Acc(0);
    right[here] =
        in_b ? convert<Acc>(
                   p.b[batch * p.b_strides.batch + (k + threadIdx.y) * p.b_strides.row + column * p.b_strides.column])
             : Acc(0);
    __syncthreads();
    for (int j = 0; j < kTile; ++j) sum = sum + left[threadIdx.y * kTile + j] * right[j * kTile + threadIdx.x];
    __syncthreads();
  }
  if (row >= p.rows || column >= p.columns) return;
  T& to = p.out[batch * p.out_strides.batch + row * p.out_strides.row + column * p.out_strides.column];
  Acc result = p.alpha * sum;
  if (p.reads_out) result = result + p.beta * convert<Acc>(to);
  if (p.bias) result = result + convert<Acc>(p.bias[column]);
  to = convert<T>(result);
}

constexpr int64_t kMostBlocks = 65535;  // along y and z

}  // namespace

void matmul(const MatmulCall& call) {
  if (call.out.numel == 0) return;
  if (vector_matmul(call) || dot_matmul(call) || padded_matmul(call) || cublas_matmul(call)) return;
  const TensorView& out = call.out;
  DeviceGuard guard(out.device.index());
  visit_number("addmm_impl", out.dtype, [&]<class T>(Tag<T>) {
    using Acc = std::conditional_t<std::is_integral_v<T>, uint64_t, compute_t<T>>;  // integers wrap around
    auto factor = [](const Scalar& s) {
      if constexpr (std::is_integral_v<T>) {
        return static_cast<Acc>(s.cast<int64_t>());
      } else {
        return number<Acc>(s);
      }
    };
    Operands<T, Acc> p{call.a.ptr<const T>(),
                       call.b.ptr<const T>(),
                       static_cast<const T*>(call.bias),
                       out.ptr<T>(),
                       strides(call.a),
                       strides(call.b),
                       strides(out),
                       out.sizes[1],
                       out.sizes[2],
                       call.a.sizes[2],
                       factor(call.alpha),
                       factor(call.beta),
                       !(call.beta.to_complex() == complex128(0))};
    const int64_t rows_per_launch = kMostBlocks * kTile;
    for (int64_t batch = 0; batch < out.sizes[0]; batch += kMostBlocks) {
      for (int64_t row = 0; row < out.sizes[1]; row += rows_per_launch) {
        Operands<T, Acc> part = p;
        part.a += row * part.a_strides.row;
        part.out += row * part.out_strides.row;
        part.rows = std::min(rows_per_launch, out.sizes[1] - row);
        const dim3 blocks(blocks_for(part.columns, kTile), blocks_for(part.rows, kTile),
                          static_cast<unsigned>(std::min(kMostBlocks, out.sizes[0] - batch)));
        tile_kernel<T, Acc><<<blocks, dim3(kTile, kTile), 0, current_stream(out.device.index())>>>(part, batch);
        MICA_CUDA(cudaGetLastError());
      }
    }
  });
}

}  // namespace mica::cuda
