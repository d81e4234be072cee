// layer_norm and rms_norm. Their gradients are in layer_norm_backward.cu.
#include "backends/cuda/softmax/rows.cuh"

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
  bool centred;  // layer norm; rms norm takes no mean away
};

template <class C>
__device__ C inverse_root(C x) {
  return C(1) / ::sqrt(x);
}

// A block's rows are aligned where it holds them in registers.
template <class T, int kGroup, int kChunks>
__global__ void __launch_bounds__(row_threads(kGroup), tile_blocks<T>(kGroup, kChunks)) norm_rows(Forward<T> p) {
  wait_for_predecessors();
  using C = compute_t<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_threads(kGroup) / kGroup) + threadIdx.x / kGroup;
  if (row >= p.rows) return;
  const T* in = p.in + row * p.n;
  T* out = p.out + row * p.n;
  const C share = C(1) / static_cast<C>(p.n);
  C mean = 0, squares = 0, rstd;
  if constexpr (kChunks > 0) {
    constexpr bool kAligned = kGroup > 128;
    RowTile<T, kGroup, kChunks> tile;
    using Tile = RowTile<T, kGroup, kChunks>;
    const auto n = static_cast<int>(p.n);
    tile.template load<kAligned>(in, p.n, p.aligned, C(0));
    if (p.centred) {
      tile.for_each([&](C v, int, int) { mean += v; });
      mean = all_reduce<kGroup, 0>(mean, AddOp<C>{}) * share;
    }
    tile.for_each([&](C v, int c, int j) {
      const C d = v - mean;
      if (Tile::index(c, kAligned ? 0 : j) < n) squares += d * d;
    });
    rstd = inverse_root(all_reduce<kGroup, 1>(squares, AddOp<C>{}) * share + p.eps);
    tile.for_each([&](C& v, int, int) { v = (v - mean) * rstd; });
    // Weights, then biases: one of them at a time leaves more registers to the row.
    auto apply = [&](const Parameter<T>& parameter, const auto& f) {
      if (!parameter.given()) return;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int first = Tile::index(c, 0);
        if (first >= n) continue;
        C given[Tile::V];
        if constexpr (kAligned) {
          parameter.load_piece(given, first);
        } else {
          parameter.load(given, first, p.n, p.aligned);
        }
#pragma unroll
        for (int j = 0; j < Tile::V; ++j) tile.values[c][j] = f(tile.values[c][j], given[j]);
      }
    };
    apply(p.weight, [](C a, C b) { return a * b; });
    apply(p.bias, [](C a, C b) { return a + b; });
    tile.template store<kAligned>(out, p.n, p.aligned);
  } else {
    if (p.centred) {
      for (int64_t i = threadIdx.x; i < p.n; i += kGroup) mean += convert<C>(in[i]);
      mean = all_reduce<kGroup, 0>(mean, AddOp<C>{}) * share;
    }
    for (int64_t i = threadIdx.x; i < p.n; i += kGroup) {
      const C d = convert<C>(in[i]) - mean;
      squares += d * d;
    }
    rstd = inverse_root(all_reduce<kGroup, 1>(squares, AddOp<C>{}) * share + p.eps);
    for (int64_t i = threadIdx.x; i < p.n; i += kGroup) {
      C y = (convert<C>(in[i]) - mean) * rstd;
      if (p.weight.given()) y *= p.weight.at(i);
      if (p.bias.given()) y += p.bias.at(i);
      out[i] = convert<T>(y);
    }
  }
  if (threadIdx.x % kGroup == 0) {
    if (p.centred) p.mean.set(row, mean);
    p.rstd.set(row, rstd);
  }
}

// Many rows that a warp can hold: each warp goes over several, with the parameters in registers and the next row on its
// way while it works on one.
template <class T, int kChunks>
__global__ void __launch_bounds__(128, kChunks* kVector<T> <= 24 ? 4 : 3) norm_many_rows(Forward<T> p) {
  wait_for_predecessors();
  using C = compute_t<T>;
  using Tile = RowTile<T, 32, kChunks>;
  constexpr int V = Tile::V;
  const C share = C(1) / static_cast<C>(p.n);
  C weight[kChunks][V], bias[kChunks][V];
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int64_t first = Tile::index(c, 0);
#pragma unroll
    for (int j = 0; j < V; ++j) weight[c][j] = C(1), bias[c][j] = C(0);
    if (p.weight.given() && first < p.n) p.weight.load(weight[c], first, p.n, true);
    if (p.bias.given() && first < p.n) p.bias.load(bias[c], first, p.n, true);
  }
  const int64_t step = static_cast<int64_t>(gridDim.x) * 4;
  int64_t row = static_cast<int64_t>(blockIdx.x) * 4 + threadIdx.x / 32;
  if (row >= p.rows) return;
  Tile next;
  next.load(p.in + row * p.n, p.n, true, C(0));
  for (; row < p.rows; row += step) {
    Tile tile = next;
    if (row + step < p.rows) next.load(p.in + (row + step) * p.n, p.n, true, C(0));
    C mean = 0, squares = 0;
    if (p.centred) {
      tile.for_each([&](C v, int, int) { mean += v; });
      mean = all_reduce<32>(mean, AddOp<C>{}) * share;
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int j = 0; j < V; ++j) {
        const C d = tile.values[c][j] - mean;
        if (Tile::index(c, 0) < p.n) squares += d * d;
      }
    const C rstd = inverse_root(all_reduce<32>(squares, AddOp<C>{}) * share + p.eps);
    tile.for_each([&](C& v, int c, int j) {
      v = (v - mean) * rstd * weight[c][j];
      if (p.bias.given()) v += bias[c][j];
    });
    tile.store(p.out + row * p.n, p.n, true);
    if (threadIdx.x % 32 == 0) {
      if (p.centred) p.mean.set(row, mean);
      p.rstd.set(row, rstd);
    }
  }
}

void forward(const char* op, bool centred, const TensorView& out, const TensorView& mean, const TensorView& rstd,
             const TensorView& input, const TensorView& weight, const TensorView& bias, int64_t count, double eps) {
  if (input.numel == 0) return;
  const int device = input.device.index();
  DeviceGuard guard(device);
  visit_floating(op, input.dtype, [&]<class T>(Tag<T>) {
    const Forward<T> p{
        out.ptr<T>(),
        Statistic<T>(mean),
        Statistic<T>(rstd),
        input.ptr<const T>(),
        Parameter<T>(weight),
        Parameter<T>(bias),
        input.numel / count,
        count,
        static_cast<compute_t<T>>(eps),
        rows_aligned(count * static_cast<int64_t>(sizeof(T)), out.data, input.data, weight.data, bias.data),
        centred};
    const int64_t multiprocessors = properties(device).multiProcessorCount;
    if constexpr (sizeof(T) < 8) {
      constexpr int64_t kMost = 32 * kVector<T> * (kVector<T> == 8 ? 4 : 8);  // that a warp holds
      if (p.aligned && p.rows >= multiprocessors * 32 && count <= kMost) {
        visit_small_tile<T>(count, [&](auto group, auto chunks) {
          if constexpr (group() == 32) {
            constexpr int kBlocks = chunks() * kVector<T> <= 24 ? 4 : 3;
            launch<norm_many_rows<T, chunks()>>(device, static_cast<unsigned>(multiprocessors * kBlocks), 128, p);
          }
        });
        return;
      }
    }
    auto run = [&]<int kGroup, int kChunks>() {
      launch<norm_rows<T, kGroup, kChunks>>(device, blocks_for(p.rows, row_threads(kGroup) / kGroup),
                                            row_threads(kGroup), p);
    };
    if constexpr (sizeof(T) < 8) {  // a few rows, for which there are more threads than work
      constexpr int64_t kOfWarp = 32 * kVector<T>;
      if (p.rows <= multiprocessors && count > kOfWarp && count <= 16 * kOfWarp)
        return run.template operator()<128, 4>();
    }
    visit_tile<T>(count, [&](auto group, auto chunks) {
      if (group() > 128 && !p.aligned) return run.template operator()<512, 0>();
      run.template operator()<group(), chunks()>();
    });
  });
}

}  // namespace

void layer_norm(const TensorView& out, const TensorView& mean, const TensorView& rstd, const TensorView& input,
                const TensorView& weight, const TensorView& bias, int64_t count, double eps) {
  forward("layer_norm", true, out, mean, rstd, input, weight, bias, count, eps);
}
void rms_norm(const TensorView& out, const TensorView& rstd, const TensorView& input, const TensorView& weight,
              int64_t count, double eps) {
  forward("rms_norm", false, out, {}, rstd, input, weight, {}, count, eps);
}

}  // namespace mica::cuda
