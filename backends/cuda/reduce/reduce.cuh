// Reductions: run_reduction(out, second, self, dims, op). Op names the types In and Acc and has identity(), load(In,
// position), combine(Acc, Acc) and store(Acc, place in the first output, place in the second); where it also has
// absorb(Acc&, In[], position of the first), neighbours are taken in together, and where it has absorb_any(Acc&, In[]),
// elements from anywhere. With join_warp(Acc) it says itself how the totals of a warp meet. The elements of one output
// meet in a fixed order, so that a result does not change from run to run.
#pragma once

#include "backends/cuda/context.h"
#include "backends/cuda/reduce/share.cuh"

namespace mica::cuda {

inline constexpr int kReduceThreads = 256;

// Where results are stored: elements of type O, or float32 where they are 16-bit floats and float32 was asked for.
template <class O>
struct Results {
  static constexpr bool kMayBeWide = std::is_same_v<O, half> || std::is_same_v<O, bfloat16>;
  void* data;
  bool wide;
  Results(const char* op, const TensorView& out) : data(out.data), wide(out.dtype == DType::Float32) {
    const bool fits = element_size(out.dtype) == static_cast<int64_t>(sizeof(O)) || (kMayBeWide && wide);
    if (!fits) unsupported_dtype(op, out.dtype);
  }
  template <class Acc>
  __device__ void set(int64_t at, const Acc& value) const {
    if constexpr (kMayBeWide) {
      if (wide) {
        static_cast<float*>(data)[at] = value;
        return;
      }
    }
    static_cast<O*>(data)[at] = convert<O>(value);
  }
};

// The value of the lane `distance` above, whatever its type.
template <class Acc>
__device__ Acc shuffle_down(const Acc& value, int distance) {
  constexpr int kWords = (sizeof(Acc) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(Acc));
#pragma unroll
  for (int w = 0; w < kWords; ++w) words[w] = __shfl_down_sync(0xffffffffu, words[w], distance);
  Acc result;
  memcpy(static_cast<void*>(&result), words, sizeof(Acc));
  return result;
}

template <class Op, class Acc>
__device__ Acc reduce_warp(Acc value, const Op& op) {
  if constexpr (requires { op.join_warp(value); }) {
    return op.join_warp(value);
  } else {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) value = op.combine(value, shuffle_down(value, distance));
    return value;
  }
}

// The total of a block of kReduceThreads threads, in its first thread, from those of its warps in their first threads.
template <class Op, class Acc>
__device__ Acc join_warps(Acc value, const Op& op) {
  __shared__ alignas(16) unsigned char raw[sizeof(Acc) * (kReduceThreads / 32)];
  auto* shared = reinterpret_cast<Acc*>(raw);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  constexpr int kWarps = kReduceThreads / 32;
  if (threadIdx.x >= 32) return value;
  if constexpr (requires { op.join_warp(value); }) {
    return op.join_warp(threadIdx.x < kWarps ? shared[threadIdx.x] : op.identity());
  } else {
    value = shared[threadIdx.x % kWarps];
#pragma unroll
    for (int distance = kWarps / 2; distance > 0; distance /= 2)
      value = op.combine(value, shuffle_down(value, distance));
    return value;
  }
}

// Blocks of a multiprocessor that hide each other's waits, where the elements are small enough for their registers.
template <class Op>
inline constexpr int kReduceBlocks = sizeof(typename Op::In) <= 4 && sizeof(typename Op::Acc) <= 16 ? 5 : 1;

// A block, a warp or a thread for each output, or for each part of one: neighbouring threads read neighbouring elements
// of what is reduced.
template <class Op>
__global__ void __launch_bounds__(kReduceThreads, kReduceBlocks<Op>)
    reduce_rows(Op op, ReductionShape shape, const typename Op::In* in, typename Op::Acc* partial) {
  wait_for_predecessors();
  const int group = 1 << shape.group_bits, lane = static_cast<int>(threadIdx.x) & (group - 1);
  const int64_t task = (static_cast<int64_t>(blockIdx.x) * kReduceThreads + threadIdx.x) >> shape.group_bits;
  const int64_t output = shape.splits == 1 ? task : task / shape.splits, split = task - output * shape.splits;
  if (output >= shape.kept.numel) return;
  int64_t at[3];
  shape.kept.at(output, at);
  typename Op::Acc total =
      reduce_share(op, shape, in + at[0], split * group + lane, static_cast<int64_t>(group) * shape.splits);
  if (group > 1) total = reduce_warp(total, op);
  if (group > 32) total = join_warps(total, op);
  if (lane) return;
  if (partial) {
    partial[task] = total;
  } else {
    op.store(total, at[1], at[2]);
  }
}

inline constexpr int kColumnRows = 8;
inline constexpr int64_t kColumnPitch = 4;  // elements from one column to the next, at most

// The columns of a matrix, which are neighbours or nearly so: each thread adds up kCount columns, 32 threads side by
// side, and eight rows at a time. Where kCount is more than one, the columns are neighbours or, with a pitch of 2, have
// one between them; the last piece of a row then ends one element behind the last column, in the same 16 bytes.
template <int kCount, class Op, int kPitch = 1>
__global__ void __launch_bounds__(32 * kColumnRows)
    reduce_columns(Op op, ReductionShape shape, const typename Op::In* in, typename Op::Acc* partial) {
  wait_for_predecessors();
  using Acc = typename Op::Acc;
  using Piece = Vector<typename Op::In, kCount * kPitch>;
  __shared__ alignas(16) unsigned char raw[sizeof(Acc) * kCount * 32 * kColumnRows];
  auto* shared = reinterpret_cast<Acc*>(raw);
  const int64_t column = (static_cast<int64_t>(blockIdx.x / shape.splits) * 32 + threadIdx.x) * kCount;
  const int split = blockIdx.x % shape.splits;
  const int64_t step = static_cast<int64_t>(kColumnRows) * shape.splits;
  const bool inside = column < shape.kept.numel;
  Acc sums[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) sums[j] = op.identity();
  if (inside) {
    int64_t base[3];
    shape.kept.at(column, base);
    if (shape.reduced.ndim <= 1) {
      const int64_t pitch = shape.reduced.ndim ? shape.reduced.strides[0][0] : 0;
#pragma unroll 4
      for (int64_t i = split * kColumnRows + threadIdx.y; i < shape.reduced.numel; i += step) {
        const Piece piece = *reinterpret_cast<const Piece*>(in + base[0] + i * pitch);
#pragma unroll
        for (int j = 0; j < kCount; ++j) sums[j] = op.combine(sums[j], op.load(piece.item[j * kPitch], i));
      }
    } else {
#pragma unroll 1
      for (int64_t i = split * kColumnRows + threadIdx.y; i < shape.reduced.numel; i += step) {
        int64_t at[1];
        shape.reduced.at(i, at);
        const Piece piece = *reinterpret_cast<const Piece*>(in + base[0] + at[0]);
#pragma unroll
        for (int j = 0; j < kCount; ++j) sums[j] = op.combine(sums[j], op.load(piece.item[j * kPitch], i));
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) shared[(threadIdx.y * 32 + threadIdx.x) * kCount + j] = sums[j];
  __syncthreads();
  // A thread for each column, so that neighbours read and write side by side.
  const int64_t first = static_cast<int64_t>(blockIdx.x / shape.splits) * (32 * kCount);
  for (int c = static_cast<int>(threadIdx.y * 32 + threadIdx.x); c < 32 * kCount; c += 32 * kColumnRows) {
    if (first + c >= shape.kept.numel) return;
    Acc total = shared[c];
#pragma unroll 1
    for (int r = 1; r < kColumnRows; ++r) total = op.combine(total, shared[r * 32 * kCount + c]);
    if (partial) {
      partial[split * shape.kept.numel + first + c] = total;
    } else {
      int64_t at[3];
      shape.kept.at(first + c, at);
      op.store(total, at[1], at[2]);
    }
  }
}

// The parts of each output: a group of threads for each, which reads several at a time, for nothing else hides the time
// that memory takes here. They lie output by output.
template <class Op>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_partials(Op op, ReductionShape shape, const typename Op::Acc* partial) {
  wait_for_predecessors();
  const int group = 1 << shape.group_bits, lane = static_cast<int>(threadIdx.x) & (group - 1);
  const int64_t output = (static_cast<int64_t>(blockIdx.x) * kReduceThreads + threadIdx.x) >> shape.group_bits;
  if (output >= shape.kept.numel) return;
  typename Op::Acc total = op.identity();
#pragma unroll 4
  for (int s = lane; s < shape.splits; s += group) total = op.combine(total, partial[output * shape.splits + s]);
  total = reduce_warp(total, op);
  if (group > 32) total = join_warps(total, op);
  if (lane) return;
  int64_t at[3];
  shape.kept.at(output, at);
  op.store(total, at[1], at[2]);
}

// The parts of columns, which lie part by part: 32 columns side by side, 32 parts at a time.
template <class Op>
__global__ void __launch_bounds__(32 * 32)
    reduce_column_parts(Op op, ReductionShape shape, const typename Op::Acc* partial) {
  using Acc = typename Op::Acc;
  constexpr int kPitch = 33;  // a column's parts lie in different banks
  __shared__ alignas(16) unsigned char raw[sizeof(Acc) * 32 * kPitch];
  auto* shared = reinterpret_cast<Acc*>(raw);
  wait_for_predecessors();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * 32, column = first + threadIdx.x;
  Acc total = op.identity();
  if (column < shape.kept.numel)
#pragma unroll 4
    for (int s = static_cast<int>(threadIdx.y); s < shape.splits; s += 32)
      total = op.combine(total, partial[s * shape.kept.numel + column]);
  shared[threadIdx.y * kPitch + threadIdx.x] = total;
  __syncthreads();
  total = reduce_warp(shared[threadIdx.x * kPitch + threadIdx.y], op);
  const int64_t output = first + threadIdx.y;
  if (threadIdx.x != 0 || output >= shape.kept.numel) return;
  int64_t at[3];
  shape.kept.at(output, at);
  op.store(total, at[1], at[2]);
}

// Dimensions of the input in the order of its strides, the fastest first.
inline ReductionShape reduction_shape(const TensorView& out, const TensorView& second, const TensorView& self,
                                      uint64_t dims) {
  ReductionShape shape;
  int order[64];
  for (int d = 0; d < self.ndim; ++d) order[d] = self.ndim - 1 - d;
  std::stable_sort(order, order + self.ndim,
                   [&](int a, int b) { return std::abs(self.strides[a]) < std::abs(self.strides[b]); });
  const bool keepdim = out.ndim == self.ndim;
  for (int o = 0; o < self.ndim; ++o) {
    const int d = order[o];
    if (dims >> d & 1) {
      shape.reduced.add(self.sizes[d], {self.strides[d]});
      continue;
    }
    int target = d;
    if (!keepdim)
      for (int before = 0; before < d; ++before) target -= static_cast<int>(dims >> before & 1);
    shape.kept.add(self.sizes[d],
                   {self.strides[d], out.strides[target], second.defined() ? second.strides[target] : 0});
  }
  shape.kept.finish();
  shape.reduced.finish();
  return shape;
}

template <class Op>
void run_reduction(const TensorView& out, const TensorView& second, const TensorView& self, uint64_t dims,
                   const Op& op) {
  using In = typename Op::In;
  using Acc = typename Op::Acc;
  if (out.numel == 0) return;
  const int device = out.device.index();
  DeviceGuard guard(device);
  ReductionShape shape = reduction_shape(out, second, self, dims);
  const auto* in = self.ptr<const In>();
  // Columns of a matrix.
  constexpr bool kRare = reduces_rarely<Op>();
  constexpr int kWide = kRare || sizeof(In) >= 8 || sizeof(Acc) > 8 ? 1 : sizeof(In) == 2 && sizeof(Acc) == 4 ? 8 : 4;
  auto stride_of = [](const auto& p) { return p.ndim ? std::abs(p.strides[0][0]) : INT64_MAX; };
  const int64_t pitch = shape.kept.ndim ? shape.kept.strides[0][0] : 0;
  const bool by_columns =
      pitch > 0 && pitch <= kColumnPitch && shape.kept.numel >= 32 && stride_of(shape.reduced) > pitch;
  // Columns in vectors, where all rows are aligned; with a pitch of 2, half as many of them.
  constexpr int kHalf = kWide / 2;
  const int64_t vector = pitch == 1 ? kWide : kHalf * 2;
  bool wide = kWide > 1 && by_columns && pitch <= 2 && shape.kept.sizes[0] % (vector / pitch) == 0 &&
              reinterpret_cast<uintptr_t>(in) % (sizeof(In) * vector) == 0;
  for (int d = 1; d < shape.kept.ndim; ++d) wide = wide && shape.kept.strides[d][0] % vector == 0;
  for (int d = 0; d < shape.reduced.ndim; ++d) wide = wide && shape.reduced.strides[d][0] % vector == 0;
  // Few columns leave the device idle in vectors of them.
  const int64_t multiprocessors = properties(device).multiProcessorCount;
  const int count = !wide ? 1 : pitch == 1 ? kWide : kHalf;
  const int64_t length = shape.reduced.numel;
  // A warp for a short row, and for a longer one where there are enough of them to keep the device busy.
  const bool by_warps = (length <= 1024 && shape.kept.numel >= multiprocessors) ||
                        (length * static_cast<int64_t>(sizeof(In)) <= 8192 && shape.kept.numel >= 8 * multiprocessors);
  shape.group_bits = length <= 8 ? 0 : by_warps ? 5 : 8;
  const int group = 1 << shape.group_bits;
  const int64_t tasks = by_columns ? (shape.kept.numel + 32 * count - 1) / (32 * count) : shape.kept.numel;
  // Enough blocks to fill the device several times over, as long as each has work.
  if (by_columns || group == kReduceThreads)
    shape.splits = static_cast<int>(
        std::clamp<int64_t>(std::min(8 * multiprocessors / tasks,
                                     length / ((by_columns ? kColumnRows : kReduceThreads) * (count == 8 ? 8 : 16))),
                            1, 1024));
  auto run = [&](Acc* partial) {
    if (!by_columns) {
      launch<reduce_rows<Op>>(device, blocks_for(tasks * shape.splits, kReduceThreads / group), kReduceThreads, op,
                              shape, in, partial);
    } else if (wide && pitch == 1) {
      launch<reduce_columns<kWide, Op>>(device, static_cast<unsigned>(tasks * shape.splits), dim3(32, kColumnRows), op,
                                        shape, in, partial);
    } else if (wide) {
      if constexpr (kWide > 1)
        launch<reduce_columns<kHalf, Op, 2>>(device, static_cast<unsigned>(tasks * shape.splits), dim3(32, kColumnRows),
                                             op, shape, in, partial);
    } else {
      launch<reduce_columns<1, Op>>(device, static_cast<unsigned>(tasks * shape.splits), dim3(32, kColumnRows), op,
                                    shape, in, partial);
    }
  };
  if (shape.splits == 1) return run(nullptr);
  const Workspace parts(static_cast<size_t>(shape.kept.numel * shape.splits) * sizeof(Acc), device);
  auto* partial = static_cast<Acc*>(parts.data());
  run(partial);
  if (by_columns) {
    launch<reduce_column_parts<Op>>(device, blocks_for(shape.kept.numel, 32), dim3(32, 32), op, shape, partial);
    return;
  }
  shape.group_bits = shape.kept.numel <= multiprocessors ? 8 : 5;
  launch<reduce_partials<Op>>(device, blocks_for(shape.kept.numel, kReduceThreads >> shape.group_bits), kReduceThreads,
                              op, shape, partial);
}

// How many elements meet in one output.
inline double count_of(const TensorView& self, uint64_t dims) {
  double count = 1;
  for (int d = 0; d < self.ndim; ++d)
    if (dims >> d & 1) count *= static_cast<double>(self.sizes[d]);
  return count;
}

}  // namespace mica::cuda
