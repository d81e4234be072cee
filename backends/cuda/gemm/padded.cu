// Products of 16-bit floats whose sizes are no multiples of eight: the matrix unit reads 16 bytes at a time, and
// libraries fall back to kernels of a tenth of the speed (a vocabulary of 50,257 is the usual case). Operands are
// copied to memory with room to the next multiple, filled with zeros, and the result is copied back.
#include <optional>

#include "backends/cuda/context.h"
#include "backends/cuda/gemm/padded.h"
#include "backends/cuda/gemm/cublas_lt.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int64_t kUnit = 8;
constexpr int64_t kWorthwhile = int64_t{1} << 30;  // multiplications

int64_t padded(int64_t n) { return (n + kUnit - 1) / kUnit * kUnit; }

// Copies rows of `from` to rows of `pitch` elements; the rest of each row, and the rows from `rows` on, become zero. A
// thread takes 8 elements and reads them one by one, since rows begin anywhere.
struct PadRows {
  uint16_t* to;
  const uint16_t* from;
  int64_t rows, columns, from_pitch, pitch;
  __device__ void operator()(int64_t i) const {
    const int64_t per_row = pitch / kUnit, row = i / per_row, first = (i - row * per_row) * kUnit;
    Vector<uint16_t, kUnit> v;
#pragma unroll
    for (int j = 0; j < kUnit; ++j)
      v.item[j] = row < rows && first + j < columns ? from[row * from_pitch + first + j] : uint16_t{0};
    *reinterpret_cast<Vector<uint16_t, kUnit>*>(to + row * pitch + first) = v;
  }
};
struct CutRows {
  uint16_t* to;
  const uint16_t* from;
  int64_t columns, to_pitch, pitch;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / columns, c = i - row * columns;
    to[row * to_pitch + c] = from[row * pitch + c];
  }
};
// The same in vectors of the padded side: neighbouring threads write neighbouring elements.
__global__ void __launch_bounds__(kThreads) cut_rows(CutRows cut, int64_t rows) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const uint16_t* from = cut.from + row * cut.pitch;
    uint16_t* to = cut.to + row * cut.to_pitch;
    for (int64_t c = threadIdx.x; c < cut.columns; c += kThreads) to[c] = from[c];
  }
}

// An operand of the padded product: (1, rows, columns) in either order of memory.
struct Operand {
  TensorView view;
  int64_t sizes[3], strides[3];
  std::optional<Workspace> memory;
};

// Whether a matrix can be read as rows of dense memory along `inner`, its dimension 1 or 2.
bool dense_along(const TensorView& t, int inner) { return t.strides[inner] == 1 || t.sizes[inner] == 1; }

void pad(Operand& to, const TensorView& from, int device) {
  const int inner = dense_along(from, 2) ? 2 : 1, outer = 3 - inner;
  to.view = from;
  to.sizes[0] = 1, to.sizes[1] = padded(from.sizes[1]), to.sizes[2] = padded(from.sizes[2]);
  to.strides[0] = 0;
  to.strides[inner] = 1;
  const int64_t rows = from.sizes[outer], columns = from.sizes[inner], pitch = to.sizes[inner];
  const bool fits = rows % kUnit == 0 && columns % kUnit == 0 && from.strides[outer] % kUnit == 0 &&
                    reinterpret_cast<uintptr_t>(from.data) % 16 == 0;
  if (fits) {
    to.strides[outer] = from.strides[outer];
  } else {
    to.strides[outer] = pitch;
    const int64_t all_rows = to.sizes[outer];
    to.memory.emplace(static_cast<size_t>(all_rows * pitch) * 2, device);
    to.view.data = to.memory->data();
    for_each(device, all_rows * (pitch / kUnit),
             PadRows{static_cast<uint16_t*>(to.memory->data()), from.ptr<const uint16_t>(), rows, columns,
                     from.strides[outer], pitch});
  }
  to.view.sizes = to.sizes;
  to.view.strides = to.strides;
  to.view.numel = to.sizes[1] * to.sizes[2];
}

}  // namespace

bool padded_matmul(const MatmulCall& call) {
  const TensorView &a = call.a, &b = call.b, &out = call.out;
  if (out.dtype != DType::Float16 && out.dtype != DType::BFloat16) return false;
  if (out.sizes[0] != 1 || !(call.beta.to_complex() == complex128(0))) return false;
  const int64_t m = out.sizes[1], n = out.sizes[2], k = a.sizes[2];
  if (m * n / 1024 * k < kWorthwhile / 1024) return false;
  const bool odd = m % kUnit || n % kUnit || k % kUnit || a.strides[1] * a.strides[2] % kUnit ||
                   b.strides[1] * b.strides[2] % kUnit || out.strides[1] * out.strides[2] % kUnit;
  if (!odd) return false;
  if ((!dense_along(a, 1) && !dense_along(a, 2)) || (!dense_along(b, 1) && !dense_along(b, 2)) || out.strides[2] != 1)
    return false;
  const int device = out.device.index();
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  Operand left, right;
  pad(left, a, device);
  pad(right, b, device);
  MatmulCall whole = call;
  whole.a = left.view;
  whole.b = right.view;
  const int64_t out_sizes[3] = {1, padded(m), padded(n)}, out_strides[3] = {0, padded(n), 1};
  const bool direct = m % kUnit == 0 && n % kUnit == 0 && out.strides[1] % kUnit == 0 &&
                      reinterpret_cast<uintptr_t>(out.data) % 16 == 0;
  std::optional<Workspace> result, bias;
  if (!direct) {
    result.emplace(static_cast<size_t>(out_sizes[1] * out_sizes[2]) * 2, device);
    whole.out.data = result->data();
    whole.out.sizes = out_sizes;
    whole.out.strides = out_strides;
    whole.out.numel = out_sizes[1] * out_sizes[2];
  }
  if (call.bias && n % kUnit) {
    bias.emplace(static_cast<size_t>(out_sizes[2]) * 2, device);
    MICA_CUDA(cudaMemcpyAsync(bias->data(), call.bias, static_cast<size_t>(n) * 2, cudaMemcpyDeviceToDevice, stream));
    whole.bias = bias->data();
  }
  if (!cublas_matmul(whole)) return false;
  if (direct) return true;
  const CutRows cut{out.ptr<uint16_t>(), static_cast<const uint16_t*>(result->data()), n, out.strides[1],
                    out_strides[1]};
  if (n % kUnit == 0 && out.strides[1] == n) {
    // Only rows were added.
    MICA_CUDA(
        cudaMemcpyAsync(out.data, result->data(), static_cast<size_t>(m * n) * 2, cudaMemcpyDeviceToDevice, stream));
  } else if (n >= 1024) {
    cut_rows<<<static_cast<unsigned>(std::min<int64_t>(m, 65536)), kThreads, 0, stream>>>(cut, m);
    MICA_CUDA(cudaGetLastError());
  } else {
    for_each(device, m * n, cut);
  }
  return true;
}

}  // namespace mica::cuda
