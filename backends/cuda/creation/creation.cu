// arange, linspace, triangles; cat; whether two tensors are equal; the check of a list of indices.
#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct IntegerSteps {
  T* out;
  int64_t stride;
  uint64_t start, step;
  __device__ void operator()(int64_t i) const {
    out[i * stride] = static_cast<T>(start + static_cast<uint64_t>(i) * step);
  }
};
// Floating sequences are computed in double, as start + i * step.
template <class T>
struct FloatingSteps {
  T* out;
  int64_t stride;
  double start, step;
  __device__ void operator()(int64_t i) const { out[i * stride] = convert<T>(start + step * static_cast<double>(i)); }
};
// From both ends towards the middle, so that the last element is exactly the end.
template <class T, class S>
struct Between {
  T* out;
  int64_t stride, n;
  S from, to, step;
  __device__ void operator()(int64_t i) const {
    const bool first_half = i < n / 2 || n == 1;
    out[i * stride] = convert<T>(first_half ? from + step * S(static_cast<double>(i))
                                            : to - step * S(static_cast<double>(n - 1 - i)));
  }
};

template <class T>
struct Triangle {
  T* out;
  const T* in;
  Places<2> places;
  int64_t rows, columns, diagonal;
  bool upper;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    places.at(i, at);
    const int64_t column = i % columns, row = i / columns % rows;
    const bool kept = upper ? column >= row + diagonal : column <= row + diagonal;
    out[at[0]] = kept ? in[at[1]] : T{};
  }
};

// ---- cat

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

template <class T>
struct Differ {
  const T *a, *b;
  Places<2> places;
  int* found;
  __device__ void operator()(int64_t i) const {
    int64_t at[2];
    places.at(i, at);
    if (!(widen(a[at[0]]) == widen(b[at[1]]))) *found = 1;
  }
};
struct FindOutside {
  const int64_t* index;
  int64_t low;
  uint64_t span;
  unsigned long long* first;
  __device__ void operator()(int64_t i) const {
    if (static_cast<uint64_t>(index[i]) - static_cast<uint64_t>(low) >= span)
      atomicMin(first, static_cast<unsigned long long>(i));
  }
};

}  // namespace

void arange(const TensorView& out, Scalar start, Scalar step) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const int64_t stride = out.ndim ? out.strides[0] : 1;
  visit_real("arange", out.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_integral_v<T>) {
      for_each(out.device.index(), out.numel,
               IntegerSteps<T>{out.ptr<T>(), stride, static_cast<uint64_t>(start.cast<int64_t>()),
                               static_cast<uint64_t>(step.cast<int64_t>())});
    } else {
      for_each(out.device.index(), out.numel,
               FloatingSteps<T>{out.ptr<T>(), stride, start.cast<double>(), step.cast<double>()});
    }
  });
}

void linspace(const TensorView& out, Scalar start, Scalar end) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  const int64_t n = out.numel, stride = out.strides[0];
  visit_number("linspace", out.dtype, [&]<class T>(Tag<T>) {
    using S = std::conditional_t<std::is_integral_v<T>, double, compute_t<T>>;
    S from, to;
    if constexpr (std::is_integral_v<T>) {
      // Bounds of integers lose their fractions before the step is worked out.
      from = static_cast<S>(start.cast<T>());
      to = static_cast<S>(end.cast<T>());
    } else if constexpr (std::is_same_v<T, half>) {
      from = static_cast<float>(start.cast<Half>()), to = static_cast<float>(end.cast<Half>());
    } else if constexpr (std::is_same_v<T, bfloat16>) {
      from = static_cast<float>(start.cast<BFloat16>()), to = static_cast<float>(end.cast<BFloat16>());
    } else {
      from = number<S>(start);
      to = number<S>(end);
    }
    const S step = n > 1 ? (to - from) / S(static_cast<double>(n - 1)) : S(0);
    for_each(out.device.index(), n, Between<T, S>{out.ptr<T>(), stride, n, from, to, step});
  });
}

void triangle(const TensorView& out, const TensorView& self, int64_t diagonal, bool upper) {
  if (out.numel == 0) return;
  DeviceGuard guard(out.device.index());
  visit_size(element_size(out.dtype), [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             Triangle<T>{out.ptr<T>(), self.ptr<const T>(), places_of(out, self), out.sizes[out.ndim - 2],
                         out.sizes[out.ndim - 1], diagonal, upper});
  });
}

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

void equal(const TensorView& self, const TensorView& other, bool* result) {
  *result = true;
  if (self.numel == 0) return;
  const int device = self.device.index();
  DeviceGuard guard(device);
  const Workspace flag(sizeof(int), device);
  const cudaStream_t stream = current_stream(device);
  MICA_CUDA(cudaMemsetAsync(flag.data(), 0, sizeof(int), stream));
  visit_any("equal", self.dtype, [&]<class T>(Tag<T>) {
    if constexpr (std::is_same_v<T, complexh>) {
      unsupported_dtype("equal", self.dtype);
    } else {
      for_each(
          device, self.numel,
          Differ<T>{self.ptr<const T>(), other.ptr<const T>(), places_of(self, other), static_cast<int*>(flag.data())});
    }
  });
  int found = 0;
  read_back(&found, flag.data(), sizeof found, device);
  *result = !found;
}

void first_outside(const TensorView& index, int64_t low, int64_t high, int64_t* position) {
  *position = -1;
  if (index.numel == 0) return;
  const int device = index.device.index();
  DeviceGuard guard(device);
  const Workspace flag(sizeof(unsigned long long), device);
  const cudaStream_t stream = current_stream(device);
  MICA_CUDA(cudaMemsetAsync(flag.data(), 0xff, sizeof(unsigned long long), stream));
  for_each(device, index.numel,
           FindOutside{index.ptr<const int64_t>(), low, static_cast<uint64_t>(high) - static_cast<uint64_t>(low),
                       static_cast<unsigned long long*>(flag.data())});
  read_back(position, flag.data(), sizeof *position, device);
}

}  // namespace mica::cuda
