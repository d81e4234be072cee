// Pointwise loops of which one operand lies across the others, as a transposed matrix does: tiles of it are turned in
// shared memory, so that all operands are read and written in pieces of 16 bytes, in long runs.
#pragma once

#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

// out[x][y] = f(along[x][y], across[y][x]) or f(across[y][x]). Pitches, in bytes, lead from one row to the next.
struct TransposedTiles {
  int64_t width, height;  // of x and y
  char* out;
  const char *along, *across;
  int64_t out_pitch, along_pitch, across_pitch;
  int64_t out_batch, along_batch, across_batch;
  bool across_first;  // of the function's arguments
};

inline constexpr int kTurnedSide = 64;
template <class T>
inline constexpr int kTurnedCount = sizeof(T) <= 4 ? 4 : 2;  // elements of a piece

template <class T, class F>
__global__ void __launch_bounds__(kThreads) transposed_kernel(TransposedTiles t, F f) {
  using C = compute_t<T>;
  constexpr int V = kTurnedCount<T>, kInRow = kTurnedSide / V, kEach = kTurnedSide * kInRow / kThreads;
  constexpr bool kBinary = std::is_invocable_v<F, C, C>;
  using Piece = Vector<T, V>;
  __shared__ T tile[kTurnedSide][kTurnedSide + 1];
  wait_for_predecessors();
  // Neighbouring blocks write side by side.
  const int64_t x0 = static_cast<int64_t>(blockIdx.y) * kTurnedSide,
                y0 = static_cast<int64_t>(blockIdx.x) * kTurnedSide;
  const char* across = t.across + blockIdx.z * t.across_batch;
  const char* along = t.along + blockIdx.z * t.along_batch;
  char* out = t.out + blockIdx.z * t.out_batch;
  Piece turned[kEach], dense[kEach];
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = k * kThreads + threadIdx.x, row = i / kInRow, column = i % kInRow * V;
    if (y0 + row < t.height && x0 + column < t.width)
      turned[k] = *reinterpret_cast<const Piece*>(across + (y0 + row) * t.across_pitch +
                                                  (x0 + column) * static_cast<int64_t>(sizeof(T)));
    if constexpr (kBinary) {
      if (x0 + row < t.width && y0 + column < t.height)
        dense[k] = *reinterpret_cast<const Piece*>(along + (x0 + row) * t.along_pitch +
                                                   (y0 + column) * static_cast<int64_t>(sizeof(T)));
    }
  }
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = k * kThreads + threadIdx.x, row = i / kInRow, column = i % kInRow * V;
#pragma unroll
    for (int j = 0; j < V; ++j) tile[row][column + j] = turned[k].item[j];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const int i = k * kThreads + threadIdx.x, row = i / kInRow, column = i % kInRow * V;
    if (x0 + row >= t.width || y0 + column >= t.height) continue;
    Piece result;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const C a = convert<C>(tile[column + j][row]);
      if constexpr (kBinary) {
        const C b = convert<C>(dense[k].item[j]);
        result.item[j] = convert<T>(t.across_first ? f(a, b) : f(b, a));
      } else {
        result.item[j] = convert<T>(f(a));
      }
    }
    *reinterpret_cast<Piece*>(out + (x0 + row) * t.out_pitch + (y0 + column) * static_cast<int64_t>(sizeof(T))) =
        result;
  }
}

// Whether the operands are such a loop: `across` is the one that lies across, `along` another that lies as the output
// does, or 0.
template <class T>
bool as_transposed(const PointwiseLoop& loop, int across, int along, TransposedTiles& t) {
  constexpr int64_t size = sizeof(T), piece = size * kTurnedCount<T>;
  const bool batched = loop.ndim == 3;
  if (loop.ndim != 2 && !(batched && loop.shape[2] < 65536)) return false;
  if ((loop.numbers >> across & 1) || (along && loop.numbers >> along & 1)) return false;
  const int64_t height = loop.shape[0], width = loop.shape[1];
  if (height < kTurnedSide || width < kTurnedSide || width / kTurnedSide >= 65535) return false;
  if (loop.strides[0][0] != size || loop.strides[1][across] != size || (along && loop.strides[0][along] != size))
    return false;
  auto batch = [&](int k) { return batched ? loop.strides[2][k] : 0; };
  t = {width,
       height,
       loop.data[0],
       loop.data[along],
       loop.data[across],
       loop.strides[1][0],
       loop.strides[1][along],
       loop.strides[0][across],
       batch(0),
       batch(along),
       batch(across),
       across < along};
  const int64_t bits = (height | width) * size | t.out_pitch | t.along_pitch | t.across_pitch | t.out_batch |
                       t.along_batch | t.across_batch | reinterpret_cast<intptr_t>(t.out) |
                       reinterpret_cast<intptr_t>(t.along) | reinterpret_cast<intptr_t>(t.across);
  return bits % piece == 0;
}

template <class T, class F>
void run_tiles(const PointwiseLoop& loop, const TransposedTiles& t, const F& f) {
  const int device = loop.device.index();
  DeviceGuard guard(device);
  const dim3 blocks(blocks_for(t.height, kTurnedSide), blocks_for(t.width, kTurnedSide),
                    loop.ndim == 3 ? static_cast<unsigned>(loop.shape[2]) : 1);
  launch<transposed_kernel<T, F>>(device, blocks, kThreads, t, f);
}

// A function of two operands; false where neither lies across.
template <class T, class F>
bool run_transposed(const PointwiseLoop& loop, const F& f) {
  if (loop.ndim < 2) return false;
  TransposedTiles t;
  if (!as_transposed<T>(loop, 2, 1, t) && !as_transposed<T>(loop, 1, 2, t)) return false;
  run_tiles<T>(loop, t, f);
  return true;
}

}  // namespace mica::cuda
