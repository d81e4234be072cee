// Scans: run_scan(out, second, self, dim, op), with operations as reductions have them (reduce/reduce.cuh). Where there
// are few lines, a line is cut into chunks: the chunks are reduced, their totals scanned, and then every chunk is
// scanned from the total before it.
#pragma once

#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

struct Lines {
  Places<3> places;  // where the lines begin: input, first output, second output
  int64_t length;
  int64_t strides[3];  // strides along a line
  int64_t chunk;       // elements
  int64_t chunks;      // of one line
};

// The value of the lane `distance` below, whatever its type.
template <class Acc>
__device__ Acc shuffle_up(const Acc& value, int distance) {
  constexpr int kWords = (sizeof(Acc) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(Acc));
#pragma unroll
  for (int w = 0; w < kWords; ++w) words[w] = __shfl_up_sync(0xffffffffu, words[w], distance);
  Acc result;
  memcpy(static_cast<void*>(&result), words, sizeof(Acc));
  return result;
}

// What the lanes up to this one have together.
template <class Op, class Acc>
__device__ Acc scan_warp(Acc value, const Op& op) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const Acc before = shuffle_up(value, distance);
    if (lane >= distance) value = op.combine(before, value);
  }
  return value;
}

// An operation that says kWide holds 16 elements in each of 512 threads, so that one pass over the registers is enough
// for lines of up to 8192; others hold 4 in each of 256.
template <class Op>
constexpr bool scans_wide() {
  return requires { Op::kWide; };
}
inline constexpr int kScanItems = 4;  // side by side, in a thread
template <class Op>
inline constexpr int kScanThreads = scans_wide<Op>() ? 512 : 256;
template <class Op>
inline constexpr int kScanPieces = scans_wide<Op>() ? 4 : 1;

// Neighbouring threads work on neighbouring elements of one line. If `partial` is given and nothing is stored, it gets
// the chunk's total; if everything is stored, it holds the total before the chunk.
template <class Op>
__global__ void __launch_bounds__(kScanThreads<Op>, scans_wide<Op>() ? 3 : 1)
    scan_rows(Op op, Lines lines, const typename Op::In* in, typename Op::Acc* partial, bool stores) {
  using In = typename Op::In;
  using Acc = typename Op::Acc;
  using Piece = Vector<In, kScanItems>;
  constexpr int kThreads = kScanThreads<Op>, kPieces = kScanPieces<Op>, kWarps = kThreads / 32;
  constexpr int kTotals = kPieces * kWarps, kEach = (kTotals + 31) / 32;
  __shared__ alignas(16) unsigned char raw[sizeof(Acc) * (kTotals + 1)];
  auto* totals = reinterpret_cast<Acc*>(raw);
  wait_for_predecessors();
  const int64_t line = lines.chunks == 1 ? blockIdx.x : blockIdx.x / lines.chunks;
  const int64_t chunk = blockIdx.x - line * lines.chunks;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t at[3];
  lines.places.at(line, at);
  const int64_t begin = chunk * lines.chunk,
                end = begin + lines.chunk < lines.length ? begin + lines.chunk : lines.length;
  const In* row = in + at[0];
  const bool dense = lines.strides[0] == 1 && reinterpret_cast<uintptr_t>(row) % alignof(Piece) == 0;
  Acc carry = stores && chunk > 0 ? partial[line * lines.chunks + chunk] : op.identity();
  constexpr int kStep = kThreads * kScanItems, kTile = kStep * kPieces;
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const In* here = row + tile * lines.strides[0];
    const int left = end - tile < kTile ? static_cast<int>(end - tile) : kTile;
    const int mine = static_cast<int>(threadIdx.x) * kScanItems;
    Acc items[kPieces][kScanItems], before[kPieces];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int first = mine + p * kStep;
      if (dense && first + kScanItems <= left) {
        const Piece piece = *reinterpret_cast<const Piece*>(here + first);
#pragma unroll
        for (int j = 0; j < kScanItems; ++j) items[p][j] = op.load(piece.item[j], tile + first + j);
      } else {
#pragma unroll
        for (int j = 0; j < kScanItems; ++j)
          items[p][j] =
              first + j < left ? op.load(here[(first + j) * lines.strides[0]], tile + first + j) : op.identity();
      }
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
#pragma unroll
      for (int j = 1; j < kScanItems; ++j) items[p][j] = op.combine(items[p][j - 1], items[p][j]);
      const Acc up_to = scan_warp(items[p][kScanItems - 1], op);
      if (lane == 31) totals[p * kWarps + warp] = up_to;
      before[p] = shuffle_up(up_to, 1);
      if (lane == 0) before[p] = op.identity();
    }
    __syncthreads();
    // The totals of the warps become what comes before each, the carry included.
    if (warp == 0) {
      Acc own[kEach], sum = op.identity();
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const int i = lane * kEach + k;
        own[k] = sum;
        if (i < kTotals) sum = op.combine(sum, totals[i]);
      }
      const Acc up_to = scan_warp(sum, op);
      Acc earlier = shuffle_up(up_to, 1);
      if (lane == 0) earlier = op.identity();
      earlier = op.combine(carry, earlier);
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const int i = lane * kEach + k;
        if (i < kTotals) totals[i] = op.combine(earlier, own[k]);
      }
      if (lane == 31) totals[kTotals] = op.combine(carry, up_to);
    }
    __syncthreads();
    if (stores) {
#pragma unroll
      for (int p = 0; p < kPieces; ++p) {
        const int first = mine + p * kStep;
        const Acc start = op.combine(totals[p * kWarps + warp], before[p]);
#pragma unroll
        for (int j = 0; j < kScanItems; ++j) items[p][j] = op.combine(start, items[p][j]);
        if constexpr (requires { op.store_piece(items[p], at[1]); }) {
          if (lines.strides[1] == 1 && first + kScanItems <= left && op.store_piece(items[p], at[1] + tile + first))
            continue;
        }
#pragma unroll
        for (int j = 0; j < kScanItems; ++j)
          if (first + j < left)
            op.store(items[p][j], at[1] + (tile + first + j) * lines.strides[1],
                     at[2] + (tile + first + j) * lines.strides[2]);
      }
    }
    carry = totals[kTotals];
    __syncthreads();
  }
  if (!stores && threadIdx.x == 0) partial[line * lines.chunks + chunk] = carry;
}

inline constexpr int kScanColumnThreads = 256;

// Neighbouring threads work on neighbouring lines, each along its own.
template <class Op>
__global__ void __launch_bounds__(kScanColumnThreads)
    scan_columns(Op op, Lines lines, const typename Op::In* in, typename Op::Acc* partial, bool stores) {
  using Acc = typename Op::Acc;
  wait_for_predecessors();
  const int64_t task = static_cast<int64_t>(blockIdx.x) * kScanColumnThreads + threadIdx.x;
  const int64_t chunk = task / lines.places.numel, line = task - chunk * lines.places.numel;
  if (chunk >= lines.chunks) return;
  int64_t at[3];
  lines.places.at(line, at);
  const int64_t begin = chunk * lines.chunk,
                end = begin + lines.chunk < lines.length ? begin + lines.chunk : lines.length;
  Acc running = stores && chunk > 0 ? partial[line * lines.chunks + chunk] : op.identity();
#pragma unroll 4
  for (int64_t i = begin; i < end; ++i) {
    running = op.combine(running, op.load(in[at[0] + i * lines.strides[0]], i));
    if (stores) op.store(running, at[1] + i * lines.strides[1], at[2] + i * lines.strides[2]);
  }
  if (!stores) partial[line * lines.chunks + chunk] = running;
}

// The totals of a line's chunks become what comes before each.
template <class Op>
struct ScanTotals {
  Op op;
  typename Op::Acc* partial;
  int64_t chunks;
  __device__ void operator()(int64_t line) const {
    // One thread adds them in their order; several are on their way at a time.
    constexpr int kBatch = 16;
    auto running = op.identity();
    typename Op::Acc* own = partial + line * chunks;
#pragma unroll 1
    for (int64_t c = 0; c < chunks; c += kBatch) {
      typename Op::Acc totals[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
        if (c + j < chunks) totals[j] = own[c + j];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (c + j >= chunks) break;
        own[c + j] = running;
        running = op.combine(running, totals[j]);
      }
    }
  }
};

template <class Op>
void run_scan(const TensorView& out, const TensorView& second, const TensorView& self, int64_t dim, const Op& op) {
  using Acc = typename Op::Acc;
  if (out.numel == 0) return;
  const int device = out.device.index();
  DeviceGuard guard(device);
  Lines lines{};
  lines.length = self.ndim ? self.sizes[dim] : 1;
  auto stride = [&](const TensorView& t, int64_t d) { return t.defined() && t.ndim ? t.strides[d] : 0; };
  lines.strides[0] = stride(self, dim), lines.strides[1] = stride(out, dim), lines.strides[2] = stride(second, dim);
  int64_t fastest = INT64_MAX;
  for (int d = self.ndim - 1; d >= 0; --d) {
    if (d == dim) continue;
    if (self.sizes[d] > 1) fastest = std::min(fastest, std::abs(self.strides[d]));
    lines.places.add(self.sizes[d], {stride(self, d), stride(out, d), stride(second, d)});
  }
  lines.places.finish();
  const int64_t count = lines.places.numel;
  const bool columns = fastest < std::abs(lines.strides[0]) && count >= 32;
  constexpr int kThreads = kScanThreads<Op>;
  const int64_t wanted = properties(device).multiProcessorCount * (columns ? 2048 : 8);
  const int64_t shortest = columns ? 64 : kThreads * kScanPieces<Op> * kScanItems;
  lines.chunks = std::clamp<int64_t>(std::min(wanted / count, lines.length / shortest), 1, 4096);
  lines.chunk = (lines.length + lines.chunks - 1) / lines.chunks;
  lines.chunk = (lines.chunk + kScanItems - 1) / kScanItems * kScanItems;  // so that all of them are aligned
  lines.chunks = (lines.length + lines.chunk - 1) / lines.chunk;
  const auto* in = self.ptr<const typename Op::In>();
  auto run = [&](bool stores, Acc* partial) {
    if (columns) {
      launch<scan_columns<Op>>(device, blocks_for(count * lines.chunks, kScanColumnThreads), kScanColumnThreads, op,
                               lines, in, partial, stores);
    } else {
      launch<scan_rows<Op>>(device, static_cast<unsigned>(count * lines.chunks), kThreads, op, lines, in, partial,
                            stores);
    }
  };
  if (lines.chunks == 1) return run(true, nullptr);
  const Workspace parts(static_cast<size_t>(count * lines.chunks) * sizeof(Acc), device);
  auto* partial = static_cast<Acc*>(parts.data());
  run(false, partial);
  for_each(device, count, ScanTotals<Op>{op, partial, lines.chunks});
  run(true, partial);
}

}  // namespace mica::cuda
