// One row times one column. Blocks add the products of their parts, and one block adds what they have found. Which
// products a thread adds, and so the bits of a result, depend on the length, the alignment and the GPU only.
#include "backends/cuda/gemm/dot.h"

#include <algorithm>

#include "backends/cuda/block.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/pieces.cuh"
#include "backends/cuda/strided.cuh"

namespace mica::cuda {

namespace {

constexpr int kDotThreads = 512;
constexpr int kResident = 2;                   // blocks whose registers fit a multiprocessor
constexpr int kUnderWay = 4;                   // loads of a thread from each operand at a time
constexpr int64_t kOneBlockBytes = 96 * 1024;  // of an operand that one block reads

template <class T>
struct DotOperands {
  const T *a, *b;
  int64_t a_stride, b_stride, n;
  int64_t pieces;   // of 16 bytes, where both are dense and aligned; or 0
  bool conjugated;  // a, where the numbers are complex
};

template <class R>
__device__ R plus_product(R sum, R a, R b) {
  if constexpr (std::is_same_v<R, float>) {
    return __fmaf_rn(a, b, sum);
  } else if constexpr (std::is_same_v<R, double>) {
    return __fma_rn(a, b, sum);
  } else if constexpr (is_complex_v<R>) {
    const auto real = plus_product(plus_product(sum.real(), a.real(), b.real()), -a.imag(), b.imag());
    const auto imag = plus_product(plus_product(sum.imag(), a.real(), b.imag()), a.imag(), b.real());
    return R(real, imag);
  } else {
    return sum + a * b;  // integers wrap around
  }
}

// An element of a.
template <class R, class T>
__device__ R first_factor(const DotOperands<T>& p, const T& element) {
  const R value = convert<R>(element);
  if constexpr (is_complex_v<R>) {
    if (p.conjugated) return R(value.real(), -value.imag());
  }
  return value;
}

// For all threads of the block.
template <class R>
__device__ R block_total(R sum) {
  if constexpr (is_complex_v<R>) {
    const auto real = all_reduce<kDotThreads>(sum.real(), AddOp<typename R::value_type>{});
    const auto imag = all_reduce<kDotThreads>(sum.imag(), AddOp<typename R::value_type>{});
    return R(real, imag);
  } else {
    return all_reduce<kDotThreads>(sum, AddOp<R>{});
  }
}

// The result where there is one block, else each block's part.
template <class T, class R>
__global__ void __launch_bounds__(kDotThreads) dot_kernel(DotOperands<T> p, R* parts, T* out) {
  constexpr int V = Piece<T>::kCount;
  wait_for_predecessors();
  const int64_t step = static_cast<int64_t>(gridDim.x) * kDotThreads;
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kDotThreads + threadIdx.x;
  R sums[kUnderWay];
#pragma unroll
  for (int j = 0; j < kUnderWay; ++j) sums[j] = R(0);
  const auto* a_pieces = reinterpret_cast<const int4*>(p.a);
  const auto* b_pieces = reinterpret_cast<const int4*>(p.b);
#pragma unroll 1
  for (int64_t i = own; i < p.pieces; i += kUnderWay * step) {
    int4 a[kUnderWay], b[kUnderWay];
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j)
      if (i + j * step < p.pieces) a[j] = a_pieces[i + j * step], b[j] = b_pieces[i + j * step];
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      if (i + j * step >= p.pieces) break;
      const Piece<T> x = as_piece<T>(a[j]), y = as_piece<T>(b[j]);
#pragma unroll
      for (int k = 0; k < V; ++k) sums[j] = plus_product(sums[j], first_factor<R>(p, x.item[k]), convert<R>(y.item[k]));
    }
  }
#pragma unroll 1
  for (int64_t i = p.pieces * V + own; i < p.n; i += kUnderWay * step) {
    T a[kUnderWay], b[kUnderWay];
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j)
      if (i + j * step < p.n) a[j] = p.a[(i + j * step) * p.a_stride], b[j] = p.b[(i + j * step) * p.b_stride];
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j)
      if (i + j * step < p.n) sums[j] = plus_product(sums[j], first_factor<R>(p, a[j]), convert<R>(b[j]));
  }
  const R total = block_total<R>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  if (threadIdx.x) return;
  if (gridDim.x == 1) {
    *out = convert<T>(total);
  } else {
    parts[blockIdx.x] = total;
  }
}

template <class T, class R>
__global__ void __launch_bounds__(kDotThreads) add_parts(const R* parts, int count, T* out) {
  wait_for_predecessors();
  R sum = R(0);
  for (int i = threadIdx.x; i < count; i += kDotThreads) sum = sum + parts[i];
  sum = block_total<R>(sum);
  if (threadIdx.x == 0) *out = convert<T>(sum);
}

// Integers of one size: whether they have a sign makes no difference.
template <size_t kSize>
using Width =
    std::conditional_t<kSize == 1, uint8_t,
                       std::conditional_t<kSize == 2, uint16_t, std::conditional_t<kSize == 4, uint32_t, uint64_t>>>;

template <class T>
bool is_dense(const T* data, int64_t stride) {
  return stride == 1 && reinterpret_cast<uintptr_t>(data) % 16 == 0;
}

template <class T>
void run_dot(const TensorView& out, DotOperands<T> p) {
  using R = std::conditional_t<std::is_integral_v<T>, uint64_t, compute_t<T>>;
  const int device = out.device.index();
  if (is_dense(p.a, p.a_stride) && is_dense(p.b, p.b_stride)) p.pieces = p.n / Piece<T>::kCount;
  const int64_t loads = p.pieces ? p.pieces : p.n;
  const int64_t most = properties(device).multiProcessorCount * kResident;
  const int64_t wanted = (loads + kDotThreads * kUnderWay - 1) / (kDotThreads * kUnderWay);
  const int64_t bytes = p.n * static_cast<int64_t>(sizeof(T));
  const int64_t blocks = bytes <= kOneBlockBytes ? 1 : std::clamp<int64_t>(wanted, 1, most);
  auto* to = out.ptr<T>();
  if (blocks == 1) return launch<dot_kernel<T, R>>(device, 1, kDotThreads, p, static_cast<R*>(nullptr), to);
  const Workspace workspace(static_cast<size_t>(blocks) * sizeof(R), device);
  auto* parts = static_cast<R*>(workspace.data());
  launch<dot_kernel<T, R>>(device, static_cast<unsigned>(blocks), kDotThreads, p, parts, to);
  launch<add_parts<T, R>>(device, 1, kDotThreads, static_cast<const R*>(parts), static_cast<int>(blocks), to);
}

}  // namespace

bool dot_matmul(const MatmulCall& call) {
  const TensorView &out = call.out, &a = call.a, &b = call.b;
  if (out.numel != 1 || a.sizes[2] < 1 || a.dtype != out.dtype || b.dtype != out.dtype || call.bias) return false;
  if (!(call.alpha == Scalar(1) || call.alpha == Scalar(1.0)) || !(call.beta.to_complex() == complex128(0)))
    return false;
  DeviceGuard guard(out.device.index());
  visit_number("addmm_impl", out.dtype, [&]<class Given>(Tag<Given>) {
    using T = std::conditional_t<std::is_integral_v<Given>, Width<sizeof(Given)>, Given>;
    run_dot<T>(out, {a.ptr<const T>(), b.ptr<const T>(), a.strides[2], b.strides[1], a.sizes[2], 0, false});
  });
  return true;
}

void vdot(const TensorView& out, const TensorView& a, const TensorView& b) {
  DeviceGuard guard(out.device.index());
  auto run = [&]<class T>(Tag<T>) {
    run_dot<T>(out, {a.ptr<const T>(), b.ptr<const T>(), a.strides[0], b.strides[0], a.numel, 0, true});
  };
  if (out.dtype == DType::Complex64) return run(Tag<complexf>{});
  if (out.dtype == DType::Complex128) return run(Tag<complexd>{});
  unsupported_dtype("vdot", out.dtype);
}

}  // namespace mica::cuda
