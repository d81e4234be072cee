// softmax, log_softmax and their gradients.
#include "backends/cuda/softmax/rows.cuh"

namespace mica::cuda {

namespace {

// The largest element so far and the sum of exponentials relative to it.
template <class C>
struct Running {
  C largest = -static_cast<C>(INFINITY), sum = 0;
  __device__ void add(C x) {
    if (x == -static_cast<C>(INFINITY)) return;
    if (x <= largest) {
      sum += ::exp(x - largest);
    } else {
      sum = (sum == C(0) ? C(0) : sum * ::exp(largest - x)) + C(1);  // a NaN ends up in both
      largest = x;
    }
  }
};
template <class C>
__device__ C rescaled(const Running<C>& r, C largest) {
  return r.sum == C(0) ? C(0) : r.sum * ::exp(r.largest - largest);
}

// The kernel decides whether it computes the logarithm, in the same way in every thread: half as many kernels.
template <class T, int kGroup, int kChunks>
__global__ void __launch_bounds__(row_threads(kGroup), tile_blocks<T>(kGroup, kChunks))
    softmax_rows(T* out, const T* in, int64_t rows, int64_t n, bool aligned, bool log) {
  wait_for_predecessors();
  using C = compute_t<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_threads(kGroup) / kGroup) + threadIdx.x / kGroup;
  if (row >= rows) return;
  in += row * n;
  out += row * n;
  if constexpr (kChunks > 0) {
    RowTile<T, kGroup, kChunks> tile;
    tile.load(in, n, aligned, -static_cast<C>(INFINITY));
    C largest = -static_cast<C>(INFINITY), sum = 0;
    tile.for_each([&](C v, int, int) { largest = MaxOp<C>{}(largest, v); });
    largest = all_reduce<kGroup, 0>(largest, MaxOp<C>{});
    tile.for_each([&](C& v, int, int) {
      const C e = ::exp(v - largest);
      sum += e;
      if (!log) v = e;
    });
    sum = all_reduce<kGroup, 1>(sum, AddOp<C>{});
    if (log) {
      const C shift = largest + ::log(sum);
      tile.for_each([&](C& v, int, int) { v -= shift; });
    } else {
      const C factor = C(1) / sum;
      tile.for_each([&](C& v, int, int) { v *= factor; });
    }
    tile.store(out, n, aligned);
  } else {
    Running<C> own;
    for (int64_t i = threadIdx.x; i < n; i += kGroup) own.add(convert<C>(in[i]));
    const C largest = all_reduce<kGroup, 0>(own.largest, MaxOp<C>{});
    const C sum = all_reduce<kGroup, 1>(rescaled(own, largest), AddOp<C>{});
    const C shift = largest + ::log(sum);
    for (int64_t i = threadIdx.x; i < n; i += kGroup) {
      const C x = convert<C>(in[i]);
      out[i] = convert<T>(log ? x - shift : ::exp(x - largest) / sum);
    }
  }
}

constexpr int kColumnLanes = 32, kColumnParts = 16;

// Columns: 32 side by side, each shared by 16 threads.
template <class C, class F, class Op>
__device__ C reduce_parts(C value, const Op& op, const F&) {
  __shared__ C shared[kColumnParts][kColumnLanes];
  __syncthreads();
  shared[threadIdx.y][threadIdx.x] = value;
  __syncthreads();
  value = shared[0][threadIdx.x];
  for (int p = 1; p < kColumnParts; ++p) value = op(value, shared[p][threadIdx.x]);
  return value;
}
struct MaxTag {};
struct SumTag {};

template <class T>
__global__ void __launch_bounds__(kColumnLanes* kColumnParts)
    softmax_columns(T* out, const T* in, int64_t columns, int64_t n, int64_t inner, bool log) {
  wait_for_predecessors();
  using C = compute_t<T>;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumnLanes + threadIdx.x;
  const bool inside = column < columns;
  const int64_t base = inside ? column / inner * n * inner + column % inner : 0;
  Running<C> own;
  if (inside)
    for (int64_t i = threadIdx.y; i < n; i += kColumnParts) own.add(convert<C>(in[base + i * inner]));
  const C largest = reduce_parts(own.largest, MaxOp<C>{}, MaxTag{});
  const C sum = reduce_parts(rescaled(own, largest), AddOp<C>{}, SumTag{});
  if (!inside) return;
  const C shift = largest + ::log(sum);
  for (int64_t i = threadIdx.y; i < n; i += kColumnParts) {
    const C x = convert<C>(in[base + i * inner]);
    out[base + i * inner] = convert<T>(log ? x - shift : ::exp(x - largest) / sum);
  }
}

// The gradient of one element from the row's sum: of grad * output for softmax, of grad for log_softmax.
template <class C>
__device__ C term(C grad, C output, bool log) {
  return log ? grad : grad * output;
}
template <class C>
__device__ C gradient(C grad, C output, C sum, bool log) {
  return log ? grad - ::exp(output) * sum : (grad - sum) * output;
}

template <class T, int kGroup, int kChunks>
__global__ void __launch_bounds__(row_threads(kGroup))
    backward_rows(T* out, const T* grad, const T* output, int64_t rows, int64_t n, bool aligned, bool log) {
  wait_for_predecessors();
  using C = compute_t<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_threads(kGroup) / kGroup) + threadIdx.x / kGroup;
  if (row >= rows) return;
  out += row * n, grad += row * n, output += row * n;
  C sum = 0;
  if constexpr (kChunks > 0) {
    RowTile<T, kGroup, kChunks> g, y;
    g.load(grad, n, aligned, C(0));
    y.load(output, n, aligned, C(0));
    g.for_each([&](C v, int c, int j) { sum += term(v, y.values[c][j], log); });
    sum = all_reduce<kGroup>(sum, AddOp<C>{});
    g.for_each([&](C& v, int c, int j) { v = gradient(v, y.values[c][j], sum, log); });
    g.store(out, n, aligned);
  } else {
    for (int64_t i = threadIdx.x; i < n; i += kGroup) sum += term(convert<C>(grad[i]), convert<C>(output[i]), log);
    sum = all_reduce<kGroup>(sum, AddOp<C>{});
    for (int64_t i = threadIdx.x; i < n; i += kGroup)
      out[i] = convert<T>(gradient(convert<C>(grad[i]), convert<C>(output[i]), sum, log));
  }
}

template <class T>
__global__ void __launch_bounds__(kColumnLanes* kColumnParts)
    backward_columns(T* out, const T* grad, const T* output, int64_t columns, int64_t n, int64_t inner, bool log) {
  wait_for_predecessors();
  using C = compute_t<T>;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumnLanes + threadIdx.x;
  const bool inside = column < columns;
  const int64_t base = inside ? column / inner * n * inner + column % inner : 0;
  C sum = 0;
  if (inside)
    for (int64_t i = base + threadIdx.y * inner; i < base + n * inner; i += kColumnParts * inner)
      sum += term(convert<C>(grad[i]), convert<C>(output[i]), log);
  sum = reduce_parts(sum, AddOp<C>{}, SumTag{});
  if (!inside) return;
  for (int64_t i = base + threadIdx.y * inner; i < base + n * inner; i += kColumnParts * inner)
    out[i] = convert<T>(gradient(convert<C>(grad[i]), convert<C>(output[i]), sum, log));
}

void forward(const char* op, const TensorView& out, const TensorView& self, int64_t dim, bool log) {
  if (out.numel == 0) return;
  const int device = out.device.index();
  DeviceGuard guard(device);
  const AroundDim shape(self, dim);
  visit_floating(op, self.dtype, [&]<class T>(Tag<T>) {
    auto* to = out.ptr<T>();
    const auto* from = self.ptr<const T>();
    if (shape.inner == 1) {
      const bool aligned = rows_aligned(shape.count * static_cast<int64_t>(sizeof(T)), to, from);
      visit_tile<T>(shape.count, [&](auto group, auto chunks) {
        constexpr int kRows = row_threads(group()) / group();
        launch<softmax_rows<T, group(), chunks()>>(device, blocks_for(shape.outer, kRows), row_threads(group()), to,
                                                   from, shape.outer, shape.count, aligned, log);
      });
    } else {
      const int64_t columns = shape.outer * shape.inner;
      launch<softmax_columns<T>>(device, blocks_for(columns, kColumnLanes), dim3(kColumnLanes, kColumnParts), to, from,
                                 columns, shape.count, shape.inner, log);
    }
  });
}

void backward(const char* op, const TensorView& grad_self, const TensorView& grad, const TensorView& output,
              int64_t dim, bool log) {
  if (grad_self.numel == 0) return;
  const int device = grad.device.index();
  DeviceGuard guard(device);
  const AroundDim shape(output, dim);
  visit_floating(op, output.dtype, [&]<class T>(Tag<T>) {
    auto* to = grad_self.ptr<T>();
    const auto *g = grad.ptr<const T>(), *y = output.ptr<const T>();
    if (shape.inner == 1) {
      const bool aligned = rows_aligned(shape.count * static_cast<int64_t>(sizeof(T)), to, g, y);
      visit_tile<T>(shape.count, [&](auto group, auto chunks) {
        constexpr int kRows = row_threads(group()) / group();
        launch<backward_rows<T, group(), chunks()>>(device, blocks_for(shape.outer, kRows), row_threads(group()), to, g,
                                                    y, shape.outer, shape.count, aligned, log);
      });
    } else {
      const int64_t columns = shape.outer * shape.inner;
      launch<backward_columns<T>>(device, blocks_for(columns, kColumnLanes), dim3(kColumnLanes, kColumnParts), to, g, y,
                                  columns, shape.count, shape.inner, log);
    }
  });
}

}  // namespace

void softmax(const TensorView& out, const TensorView& self, int64_t dim) { forward("softmax", out, self, dim, false); }
void log_softmax(const TensorView& out, const TensorView& self, int64_t dim) {
  forward("log_softmax", out, self, dim, true);
}
void softmax_backward(const TensorView& grad_self, const TensorView& grad, const TensorView& output, int64_t dim) {
  backward("softmax_backward", grad_self, grad, output, dim, false);
}
void log_softmax_backward(const TensorView& grad_self, const TensorView& grad, const TensorView& output, int64_t dim) {
  backward("log_softmax_backward", grad_self, grad, output, dim, true);
}

}  // namespace mica::cuda
