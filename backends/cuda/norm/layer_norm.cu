// layer_norm, rms_norm and their gradients.
#include "backends/cuda/norm/rows.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct Forward {
  T* out;
  Statistic<T> mean, rstd;
  const T* in;
  Parameter<T> weight, bias;
  int64_t rows, n;
  compute_t<T> eps;
  bool aligned;
};

template <class C>
__device__ C inverse_root(C x) {
  return C(1) / ::sqrt(x);
}

// kCentred: layer norm; else rms norm, which takes no mean away.
template <class T, int kGroup, int kChunks, bool kCentred>
__global__ void __launch_bounds__(row_threads(kGroup)) norm_rows(Forward<T> p) {
  using C = compute_t<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_threads(kGroup) / kGroup) + threadIdx.x / kGroup;
  if (row >= p.rows) return;
  const T* in = p.in + row * p.n;
  T* out = p.out + row * p.n;
  const C share = C(1) / static_cast<C>(p.n);
  auto finish = [&](C v, C mean, C rstd, int64_t i) {
    C y = (v - mean) * rstd;
    if (p.weight.given()) y *= p.weight.at(i);
    if (p.bias.given()) y += p.bias.at(i);
    return y;
  };
  C mean = 0, squares = 0, rstd;
  if constexpr (kChunks > 0) {
    RowTile<T, kGroup, kChunks> tile;
    using Tile = RowTile<T, kGroup, kChunks>;
    tile.load(in, p.n, p.aligned, C(0));
    if constexpr (kCentred) {
      tile.for_each([&](C v, int, int) { mean += v; });
      mean = all_reduce<kGroup>(mean, AddOp<C>{}) * share;
    }
    tile.for_each([&](C v, int c, int j) {
      const C d = v - mean;
      if (Tile::index(c, j) < p.n) squares += d * d;
    });
    rstd = inverse_root(all_reduce<kGroup>(squares, AddOp<C>{}) * share + p.eps);
    tile.for_each([&](C& v, int c, int j) {
      const int64_t i = Tile::index(c, j);
      if (i < p.n) v = finish(v, mean, rstd, i);
    });
    tile.store(out, p.n, p.aligned);
  } else {
    if constexpr (kCentred) {
      for (int64_t i = threadIdx.x; i < p.n; i += kGroup) mean += convert<C>(in[i]);
      mean = all_reduce<kGroup>(mean, AddOp<C>{}) * share;
    }
    for (int64_t i = threadIdx.x; i < p.n; i += kGroup) {
      const C d = convert<C>(in[i]) - mean;
      squares += d * d;
    }
    rstd = inverse_root(all_reduce<kGroup>(squares, AddOp<C>{}) * share + p.eps);
    for (int64_t i = threadIdx.x; i < p.n; i += kGroup) out[i] = convert<T>(finish(convert<C>(in[i]), mean, rstd, i));
  }
  if (threadIdx.x % kGroup == 0) {
    if constexpr (kCentred) p.mean.set(row, mean);
    p.rstd.set(row, rstd);
  }
}

template <class T>
struct Backward {
  T* grad_input;
  const T *grad, *input;
  Statistic<T> mean, rstd;
  Parameter<T> weight;
  int64_t rows, n;
  bool aligned;
};

// With g = grad * weight and h = (x - mean) * rstd: rstd (g - mean(g) - h mean(g h)).
template <class T, int kGroup, int kChunks, bool kCentred>
__global__ void __launch_bounds__(row_threads(kGroup)) input_gradient(Backward<T> p) {
  using C = compute_t<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_threads(kGroup) / kGroup) + threadIdx.x / kGroup;
  if (row >= p.rows) return;
  const T *grad = p.grad + row * p.n, *in = p.input + row * p.n;
  T* out = p.grad_input + row * p.n;
  const C mean = kCentred ? p.mean.at(row) : C(0), rstd = p.rstd.at(row), share = C(1) / static_cast<C>(p.n);
  C total = 0, along = 0;
  if constexpr (kChunks > 0) {
    using Tile = RowTile<T, kGroup, kChunks>;
    Tile g, x;
    g.load(grad, p.n, p.aligned, C(0));
    x.load(in, p.n, p.aligned, C(0));
    g.for_each([&](C& v, int c, int j) {
      const int64_t i = Tile::index(c, j);
      if (i >= p.n) return;
      if (p.weight.given()) v *= p.weight.at(i);
      x.values[c][j] = (x.values[c][j] - mean) * rstd;
      total += v;
      along += v * x.values[c][j];
    });
    total = kCentred ? all_reduce<kGroup>(total, AddOp<C>{}) * share : C(0);
    along = all_reduce<kGroup>(along, AddOp<C>{}) * share;
    g.for_each([&](C& v, int c, int j) { v = rstd * (v - total - x.values[c][j] * along); });
    g.store(out, p.n, p.aligned);
  } else {
    auto of = [&](int64_t i, C& g, C& h) {
      g = convert<C>(grad[i]);
      if (p.weight.given()) g *= p.weight.at(i);
      h = (convert<C>(in[i]) - mean) * rstd;
    };
    C g, h;
    for (int64_t i = threadIdx.x; i < p.n; i += kGroup) {
      of(i, g, h);
      total += g;
      along += g * h;
    }
    total = kCentred ? all_reduce<kGroup>(total, AddOp<C>{}) * share : C(0);
    along = all_reduce<kGroup>(along, AddOp<C>{}) * share;
    for (int64_t i = threadIdx.x; i < p.n; i += kGroup) {
      of(i, g, h);
      out[i] = convert<T>(rstd * (g - total - h * along));
    }
  }
}

constexpr int kLanes = 32, kParts = 16;

// Sums over rows of grad * h and of grad, in `splits` parts: 32 columns side by side for each block.
template <class T>
__global__ void __launch_bounds__(kLanes* kParts)
    parameter_gradients(Backward<T> p, compute_t<T>* weight_parts, compute_t<T>* bias_parts, int splits) {
  using C = compute_t<T>;
  __shared__ C shared[2][kParts][kLanes];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  C weight = 0, bias = 0;
  if (column < p.n)
#pragma unroll 4
    for (int64_t row = blockIdx.y * kParts + threadIdx.y; row < p.rows; row += static_cast<int64_t>(splits) * kParts) {
      const C g = convert<C>(p.grad[row * p.n + column]);
      bias += g;
      if (weight_parts) {
        const C mean = p.mean.given() ? p.mean.at(row) : C(0);
        weight += g * ((convert<C>(p.input[row * p.n + column]) - mean) * p.rstd.at(row));
      }
    }
  shared[0][threadIdx.y][threadIdx.x] = weight;
  shared[1][threadIdx.y][threadIdx.x] = bias;
  __syncthreads();
  if (threadIdx.y || column >= p.n) return;
  for (int part = 1; part < kParts; ++part) {
    weight += shared[0][part][threadIdx.x];
    bias += shared[1][part][threadIdx.x];
  }
  if (weight_parts) weight_parts[blockIdx.y * p.n + column] = weight;
  if (bias_parts) bias_parts[blockIdx.y * p.n + column] = bias;
}

template <class C, class Out>
struct SumParts {
  const C* parts;
  Out* out;
  int splits;
  int64_t n;
  __device__ void operator()(int64_t i) const {
    C total = 0;
    for (int s = 0; s < splits; ++s) total += parts[s * n + i];
    out[i] = convert<Out>(total);
  }
};

template <class T, class C>
void sum_parts(const C* parts, const TensorView& out, int splits, int64_t n) {
  const int device = out.device.index();
  if (out.dtype == DType::Float32) {
    for_each(device, n, SumParts<C, float>{parts, out.ptr<float>(), splits, n});
  } else {
    for_each(device, n, SumParts<C, T>{parts, out.ptr<T>(), splits, n});
  }
}

template <bool kCentred>
void forward(const char* op, const TensorView& out, const TensorView& mean, const TensorView& rstd,
             const TensorView& input, const TensorView& weight, const TensorView& bias, int64_t count, double eps) {
  if (input.numel == 0) return;
  const int device = input.device.index();
  DeviceGuard guard(device);
  visit_floating(op, input.dtype, [&]<class T>(Tag<T>) {
    const Forward<T> p{out.ptr<T>(),
                       Statistic<T>(mean),
                       Statistic<T>(rstd),
                       input.ptr<const T>(),
                       Parameter<T>(weight),
                       Parameter<T>(bias),
                       input.numel / count,
                       count,
                       static_cast<compute_t<T>>(eps),
                       rows_aligned(count * static_cast<int64_t>(sizeof(T)), out.data, input.data)};
    visit_tile<T>(count, [&](auto group, auto chunks) {
      norm_rows<T, group(), chunks(), kCentred>
          <<<blocks_for(p.rows, row_threads(group()) / group()), row_threads(group()), 0, current_stream(device)>>>(p);
    });
  });
  MICA_CUDA(cudaGetLastError());
}

template <bool kCentred>
void backward(const char* op, const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad_bias,
              const TensorView& grad, const TensorView& input, const TensorView& mean, const TensorView& rstd,
              const TensorView& weight, int64_t count) {
  if (input.numel == 0) return;
  const int device = input.device.index();
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  visit_floating(op, input.dtype, [&]<class T>(Tag<T>) {
    using C = compute_t<T>;
    const Backward<T> p{grad_input.defined() ? grad_input.ptr<T>() : nullptr,
                        grad.ptr<const T>(),
                        input.ptr<const T>(),
                        Statistic<T>(mean),
                        Statistic<T>(rstd),
                        Parameter<T>(weight),
                        input.numel / count,
                        count,
                        rows_aligned(count * static_cast<int64_t>(sizeof(T)), grad.data, input.data,
                                     grad_input.defined() ? grad_input.data : nullptr)};
    if (p.grad_input)
      visit_tile<T>(count, [&](auto group, auto chunks) {
        input_gradient<T, group(), chunks(), kCentred>
            <<<blocks_for(p.rows, row_threads(group()) / group()), row_threads(group()), 0, stream>>>(p);
      });
    MICA_CUDA(cudaGetLastError());
    if (!grad_weight.defined() && !grad_bias.defined()) return;
    const unsigned columns = blocks_for(count, kLanes);
    const int64_t wanted = 4 * properties(device).multiProcessorCount / columns;
    const auto splits = static_cast<int>(std::clamp<int64_t>(std::min(wanted, p.rows / (kParts * 4)), 1, 256));
    const Workspace parts(static_cast<size_t>(2 * splits * count) * sizeof(C), device);
    auto* weight_parts = grad_weight.defined() ? static_cast<C*>(parts.data()) : nullptr;
    auto* bias_parts = grad_bias.defined() ? static_cast<C*>(parts.data()) + splits * count : nullptr;
    parameter_gradients<T><<<dim3(columns, static_cast<unsigned>(splits)), dim3(kLanes, kParts), 0, stream>>>(
        p, weight_parts, bias_parts, splits);
    MICA_CUDA(cudaGetLastError());
    if (weight_parts) sum_parts<T>(weight_parts, grad_weight, splits, count);
    if (bias_parts) sum_parts<T>(bias_parts, grad_bias, splits, count);
  });
}

}  // namespace

void layer_norm(const TensorView& out, const TensorView& mean, const TensorView& rstd, const TensorView& input,
                const TensorView& weight, const TensorView& bias, int64_t count, double eps) {
  forward<true>("layer_norm", out, mean, rstd, input, weight, bias, count, eps);
}
void rms_norm(const TensorView& out, const TensorView& rstd, const TensorView& input, const TensorView& weight,
              int64_t count, double eps) {
  forward<false>("rms_norm", out, {}, rstd, input, weight, {}, count, eps);
}
void layer_norm_backward(const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad_bias,
                         const TensorView& grad, const TensorView& input, const TensorView& mean,
                         const TensorView& rstd, const TensorView& weight, int64_t count) {
  backward<true>("layer_norm_backward", grad_input, grad_weight, grad_bias, grad, input, mean, rstd, weight, count);
}
void rms_norm_backward(const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad,
                       const TensorView& input, const TensorView& rstd, const TensorView& weight, int64_t count) {
  backward<false>("rms_norm_backward", grad_input, grad_weight, {}, grad, input, {}, rstd, weight, count);
}

}  // namespace mica::cuda
