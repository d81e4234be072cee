// cat.
#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kPieces = 64;

// Contiguous inputs: in every row of the output, a piece of each in turn. In units of T.
template <class T>
struct Pieces {
  int count;
  T* out;
  const T* data[kPieces];
  int64_t widths[kPieces], starts[kPieces];
  int64_t row;
};

// blockIdx.y is the piece; its elements are walked over in the order of its own memory.
template <class T>
__global__ void __launch_bounds__(kThreads) cat_kernel(Pieces<T> p, int64_t rows) {
  const int k = blockIdx.y;
  const int64_t width = p.widths[k], n = rows * width;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  const T* from = p.data[k];
  T* to = p.out + p.starts[k];
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (rows == 1) {
#pragma unroll 4
    for (; i < n; i += step) to[i] = from[i];
  } else if (n >> 32 == 0) {
    const auto w = static_cast<uint32_t>(width);
    for (; i < n; i += step) {
      const uint32_t r = static_cast<uint32_t>(i) / w;
      to[r * p.row + (static_cast<uint32_t>(i) - r * w)] = from[i];
    }
  } else {
    for (; i < n; i += step) to[i / width * p.row + i % width] = from[i];
  }
}

template <class T>
void run_cat(const TensorView& out, TensorViewList inputs, int64_t dim, int64_t scale_up, int64_t scale_down) {
  int64_t inner = 1, rows = 1;
  for (int d = 0; d < out.ndim; ++d) (d < dim ? rows : inner) *= d == dim ? 1 : out.sizes[d];
  auto units = [&](int64_t elements) { return elements * scale_up / scale_down; };
  const int64_t row = units(inner * out.sizes[dim]);
  int64_t start = 0;
  for (size_t first = 0; first < inputs.size(); first += kPieces) {
    Pieces<T> p{};
    p.out = out.ptr<T>();
    p.row = row;
    int64_t longest = 0;
    for (size_t i = first; i < std::min(inputs.size(), first + kPieces); ++i) {
      const int64_t width = units(inner * inputs[i]->sizes[dim]);
      p.data[p.count] = inputs[i]->ptr<const T>();
      p.widths[p.count] = width;
      p.starts[p.count++] = start;
      start += width;
      longest = std::max(longest, width * rows);
    }
    const auto blocks = static_cast<unsigned>(std::min<int64_t>((longest + kThreads * 4 - 1) / (kThreads * 4), 65536));
    cat_kernel<T><<<dim3(std::max(1u, blocks), static_cast<unsigned>(p.count)), kThreads, 0,
                    current_stream(out.device.index())>>>(p, rows);
    MICA_CUDA(cudaGetLastError());
  }
}

}  // namespace

void cat(const TensorView& out, TensorViewList inputs, int64_t dim) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const int64_t element = element_size(out.dtype);
  int64_t inner = element;
  for (int d = static_cast<int>(dim) + 1; d < out.ndim; ++d) inner *= out.sizes[d];
  uintptr_t bits = reinterpret_cast<uintptr_t>(out.data);
  for (const TensorView* t : inputs)
    bits |= reinterpret_cast<uintptr_t>(t->data) | static_cast<uintptr_t>(inner * t->sizes[dim]);
  int64_t unit = 16;
  while (bits % static_cast<uintptr_t>(unit)) unit /= 2;
  visit_size(std::max(unit, int64_t{1}),
             [&]<class T>(Tag<T>) { run_cat<T>(out, inputs, dim, element, static_cast<int64_t>(sizeof(T))); });
}

}  // namespace mica::cuda
