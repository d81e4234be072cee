// Channels side by side in memory, [rows, channels], as images with their channels last are: a thread keeps a vector of
// neighbouring channels, holds in registers what is known of them, and walks down the rows.
#pragma once

#include "backends/cuda/normalization/channels.cuh"

namespace mica::cuda {

inline constexpr int kColumnThreads = 512;

struct Columns {
  int64_t rows, channels;
  int lanes;               // threads across the channels, a power of two of at most a warp
  unsigned groups, parts;  // blocks across the channels, and down the rows

  __device__ int64_t first_channel(int per_thread) const {
    return (static_cast<int64_t>(blockIdx.x) * lanes + threadIdx.x % lanes) * per_thread;
  }
};

// Whether elements of type T can be taken in vectors of 16 bytes.
template <class T>
bool in_columns(const Shape& s, bool aligned) {
  return aligned && s.inner == 1 && s.channels % kVector<T> == 0;
}

// `each` rows or more for every thread, and no more blocks than `most` for each multiprocessor.
template <class T>
Columns columns_of(const Shape& s, int threads, int each, int most, int device) {
  const int64_t vectors = s.channels / kVector<T>;
  Columns c{s.outer, s.channels, 1, 1, 1};
  while (c.lanes < 32 && c.lanes < vectors) c.lanes *= 2;
  c.groups = blocks_for(vectors, c.lanes);
  const int64_t at_once = int64_t{most} * properties(device).multiProcessorCount / c.groups;
  const int64_t useful = s.outer / (static_cast<int64_t>(threads / c.lanes) * each);
  c.parts = static_cast<unsigned>(std::max<int64_t>(1, std::min(at_once, useful)));
  return c;
}

// terms.known<V>(c) is what the sums of channels c and following need, terms.add<V>(i, known, first, second) adds the
// elements at i. The sums are laid out [part, channel], the second ones after all first ones.
template <int V, class C, class Terms>
__global__ void __launch_bounds__(kColumnThreads) column_sums_kernel(Columns s, Terms terms, C* sums) {
  constexpr int kWarps = kColumnThreads / 32;
  wait_for_predecessors();
  __shared__ C shared[kWarps][2 * V][32];
  const int64_t c = s.first_channel(V);
  C first[V] = {}, second[V] = {};
  if (c < s.channels) {
    const auto known = terms.template known<V>(c);
    const int down = kColumnThreads / s.lanes;
    const int64_t step = static_cast<int64_t>(s.parts) * down;
#pragma unroll 4
    for (int64_t r = static_cast<int64_t>(blockIdx.y) * down + threadIdx.x / s.lanes; r < s.rows; r += step)
      terms.template add<V>(r * s.channels + c, known, first, second);
  }
  for (int mask = 16; mask >= s.lanes; mask /= 2) {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      first[j] += __shfl_xor_sync(0xffffffffu, first[j], mask);
      second[j] += __shfl_xor_sync(0xffffffffu, second[j], mask);
    }
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int j = 0; j < V; ++j) {
    shared[warp][j][lane] = first[j];
    shared[warp][V + j][lane] = second[j];
  }
  __syncthreads();
  for (int at = threadIdx.x; at < 2 * V * s.lanes; at += kColumnThreads) {
    const int across = at % s.lanes, which = at / s.lanes;
    C total = shared[0][which][across];
    for (int w = 1; w < kWarps; ++w) total += shared[w][which][across];
    const int64_t channel = (static_cast<int64_t>(blockIdx.x) * s.lanes + across) * V + which % V;
    if (channel < s.channels) sums[(which / V * s.parts + blockIdx.y) * s.channels + channel] = total;
  }
}

// body.known<V>(c) as above; body.load<V>(i) reads the elements at i and body.store<V>(i, known, piece) writes what
// comes of them. Several rows are read before the first is written. Rows are walked from the last: what the sums read
// last is still in the cache.
template <int V, class Body>
__global__ void __launch_bounds__(kThreads) column_apply_kernel(Columns s, Body body) {
  wait_for_predecessors();
  const int64_t c = s.first_channel(V);
  if (c >= s.channels) return;
  const auto known = body.template known<V>(c);
  const int down = kThreads / s.lanes;
  const int64_t step = static_cast<int64_t>(s.parts) * down;
  constexpr int kAtOnce = Body::kAtOnce;
  for (int64_t r = s.rows - 1 - (static_cast<int64_t>(blockIdx.y) * down + threadIdx.x / s.lanes); r >= 0;
       r -= kAtOnce * step) {
    typename Body::template Piece<V> pieces[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (r - u * step >= 0) pieces[u] = body.template load<V>((r - u * step) * s.channels + c);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (r - u * step >= 0) body.template store<V>((r - u * step) * s.channels + c, known, pieces[u]);
  }
}

// In how many parts column_sums leaves its sums.
template <class T>
int64_t column_parts(const Shape& s, int device) {
  return columns_of<T>(s, kColumnThreads, 4, 2, device).parts;
}
template <class T, class C, class Terms>
void column_sums(const Shape& s, const Terms& terms, C* sums, int device) {
  const Columns columns = columns_of<T>(s, kColumnThreads, 4, 2, device);
  launch<column_sums_kernel<kVector<T>, C, Terms>>(device, dim3(columns.groups, columns.parts), kColumnThreads, columns,
                                                   terms, sums);
}
template <class T, class Body>
void column_apply(const Shape& s, const Body& body, int device) {
  const Columns columns = columns_of<T>(s, kThreads, 8, 16, device);
  launch<column_apply_kernel<kVector<T>, Body>>(device, dim3(columns.groups, columns.parts), kThreads, columns, body);
}

}  // namespace mica::cuda
