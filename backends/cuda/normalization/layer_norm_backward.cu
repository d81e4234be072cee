// The gradients of layer_norm and rms_norm.
#include <array>

#include "backends/cuda/normalization/fused_norm.h"
#include "backends/cuda/softmax/rows.cuh"

namespace mica::cuda {

namespace {

template <class T>
struct Backward {
  T* grad_input;
  const T *grad, *input;
  Statistic<T> mean, rstd;
  Parameter<T> weight;
  int64_t rows, n;
  bool aligned;
};

// What a compiled function lets the kernel do beside the gradients (FusedNormGradient); in eager execution N is void,
// and there is nothing.
template <class N>
struct Beside {
  const N* grad;       // where it is of 16 bits
  const float* added;  // to the gradient of the input
  N* narrow;
};
template <>
struct Beside<void> {};

template <class N, class T>
__device__ bool wants_input(const Backward<T>& p, const Beside<N>& beside) {
  if constexpr (!std::is_void_v<N>)
    if (beside.narrow) return true;
  return p.grad_input;
}

// Rows that fill the tile, or such whose alignment is known (with something beside the gradients), or any.
template <bool kWhole, bool kAligned, class Tile, class S>
__device__ void load_row(Tile& tile, const S* rows, int64_t row, int64_t n, bool aligned, typename Tile::C missing) {
  if constexpr (kWhole) {
    tile.load_whole(rows + row * Tile::kWidth);
  } else {
    tile.template load<kAligned>(rows + row * n, n, aligned, missing);
  }
}
template <bool kWhole, bool kAligned, class Tile, class S>
__device__ void store_row(const Tile& tile, S* rows, int64_t row, int64_t n, bool aligned) {
  if constexpr (kWhole) {
    tile.store_whole(rows + row * Tile::kWidth);
  } else {
    tile.template store<kAligned>(rows + row * n, n, aligned);
  }
}

template <bool kWhole, class N, class T, class Tile>
__device__ void read_gradient(Tile& g, const Backward<T>& p, const Beside<N>& beside, int64_t row) {
  using C = compute_t<T>;
  if constexpr (!std::is_void_v<N>)
    if (beside.grad) return load_row<kWhole, true>(g, beside.grad, row, p.n, p.aligned, C(0));
  load_row<kWhole, !std::is_void_v<N>>(g, p.grad, row, p.n, p.aligned, C(0));
}

// Asks for what is added to the gradient of the input. It is used at the end, and there are no registers to keep it in.
template <class Tile, class N, class T>
__device__ void fetch_added(const Backward<T>& p, const Beside<N>& beside, int64_t row) {
  if constexpr (!std::is_void_v<N>) {
    if (!beside.added) return;
#pragma unroll
    for (int c = 0; c < static_cast<int>(sizeof(Tile::values) / sizeof(Tile::values[0])); ++c)
      if (Tile::index(c, 0) < p.n) prefetch(beside.added + row * p.n + Tile::index(c, 0));
  }
}

template <bool kWhole, class N, class T, class Tile>
__device__ void write_gradient(Tile& g, const Backward<T>& p, const Beside<N>& beside, int64_t row) {
  using C = compute_t<T>;
  if constexpr (std::is_void_v<N>) {
    store_row<kWhole, false>(g, p.grad_input, row, p.n, p.aligned);
  } else {
    if (beside.added) {
      Tile other;
      load_row<kWhole, true>(other, beside.added, row, p.n, p.aligned, C(0));
      g.for_each([&](C& v, int c, int j) { v += other.values[c][j]; });
    }
    if (p.grad_input) store_row<kWhole, true>(g, p.grad_input, row, p.n, p.aligned);
    if (beside.narrow) store_row<kWhole, true>(g, beside.narrow, row, p.n, p.aligned);
  }
}

// The gradient times the weight and the normalised input, in place, and this thread's sums of g and g h. With kWhole
// rows fill the tile.
template <class Tile, bool kWhole = false, class T, class C>
__device__ void weigh_and_centre(const Backward<T>& p, Tile& g, Tile& x, C mean, C rstd, C& total, C& along) {
  constexpr int V = Tile::V;
#pragma unroll
  for (int c = 0; c < static_cast<int>(sizeof(g.values) / sizeof(g.values[0])); ++c) {
    const int64_t first = Tile::index(c, 0);
    if (!kWhole && first >= p.n) break;
    C weight[V];
    if (p.weight.given()) {
      if constexpr (kWhole) {
        p.weight.load_piece(weight, first);
      } else {
        p.weight.load(weight, first, p.n, p.aligned);
      }
    }
#pragma unroll
    for (int j = 0; j < V; ++j) {
      if (!kWhole && first + j >= p.n) break;
      if (p.weight.given()) g.values[c][j] *= weight[j];
      x.values[c][j] = (x.values[c][j] - mean) * rstd;
      total += g.values[c][j];
      along += g.values[c][j] * x.values[c][j];
    }
  }
}

// With g = grad * weight and h = (x - mean) * rstd: rstd (g - mean(g) - h mean(g h)).
template <class T, int kGroup, int kChunks, class N = void>
__global__ void __launch_bounds__(row_threads(kGroup)) input_gradient(Backward<T> p, Beside<N> beside) {
  wait_for_predecessors();
  using C = compute_t<T>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (row_threads(kGroup) / kGroup) + threadIdx.x / kGroup;
  if (row >= p.rows) return;
  const T *grad = p.grad + row * p.n, *in = p.input + row * p.n;
  T* out = p.grad_input + row * p.n;
  const bool centred = p.mean.given();
  const C mean = centred ? p.mean.at(row) : C(0), rstd = p.rstd.at(row), share = C(1) / static_cast<C>(p.n);
  C total = 0, along = 0;
  if constexpr (kChunks > 0) {
    using Tile = RowTile<T, kGroup, kChunks>;
    Tile g, x;
    read_gradient<false>(g, p, beside, row);
    x.load(in, p.n, p.aligned, C(0));
    fetch_added<Tile>(p, beside, row);
    weigh_and_centre<Tile>(p, g, x, mean, rstd, total, along);
    total = centred ? all_reduce<kGroup>(total, AddOp<C>{}) * share : C(0);
    along = all_reduce<kGroup>(along, AddOp<C>{}) * share;
    g.for_each([&](C& v, int c, int j) { v = rstd * (v - total - x.values[c][j] * along); });
    write_gradient<false>(g, p, beside, row);
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
    total = centred ? all_reduce<kGroup>(total, AddOp<C>{}) * share : C(0);
    along = all_reduce<kGroup>(along, AddOp<C>{}) * share;
    for (int64_t i = threadIdx.x; i < p.n; i += kGroup) {
      of(i, g, h);
      out[i] = convert<T>(rstd * (g - total - h * along));
    }
  }
}

// Blocks that a multiprocessor has room for without anything beside the gradients: there are to be as many with it.
// The compiler decides where there is nothing.
template <class N>
constexpr int gradient_blocks(int group, int chunks, bool whole) {
  if (std::is_void_v<N>) return 0;
  if (group > 32) return 512 / group;
  return chunks >= 6 ? 2 + whole : chunks == 4 ? 4 + whole : 8;
}

// Both at once for rows that fit into registers: a block goes over many rows, and its threads keep the sums over them
// of grad * h and of grad for their columns. What the blocks have is added by sum_parts. Rows that fill the tile need
// no bounds, which take registers and time: on an H200, 8192 rows of 768 floats take 24.6 us, and 33 with bounds.
template <class T, int kGroup, int kChunks, bool kWhole, class N = void>
__global__ void __launch_bounds__(row_threads(kGroup), gradient_blocks<N>(kGroup, kChunks, kWhole))
    all_gradients(Backward<T> p, Beside<N> beside, compute_t<T>* weight_parts, compute_t<T>* bias_parts) {
  wait_for_predecessors();
  using C = compute_t<T>;
  using Tile = RowTile<T, kGroup, kChunks>;
  constexpr int V = Tile::V, kRows = row_threads(kGroup) / kGroup;
  const C share = C(1) / static_cast<C>(p.n);
  const bool centred = p.mean.given();
  C for_weight[kChunks][V] = {}, for_bias[kChunks][V] = {};
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRows;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kGroup; row < p.rows; row += step) {
    const C mean = centred ? p.mean.at(row) : C(0), rstd = p.rstd.at(row);
    Tile g, x;
    read_gradient<kWhole>(g, p, beside, row);
    load_row<kWhole, !std::is_void_v<N>>(x, p.input, row, p.n, p.aligned, mean);
    fetch_added<Tile>(p, beside, row);
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int j = 0; j < V; ++j) {
        for_bias[c][j] += g.values[c][j];
        for_weight[c][j] += g.values[c][j] * ((x.values[c][j] - mean) * rstd);
      }
    if (!wants_input(p, beside)) continue;
    C total = 0, along = 0;
    weigh_and_centre<Tile, kWhole>(p, g, x, mean, rstd, total, along);
    total = centred ? all_reduce<kGroup>(total, AddOp<C>{}) * share : C(0);
    along = all_reduce<kGroup>(along, AddOp<C>{}) * share;
    g.for_each([&](C& v, int c, int j) { v = rstd * (v - total - x.values[c][j] * along); });
    write_gradient<kWhole>(g, p, beside, row);
  }
  const auto finish = [&](const C(&sums)[kChunks][V], C* parts) {
    if (!parts) return;
    parts += blockIdx.x * p.n;
    if constexpr (kRows == 1) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int j = 0; j < V; ++j)
          if (Tile::index(c, j) < p.n) parts[Tile::index(c, j)] = sums[c][j];
    } else {
      constexpr int kWidth = kGroup * kChunks * V;
      __shared__ C shared[kRows][kWidth];
      __syncthreads();
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int j = 0; j < V; ++j) shared[threadIdx.x / kGroup][Tile::index(c, j)] = sums[c][j];
      __syncthreads();
      for (int i = threadIdx.x; i < p.n; i += row_threads(kGroup)) {
        C sum = shared[0][i];
#pragma unroll
        for (int r = 1; r < kRows; ++r) sum += shared[r][i];
        parts[i] = sum;
      }
    }
  };
  finish(for_weight, weight_parts);
  finish(for_bias, bias_parts);
}

constexpr int kLanes = 32, kParts = 16;

// Sums over rows of grad * h and of grad, in `splits` parts: 32 columns side by side for each block.
template <class T>
__global__ void __launch_bounds__(kLanes* kParts)
    parameter_gradients(Backward<T> p, compute_t<T>* weight_parts, compute_t<T>* bias_parts, int splits) {
  wait_for_predecessors();
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

constexpr int kSumParts = 32;

// The parts of both parameters, added in their order: blockIdx.y is 0 for the weight and 1 for the bias.
template <class C, class T>
__global__ void __launch_bounds__(kLanes* kSumParts)
    sum_parts_kernel(const C* weight_parts, const C* bias_parts, Parameter<T> weight, Parameter<T> bias, int splits,
                     int64_t n) {
  wait_for_predecessors();
  __shared__ C shared[kSumParts][kLanes];
  const C* parts = blockIdx.y ? bias_parts : weight_parts;
  if (!parts) return;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  C total = 0;
  if (column < n)
#pragma unroll 4
    for (int s = threadIdx.y; s < splits; s += kSumParts) total += parts[s * n + column];
  shared[threadIdx.y][threadIdx.x] = total;
  __syncthreads();
  if (threadIdx.y || column >= n) return;
  for (int part = 1; part < kSumParts; ++part) total += shared[part][threadIdx.x];
  const Parameter<T>& to = blockIdx.y ? bias : weight;
  if (to.wide) {
    const_cast<float*>(to.wide)[column] = static_cast<float>(total);
  } else {
    const_cast<T*>(to.same)[column] = convert<T>(total);
  }
}

template <class C, class T>
void add_parts(const C* weight_parts, const C* bias_parts, const Parameter<T>& weight, const Parameter<T>& bias,
               int splits, int64_t count, int device) {
  launch<sum_parts_kernel<C, T>>(device, dim3(blocks_for(count, kLanes), 2), dim3(kLanes, kSumParts), weight_parts,
                                 bias_parts, weight, bias, splits, count);
}

// Where there are gradients of parameters, and rows that fit into registers: all at once. As many blocks with something
// beside the gradients as without it, since sums of parameters are added block by block.
template <class N, class T>
bool run_all(const Backward<T>& p, const Beside<N>& beside, const Parameter<T>& weight, const Parameter<T>& bias,
             bool wants_weight, bool wants_bias, int device) {
  using C = compute_t<T>;
  return visit_small_tile<T>(p.n, [&](auto group, auto chunks) {
    constexpr int kThreads = row_threads(group());
    using Plain = void (*)(Backward<T>, Beside<void>, C*, C*);
    static constexpr Plain plain[] = {all_gradients<T, group(), chunks(), false>,
                                      all_gradients<T, group(), chunks(), true>};
    const bool whole = p.aligned && p.n == RowTile<T, group(), chunks()>::kWidth;
    static const std::array<int, 2> room = [] {  // blocks on a multiprocessor
      std::array<int, 2> found = {1, 1};
      for (size_t i = 0; i < 2; ++i)
        MICA_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found[i], plain[i], kThreads, 0));
      return found;
    }();
    const int per_multiprocessor = std::max(room[whole], 1);
    const int64_t most = static_cast<int64_t>(per_multiprocessor) * properties(device).multiProcessorCount;
    const auto blocks = static_cast<int>(std::min<int64_t>(blocks_for(p.rows, kThreads / group()), most));
    const Workspace parts(static_cast<size_t>(2 * blocks * p.n) * sizeof(C), device);
    auto* weight_parts = wants_weight ? static_cast<C*>(parts.data()) : nullptr;
    auto* bias_parts = wants_bias ? static_cast<C*>(parts.data()) + blocks * p.n : nullptr;
    const auto run = [&]<bool kWhole>() {
      launch<all_gradients<T, group(), chunks(), kWhole, N>>(device, static_cast<unsigned>(blocks), kThreads, p, beside,
                                                             weight_parts, bias_parts);
    };
    whole ? run.template operator()<true>() : run.template operator()<false>();
    add_parts(weight_parts, bias_parts, weight, bias, blocks, p.n, device);
  });
}

// The gradient of the input alone. Beside it there is something only where a thread holds its part of the row.
template <class N, class T>
void run_input(const Backward<T>& p, const Beside<N>& beside, int device) {
  visit_tile<T>(p.n, [&](auto group, auto chunks) {
    if constexpr (std::is_void_v<N> || (chunks() > 0 && group() <= 256))
      launch<input_gradient<T, group(), chunks(), N>>(device, blocks_for(p.rows, row_threads(group()) / group()),
                                                      row_threads(group()), p, beside);
  });
}

// A layer norm has a mean, an rms norm none.
void backward(const char* op, const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad_bias,
              const TensorView& grad, const TensorView& input, const TensorView& mean, const TensorView& rstd,
              const TensorView& weight, int64_t count) {
  if (input.numel == 0) return;
  const int device = input.device.index();
  DeviceGuard guard(device);
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
                                     grad_input.defined() ? grad_input.data : nullptr, weight.data)};
    const bool for_weight = grad_weight.defined(), for_bias = grad_bias.defined();
    const Parameter<T> to_weight(grad_weight), to_bias(grad_bias);
    const Beside<void> nothing;
    if ((for_weight || for_bias) && run_all(p, nothing, to_weight, to_bias, for_weight, for_bias, device)) return;
    if (p.grad_input) run_input(p, nothing, device);
    if (!for_weight && !for_bias) return;
    const unsigned columns = blocks_for(count, kLanes);
    const int64_t wanted = 4 * properties(device).multiProcessorCount / columns;
    const auto splits = static_cast<int>(std::clamp<int64_t>(std::min(wanted, p.rows / (kParts * 4)), 1, 256));
    const Workspace parts(static_cast<size_t>(2 * splits * count) * sizeof(C), device);
    auto* weight_parts = for_weight ? static_cast<C*>(parts.data()) : nullptr;
    auto* bias_parts = for_bias ? static_cast<C*>(parts.data()) + splits * count : nullptr;
    launch<parameter_gradients<T>>(device, dim3(columns, static_cast<unsigned>(splits)), dim3(kLanes, kParts), p,
                                   weight_parts, bias_parts, splits);
    add_parts(weight_parts, bias_parts, to_weight, to_bias, splits, count, device);
  });
}

}  // namespace

void layer_norm_backward(const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad_bias,
                         const TensorView& grad, const TensorView& input, const TensorView& mean,
                         const TensorView& rstd, const TensorView& weight, int64_t count) {
  backward("layer_norm_backward", grad_input, grad_weight, grad_bias, grad, input, mean, rstd, weight, count);
}
void rms_norm_backward(const TensorView& grad_input, const TensorView& grad_weight, const TensorView& grad,
                       const TensorView& input, const TensorView& rstd, const TensorView& weight, int64_t count) {
  backward("rms_norm_backward", grad_input, grad_weight, {}, grad, input, {}, rstd, weight, count);
}

void run_fused_norm_gradient(const FusedNormGradient& norm) {
  const int device = norm.device.index();
  DeviceGuard guard(device);
  const auto run = [&]<class N>(Tag<N>) {
    const bool wide = norm.grad_dtype == DType::Float32;
    Backward<float> p{};
    p.grad_input = norm.grad_input;
    p.grad = wide ? static_cast<const float*>(norm.grad) : nullptr;
    p.input = norm.input;
    p.mean.wide = const_cast<float*>(norm.mean);
    p.rstd.wide = const_cast<float*>(norm.rstd);
    p.weight.wide = norm.weight;
    p.rows = norm.rows;
    p.n = norm.count;
    p.aligned = rows_aligned(norm.count * static_cast<int64_t>(sizeof(float)), norm.grad, norm.input, norm.weight,
                             norm.added, norm.grad_input, norm.narrow);
    const Beside<N> beside{wide ? nullptr : static_cast<const N*>(norm.grad), norm.added, static_cast<N*>(norm.narrow)};
    Parameter<float> weight, bias;
    weight.wide = norm.grad_weight;
    bias.wide = norm.grad_bias;
    if (norm.grad_weight || norm.grad_bias) {
      run_all(p, beside, weight, bias, norm.grad_weight != nullptr, norm.grad_bias != nullptr, device);
    } else {
      run_input(p, beside, device);
    }
  };
  const bool half = norm.grad_dtype == DType::Float16 || (norm.narrow && norm.narrow_dtype == DType::Float16);
  half ? run(Tag<__half>{}) : run(Tag<__nv_bfloat16>{});
}

}  // namespace mica::cuda
