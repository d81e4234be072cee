// The gradients of attention: the work that all kernels share, and the choice of a kernel.
#include <optional>

#include "backends/cuda/context.h"
#include "backends/cuda/attention/attention.h"
#include "backends/cuda/attention/plain.h"
#include "backends/cuda/attention/plans.h"
#include "backends/cuda/copy_elements.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

// The sum of grad * out for each query: `lanes` threads, a power of two, take 16 bytes of it each.
template <class T>
__global__ void __launch_bounds__(256)
    products_kernel(const T* grad, attention::Strides grad_strides, const T* out, attention::Strides out_strides,
                    int64_t heads, int64_t length, int width, int lanes, int64_t rows, float* products) {
  constexpr int kPiece = 16 / sizeof(T);
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (256 / lanes) + threadIdx.x / lanes;
  const int lane = threadIdx.x % lanes;
  float sum = 0;
  if (i < rows) {
    const int64_t q = i % length, head = i / length % heads, batch = i / (length * heads);
    const T* g = grad + batch * grad_strides.batch + head * grad_strides.head + q * grad_strides.row;
    const T* o = out + batch * out_strides.batch + head * out_strides.head + q * out_strides.row;
    for (int c = lane * kPiece; c < width; c += lanes * kPiece) {
      const auto left = *reinterpret_cast<const Vector<T, kPiece>*>(g + c);
      const auto right = *reinterpret_cast<const Vector<T, kPiece>*>(o + c);
#pragma unroll
      for (int j = 0; j < kPiece; ++j)
        sum = __fmaf_rn(convert<float>(left.item[j]), convert<float>(right.item[j]), sum);
    }
  }
  for (int mask = lanes / 2; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  if (lane == 0 && i < rows) products[i] = sum;
}

}  // namespace

void attention_backward(const TensorView& grad_query, const TensorView& grad_key, const TensorView& grad_value,
                        const TensorView& grad_out, const TensorView& out, const TensorView& logsumexp,
                        const TensorView& query, const TensorView& key, const TensorView& value, const TensorView& mask,
                        bool is_causal, double scale) {
  const int device = query.device.index();
  DeviceGuard guard(device);
  const int64_t rows = query.sizes[0] * query.sizes[1] * query.sizes[2], width = value.sizes[3];
  // Loads of 16 bytes need an aligned gradient; the inputs are known to be aligned.
  const int64_t dense_strides[4] = {query.sizes[1] * query.sizes[2] * width, query.sizes[2] * width, width, 1};
  TensorView grad = grad_out;
  std::optional<Workspace> dense;
  if (!attention::lies_well(grad_out)) {
    dense.emplace(static_cast<size_t>(grad_out.numel) * element_size(grad_out.dtype), device);
    grad.data = dense->data();
    grad.strides = dense_strides;
    copy_elements(grad, grad_out);
  }
  const bool in_float32 = query.dtype == DType::Float32 || mask.defined();
  if (!in_float32 && attention::backward_by_cudnn(grad_query, grad_key, grad_value, grad, out, logsumexp, query, key,
                                                  value, is_causal, scale, !attention::own_kernels_take(query, value)))
    return;
  const Workspace memory(static_cast<size_t>(rows) * sizeof(float), device);
  auto* products = static_cast<float*>(memory.data());
  const auto make_products = [&]<class T>() {
    int lanes = 1;
    while (lanes < 32 && lanes * 16 < width * static_cast<int64_t>(sizeof(T))) lanes *= 2;
    products_kernel<T><<<blocks_for(rows, 256 / lanes), 256, 0, current_stream(device)>>>(
        grad.ptr<const T>(), attention::strides_of(grad), out.ptr<const T>(), attention::strides_of(out),
        query.sizes[1], query.sizes[2], static_cast<int>(width), lanes, rows, products);
    MICA_CUDA(cudaGetLastError());
  };
  if (query.dtype == DType::Float32) {
    make_products.template operator()<float>();
  } else if (query.dtype == DType::Float16) {
    make_products.template operator()<half>();
  } else {
    make_products.template operator()<bfloat16>();
  }
  if (in_float32) {
    attention::plain::backward(grad_query, grad_key, grad_value, grad, logsumexp, products, query, key, value, mask,
                               is_causal, scale);
  } else {
    attention::matrix_backward(grad_query, grad_key, grad_value, grad, logsumexp, products, query, key, value,
                               is_causal, scale);
  }
}

}  // namespace mica::cuda
