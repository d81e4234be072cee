// Kernels of an extension as people write them for torch: nothing in it knows of Mica. test_extension.py compiles it.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <torch/types.h>

#include <vector>

namespace {

template <typename scalar_t>
__device__ __forceinline__ scalar_t logistic(scalar_t z) {
  return 1.0 / (1.0 + exp(-z));
}

// The cell of torch's tutorial: one block for a few columns of a row.
template <typename scalar_t>
__global__ void cell_kernel(const torch::PackedTensorAccessor32<scalar_t, 3, torch::RestrictPtrTraits> gates,
                            const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> old_cell,
                            torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> new_h,
                            torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> new_cell) {
  const int row = blockIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= gates.size(2)) return;
  const scalar_t in = logistic(gates[row][0][column]), out = logistic(gates[row][1][column]);
  const scalar_t z = gates[row][2][column], candidate = z > 0 ? z : exp(z) - 1;
  const scalar_t cell = old_cell[row][column] + candidate * in;
  new_cell[row][column] = cell;
  new_h[row][column] = tanh(cell) * out;
}

template <typename scalar_t>
__global__ void axpy_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, scalar_t a, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}

}  // namespace

std::vector<torch::Tensor> cell_forward(torch::Tensor input, torch::Tensor weights, torch::Tensor bias,
                                        torch::Tensor old_h, torch::Tensor old_cell) {
  const at::cuda::CUDAGuard guard(input.device());
  const auto gate_weights = torch::addmm(bias, torch::cat({old_h, input}, 1), weights.transpose(0, 1));
  const auto batch = old_cell.size(0), width = old_cell.size(1);
  const auto gates = gate_weights.reshape({batch, 3, width});
  auto new_h = torch::zeros_like(old_cell), new_cell = torch::zeros_like(old_cell);
  const int threads = 128;
  const dim3 blocks((width + threads - 1) / threads, batch);
  AT_DISPATCH_FLOATING_TYPES(gates.scalar_type(), "cell_forward", ([&] {
                               cell_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
                                   gates.packed_accessor32<scalar_t, 3, torch::RestrictPtrTraits>(),
                                   old_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
                                   new_h.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
                                   new_cell.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
                             }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {new_h, new_cell};
}

void axpy_(torch::Tensor y, const torch::Tensor& x, double a) {
  const c10::cuda::OptionalCUDAGuard guard(y.device());
  const int64_t n = y.numel();
  if (n == 0) return;
  AT_DISPATCH_FLOATING_TYPES(y.scalar_type(), "axpy_", [&] {
    axpy_kernel<scalar_t><<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), static_cast<scalar_t>(a), n);
  });
  AT_CUDA_CHECK(cudaGetLastError());
}
