// layer_norm and rms_norm. Their gradients are in layer_norm_backward.cu.
#include "backends/cuda/normalization/fused_norm.h"
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
  bool centred;  // true for layer norm; rms norm subtracts no mean
};

// What a compiled function lets the kernel do beside the norm (FusedNorm); in eager execution N is void, and there is
// nothing.
template <class N>
struct Beside {
  const float* added;  // to the input, in float32 or in 16 bits
  const N* narrow_added;
  float* sum;
  N* narrow;
};
template <>
struct Beside<void> {};

template <bool kAligned, class N, class T, class Tile>
__device__ void read_row(Tile& tile, const Forward<T>& p, const Beside<N>& beside, int64_t row) {
  using C = compute_t<T>;
  tile.template load<kAligned>(p.in + row * p.n, p.n, p.aligned, C(0));
  if constexpr (!std::is_void_v<N>) {
    if (!beside.added && !beside.narrow_added) return;
    Tile other;
    if (beside.added) {
      other.template load<kAligned>(beside.added + row * p.n, p.n, p.aligned, C(0));
    } else {
      other.template load<kAligned>(beside.narrow_added + row * p.n, p.n, p.aligned, C(0));
    }
    tile.for_each([&](C& v, int c, int j) { v += other.values[c][j]; });
    if (beside.sum) tile.template store<kAligned>(beside.sum + row * p.n, p.n, p.aligned);
  }
}

template <bool kAligned, class N, class T, class Tile>
__device__ void write_row(const Tile& tile, const Forward<T>& p, const Beside<N>& beside, int64_t row) {
  if (std::is_void_v<N> || p.out) tile.template store<kAligned>(p.out + row * p.n, p.n, p.aligned);
  if constexpr (!std::is_void_v<N>)
    if (beside.narrow) tile.template store<kAligned>(beside.narrow + row * p.n, p.n, p.aligned);
}

template <class C>
__device__ C inverse_root(C x) {
  return C(1) / ::sqrt(x);
}

// A block's rows are aligned where it holds them in registers, and so are those with something beside the norm. Of few
// rows (kFew) the parameters are read before the sums are known: they come from far, and there are registers enough.
template <class T, int kGroup, int kChunks, class N = void, bool kFew = false>
__global__ void __launch_bounds__(row_threads(kGroup), tile_blocks<T>(kGroup, kChunks))
    norm_rows(Forward<T> p, Beside<N> beside) {
  if constexpr (kFew) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int first = RowTile<T, kGroup, kChunks>::index(c, 0);
      if (first < p.n) p.weight.fetch(first), p.bias.fetch(first);
    }
  }
  wait_for_predecessors();
  using C = compute_t<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_threads(kGroup) / kGroup) + threadIdx.x / kGroup;
  if (row >= p.rows) return;
  const T* in = p.in + row * p.n;
  T* out = p.out + row * p.n;
  const C share = C(1) / static_cast<C>(p.n);
  C mean = 0, squares = 0, rstd;
  if constexpr (kChunks > 0) {
    constexpr bool kAligned = kGroup > 128 || !std::is_void_v<N>;
    RowTile<T, kGroup, kChunks> tile;
    using Tile = RowTile<T, kGroup, kChunks>;
    const auto n = static_cast<int>(p.n);
    read_row<kAligned>(tile, p, beside, row);
    const auto load = [&](const Parameter<T>& parameter, C(&given)[Tile::V], int c) {
      const int first = Tile::index(c, 0);
      if (first >= n) return false;
      if constexpr (kAligned) {
        parameter.load_piece(given, first);
      } else {
        parameter.load(given, first, p.n, p.aligned);
      }
      return true;
    };
    C weights[kFew ? kChunks : 1][Tile::V], biases[kFew ? kChunks : 1][Tile::V];
    if constexpr (kFew) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        if (p.weight.given()) load(p.weight, weights[c], c);
        if (p.bias.given()) load(p.bias, biases[c], c);
      }
    }
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
    auto apply = [&](const Parameter<T>& parameter, auto& early, const auto& f) {
      if (!parameter.given()) return;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        auto& given = early[kFew ? c : 0];
        if (kFew ? Tile::index(c, 0) >= n : !load(parameter, given, c)) continue;
#pragma unroll
        for (int j = 0; j < Tile::V; ++j) tile.values[c][j] = f(tile.values[c][j], given[j]);
      }
    };
    apply(p.weight, weights, [](C a, C b) { return a * b; });
    apply(p.bias, biases, [](C a, C b) { return a + b; });
    write_row<kAligned>(tile, p, beside, row);
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
template <class T, int kChunks, class N = void>
__global__ void __launch_bounds__(128, kChunks* kVector<T> <= 24 ? 4 : 3)
    norm_many_rows(Forward<T> p, Beside<N> beside) {
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
  constexpr bool kAhead = std::is_void_v<N>;  // else there are too few registers
  Tile next;
  if (kAhead) read_row<true>(next, p, beside, row);
  for (; row < p.rows; row += step) {
    Tile tile = next;
    if constexpr (kAhead) {
      if (row + step < p.rows) read_row<true>(next, p, beside, row + step);
    } else {
      read_row<true>(tile, p, beside, row);
    }
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
    write_row<true>(tile, p, beside, row);
    if (threadIdx.x % 32 == 0) {
      if (p.centred) p.mean.set(row, mean);
      p.rstd.set(row, rstd);
    }
  }
}

// By the kernel that the rows' number and length call for. Beside a norm there is something only where a thread holds
// its part of the row.
template <class N, class T>
void run_forward(const Forward<T>& p, const Beside<N>& beside, int device) {
  const int64_t multiprocessors = properties(device).multiProcessorCount;
  if constexpr (sizeof(T) < 8) {
    constexpr int64_t kMost = 32 * kVector<T> * (kVector<T> == 8 ? 4 : 8);  // that a warp holds
    if (p.aligned && p.rows >= multiprocessors * 32 && p.n <= kMost) {
      visit_small_tile<T>(p.n, [&](auto group, auto chunks) {
        if constexpr (group() == 32) {
          constexpr int kBlocks = chunks() * kVector<T> <= 24 ? 4 : 3;
          launch<norm_many_rows<T, chunks(), N>>(device, static_cast<unsigned>(multiprocessors * kBlocks), 128, p,
                                                 beside);
        }
      });
      return;
    }
  }
  auto run = [&]<int kGroup, int kChunks, bool kFew = false>() {
    if constexpr (std::is_void_v<N> || (kChunks > 0 && kGroup <= 256))
      launch<norm_rows<T, kGroup, kChunks, N, kFew>>(device, blocks_for(p.rows, row_threads(kGroup) / kGroup),
                                                     row_threads(kGroup), p, beside);
  };
  if constexpr (sizeof(T) < 8) {  // a few rows, for which there are more threads than work
    constexpr int64_t kOfWarp = 32 * kVector<T>;
    if (p.rows <= multiprocessors && p.n > kOfWarp && p.n <= 16 * kOfWarp)
      return run.template operator()<128, 4, true>();
  }
  visit_tile<T>(p.n, [&](auto group, auto chunks) {
    if (group() > 128 && !p.aligned) return run.template operator()<512, 0>();
    run.template operator()<group(), chunks()>();
  });
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
    run_forward(p, Beside<void>{}, device);
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

// Rows of more floats would be walked over.
bool takes_norm(int64_t count) { return count % kVector<float> == 0 && count <= kMostOfFusedNorm; }

void run_fused_norm(const FusedNorm& norm) {
  const int device = norm.device.index();
  DeviceGuard guard(device);
  const auto run = [&]<class N>(Tag<N>) {
    Forward<float> p{};
    p.out = norm.out;
    p.mean.wide = norm.mean;
    p.rstd.wide = norm.rstd;
    p.in = norm.input;
    p.weight.wide = norm.weight;
    p.bias.wide = norm.bias;
    p.rows = norm.rows;
    p.n = norm.count;
    p.eps = static_cast<float>(norm.eps);
    p.aligned = rows_aligned(norm.count * static_cast<int64_t>(sizeof(float)), norm.out, norm.input, norm.weight,
                             norm.bias, norm.added, norm.sum, norm.narrow);
    p.centred = norm.centred;
    const bool wide = norm.added_dtype == DType::Float32;
    run_forward(p,
                Beside<N>{wide ? static_cast<const float*>(norm.added) : nullptr,
                          wide ? nullptr : static_cast<const N*>(norm.added), norm.sum, static_cast<N*>(norm.narrow)},
                device);
  };
  const bool half =
      (norm.added && norm.added_dtype == DType::Float16) || (norm.narrow && norm.narrow_dtype == DType::Float16);
  half ? run(Tag<__half>{}) : run(Tag<__nv_bfloat16>{});
}

}  // namespace mica::cuda
