// Reductions: run_reduction<Op>(out, self, dims). Op names the types In, Acc and Out, and has identity(), load(In),
// combine(Acc, Acc) and finish(Acc). The elements of one output meet in a fixed order, so that a result does not change
// from run to run.
#pragma once

#include "backends/cuda/allocator.h"
#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

// A few dimensions, the fastest first, and where each of two tensors lies along them, in elements.
struct Walk {
  int ndim = 0;
  int64_t numel = 1;
  uint64_t sizes[64];
  int64_t strides[64][2];

  void add(int64_t size, int64_t first, int64_t second) {
    numel *= size;
    if (size == 1) return;
    if (ndim && strides[ndim - 1][0] * static_cast<int64_t>(sizes[ndim - 1]) == first &&
        strides[ndim - 1][1] * static_cast<int64_t>(sizes[ndim - 1]) == second) {
      sizes[ndim - 1] *= static_cast<uint64_t>(size);
      return;
    }
    sizes[ndim] = static_cast<uint64_t>(size);
    strides[ndim][0] = first;
    strides[ndim++][1] = second;
  }
  __device__ void at(uint64_t i, int64_t& first, int64_t& second) const {
    first = second = 0;
    for (int d = 0; d < ndim; ++d) {
      uint64_t here = i;
      if (d + 1 < ndim) {
        // A division of 32 bits is a fraction of the price.
        if (i >> 32) {
          here = i % sizes[d], i /= sizes[d];
        } else {
          const auto narrow = static_cast<uint32_t>(i), size = static_cast<uint32_t>(sizes[d]);
          here = narrow % size, i = narrow / size;
        }
      }
      first += static_cast<int64_t>(here) * strides[d][0];
      second += static_cast<int64_t>(here) * strides[d][1];
    }
  }
};

struct ReductionShape {
  Walk kept;       // along the outputs: input, output
  Walk reduced;    // along what meets in one output: input, unused
  int splits = 1;  // blocks that share one output
};

inline constexpr int kReduceThreads = 256;

template <class Op>
__device__ typename Op::Acc reduce_block(typename Op::Acc value, const Op& op) {
  __shared__ alignas(16) unsigned char raw[sizeof(typename Op::Acc) * kReduceThreads];
  auto* shared = reinterpret_cast<typename Op::Acc*>(raw);
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half_way = kReduceThreads / 2; half_way > 0; half_way /= 2) {
    if (threadIdx.x < half_way) shared[threadIdx.x] = op.combine(shared[threadIdx.x], shared[threadIdx.x + half_way]);
    __syncthreads();
  }
  return shared[0];
}

// A block for each output, or for each part of one: neighbouring threads read neighbouring elements of what is reduced.
template <class Op>
__global__ void __launch_bounds__(kReduceThreads) reduce_rows(Op op, ReductionShape shape, const typename Op::In* in,
                                                              typename Op::Out* out, typename Op::Acc* partial) {
  using Acc = typename Op::Acc;
  const int64_t output = blockIdx.x / shape.splits, split = blockIdx.x % shape.splits;
  int64_t base, target, unused;
  shape.kept.at(output, base, target);
  const int64_t step = static_cast<int64_t>(kReduceThreads) * shape.splits;
  const bool dense = shape.reduced.ndim == 0 || (shape.reduced.ndim == 1 && shape.reduced.strides[0][0] == 1);
  // As many running totals as elements come with one load of 16 bytes.
  constexpr int kCount = sizeof(typename Op::In) >= 16 ? 1
                         : sizeof(typename Op::In) > 2 ? 16 / sizeof(typename Op::In)
                                                       : 8;
  using Piece = Vector<typename Op::In, kCount>;
  Acc sums[kCount];
#pragma unroll
  for (int j = 0; j < kCount; ++j) sums[j] = op.identity();
  int64_t i = split * kReduceThreads + threadIdx.x;
  const auto* row = in + base;
  if (dense && reinterpret_cast<uintptr_t>(row) % alignof(Piece) == 0) {
    const int64_t pieces = shape.reduced.numel / kCount;
#pragma unroll 4
    for (; i < pieces; i += step) {
      const Piece piece = reinterpret_cast<const Piece*>(row)[i];
#pragma unroll
      for (int j = 0; j < kCount; ++j) sums[j] = op.combine(sums[j], op.load(piece.item[j]));
    }
    const int64_t last = pieces * kCount + split * kReduceThreads + threadIdx.x;
    if (last < shape.reduced.numel) sums[0] = op.combine(sums[0], op.load(row[last]));
  } else {
    for (; i < shape.reduced.numel; i += step) {
      int64_t at;
      shape.reduced.at(i, at, unused);
      sums[0] = op.combine(sums[0], op.load(row[at]));
    }
  }
#pragma unroll
  for (int j = 1; j < kCount; ++j) sums[0] = op.combine(sums[0], sums[j]);
  const Acc total = reduce_block(sums[0], op);
  if (threadIdx.x) return;
  if (partial) {
    partial[blockIdx.x] = total;
  } else {
    out[target] = op.finish(total);
  }
}

inline constexpr int kColumns = 32, kColumnRows = 8;

// 32 neighbouring outputs for each block: neighbouring threads read the same element of neighbouring outputs.
template <class Op>
__global__ void __launch_bounds__(kColumns* kColumnRows)
    reduce_columns(Op op, ReductionShape shape, const typename Op::In* in, typename Op::Out* out,
                   typename Op::Acc* partial) {
  using Acc = typename Op::Acc;
  __shared__ alignas(16) unsigned char raw[sizeof(Acc) * kColumns * kColumnRows];
  auto* shared = reinterpret_cast<Acc*>(raw);
  const int64_t output = static_cast<int64_t>(blockIdx.x / shape.splits) * kColumns + threadIdx.x,
                split = blockIdx.x % shape.splits;
  const int64_t step = static_cast<int64_t>(kColumnRows) * shape.splits;
  int64_t base = 0, target = 0, at, unused;
  Acc sums[4] = {op.identity(), op.identity(), op.identity(), op.identity()};
  if (output < shape.kept.numel) {
    shape.kept.at(output, base, target);
    int64_t i = split * kColumnRows + threadIdx.y;
    for (; i + 3 * step < shape.reduced.numel; i += 4 * step) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        shape.reduced.at(i + j * step, at, unused);
        sums[j] = op.combine(sums[j], op.load(in[base + at]));
      }
    }
    for (; i < shape.reduced.numel; i += step) {
      shape.reduced.at(i, at, unused);
      sums[0] = op.combine(sums[0], op.load(in[base + at]));
    }
  }
  shared[threadIdx.y * kColumns + threadIdx.x] = op.combine(op.combine(sums[0], sums[1]), op.combine(sums[2], sums[3]));
  __syncthreads();
  if (threadIdx.y || output >= shape.kept.numel) return;
  Acc total = shared[threadIdx.x];
  for (int r = 1; r < kColumnRows; ++r) total = op.combine(total, shared[r * kColumns + threadIdx.x]);
  if (partial) {
    partial[output * shape.splits + split] = total;
  } else {
    out[target] = op.finish(total);
  }
}

// The parts of each output: a block for each where they are many, else a thread.
template <bool kBlocks, class Op>
__global__ void __launch_bounds__(kReduceThreads)
    reduce_partials(Op op, ReductionShape shape, const typename Op::Acc* partial, typename Op::Out* out) {
  const int64_t output = kBlocks ? blockIdx.x : static_cast<int64_t>(blockIdx.x) * kReduceThreads + threadIdx.x;
  if (output >= shape.kept.numel) return;
  typename Op::Acc total = op.identity();
  for (int s = kBlocks ? threadIdx.x : 0; s < shape.splits; s += kBlocks ? kReduceThreads : 1)
    total = op.combine(total, partial[output * shape.splits + s]);
  if constexpr (kBlocks) {
    total = reduce_block(total, op);
    if (threadIdx.x) return;
  }
  int64_t unused, target;
  shape.kept.at(output, unused, target);
  out[target] = op.finish(total);
}

// Dimensions of the input in the order of its strides, the fastest first.
inline ReductionShape reduction_shape(const TensorView& out, const TensorView& self, uint64_t dims) {
  ReductionShape shape;
  int order[64];
  for (int d = 0; d < self.ndim; ++d) order[d] = self.ndim - 1 - d;
  std::stable_sort(order, order + self.ndim,
                   [&](int a, int b) { return std::abs(self.strides[a]) < std::abs(self.strides[b]); });
  const bool keepdim = out.ndim == self.ndim;
  for (int o = 0; o < self.ndim; ++o) {
    const int d = order[o];
    if (dims >> d & 1) {
      shape.reduced.add(self.sizes[d], self.strides[d], 0);
      continue;
    }
    int target = d;
    if (!keepdim)
      for (int before = 0; before < d; ++before) target -= static_cast<int>(dims >> before & 1);
    shape.kept.add(self.sizes[d], self.strides[d], out.strides[target]);
  }
  return shape;
}

template <class Op>
void run_reduction(const TensorView& out, const TensorView& self, uint64_t dims, const Op& op) {
  using Acc = typename Op::Acc;
  const int device = out.device.index;
  DeviceGuard guard(device);
  const cudaStream_t stream = current_stream(device);
  ReductionShape shape = reduction_shape(out, self, dims);
  auto stride_of = [](const Walk& w) { return w.ndim ? std::abs(w.strides[0][0]) : INT64_MAX; };
  const bool columns = shape.kept.numel >= kColumns && stride_of(shape.kept) < stride_of(shape.reduced);
  const int64_t outputs = columns ? (shape.kept.numel + kColumns - 1) / kColumns : shape.kept.numel;
  const int64_t per_block = columns ? kColumnRows : kReduceThreads;
  // Enough blocks to fill the device several times over, as long as each has work.
  const int64_t wanted = 8 * properties(device).multiProcessorCount;
  shape.splits = static_cast<int>(
      std::clamp<int64_t>(std::min(wanted / outputs, shape.reduced.numel / (per_block * 16)), 1, 1024));
  const auto* in = self.ptr<const typename Op::In>();
  auto* to = out.ptr<typename Op::Out>();
  auto launch = [&](Acc* partial) {
    const auto blocks = static_cast<unsigned>(outputs * shape.splits);
    if (columns) {
      reduce_columns<Op><<<blocks, dim3(kColumns, kColumnRows), 0, stream>>>(op, shape, in, to, partial);
    } else {
      reduce_rows<Op><<<blocks, kReduceThreads, 0, stream>>>(op, shape, in, to, partial);
    }
    MICA_CUDA(cudaGetLastError());
  };
  if (shape.splits == 1) return launch(nullptr);
  const Workspace parts(static_cast<size_t>(shape.kept.numel * shape.splits) * sizeof(Acc), device);
  launch(static_cast<Acc*>(parts.data()));
  const auto* partial = static_cast<const Acc*>(parts.data());
  if (shape.splits >= 32) {
    reduce_partials<true, Op>
        <<<static_cast<unsigned>(shape.kept.numel), kReduceThreads, 0, stream>>>(op, shape, partial, to);
  } else {
    reduce_partials<false, Op>
        <<<blocks_for(shape.kept.numel, kReduceThreads), kReduceThreads, 0, stream>>>(op, shape, partial, to);
  }
  MICA_CUDA(cudaGetLastError());
}

}  // namespace mica::cuda
