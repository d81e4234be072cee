// Sums over each channel of contiguous tensors [outer, channels, inner], and walks over all elements that know their
// channel. Sums are taken in parts that are laid out [part, channel], and then over the parts.
#pragma once

#include "backends/cuda/softmax/rows.cuh"

namespace mica::cuda {

inline constexpr int kSumThreads = 128;
inline constexpr int kLanes = 32, kRows = 8;

struct Shape {
  int64_t outer, channels, inner;
  int64_t parts = 1, cuts = 1;  // parts = outer * cuts of a run, or parts of the rows where inner is 1
};

// Sums of first(i, c) and second(i, c) over the elements of each channel.
template <class C, class Terms>
__global__ void __launch_bounds__(kSumThreads) sum_runs(Shape s, Terms terms, C* sums) {
  const int64_t run = blockIdx.x / s.cuts, cut = blockIdx.x % s.cuts, c = run % s.channels;
  const int64_t begin = s.inner * cut / s.cuts, end = s.inner * (cut + 1) / s.cuts;
  C first = 0, second = 0;
  for (int64_t i = run * s.inner + begin + threadIdx.x; i < run * s.inner + end; i += kSumThreads)
    terms(i, c, first, second);
  first = all_reduce<kSumThreads>(first, AddOp<C>{});
  second = all_reduce<kSumThreads>(second, AddOp<C>{});
  if (threadIdx.x) return;
  const int64_t at = (run / s.channels * s.cuts + cut) * s.channels + c;
  sums[at] = first;
  sums[s.parts * s.channels + at] = second;
}

// Short runs: a warp for each.
template <class C, class Terms>
__global__ void __launch_bounds__(kSumThreads) sum_short_runs(Shape s, Terms terms, C* sums) {
  const int64_t run = static_cast<int64_t>(blockIdx.x) * (kSumThreads / 32) + threadIdx.x / 32, c = run % s.channels;
  if (run >= s.outer * s.channels) return;
  C first = 0, second = 0;
  for (int64_t i = threadIdx.x % 32; i < s.inner; i += 32) terms(run * s.inner + i, c, first, second);
  first = all_reduce<32>(first, AddOp<C>{});
  second = all_reduce<32>(second, AddOp<C>{});
  if (threadIdx.x % 32) return;
  sums[run] = first;
  sums[s.parts * s.channels + run] = second;
}

// Channels side by side.
template <class C, class Terms>
__global__ void __launch_bounds__(kLanes* kRows) sum_columns(Shape s, Terms terms, C* sums) {
  __shared__ C shared[2][kRows][kLanes];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  C first = 0, second = 0;
  if (c < s.channels)
    for (int64_t r = blockIdx.y * kRows + threadIdx.y; r < s.outer; r += s.parts * kRows)
      terms(r * s.channels + c, c, first, second);
  shared[0][threadIdx.y][threadIdx.x] = first;
  shared[1][threadIdx.y][threadIdx.x] = second;
  __syncthreads();
  if (threadIdx.y || c >= s.channels) return;
  for (int r = 1; r < kRows; ++r) {
    first += shared[0][r][threadIdx.x];
    second += shared[1][r][threadIdx.x];
  }
  sums[blockIdx.y * s.channels + c] = first;
  sums[(s.parts + blockIdx.y) * s.channels + c] = second;
}

inline void choose_parts(Shape& s, int device) {
  const int64_t wanted = 8 * properties(device).multiProcessorCount;
  if (s.inner == 1) {
    s.parts = std::clamp<int64_t>(std::min(wanted * kLanes / s.channels, s.outer / (kRows * 4)), 1, 1024);
  } else {
    if (s.inner > 512)
      s.cuts = std::clamp<int64_t>(std::min(wanted / (s.outer * s.channels), s.inner / (kSumThreads * 8)), 1, 256);
    s.parts = s.outer * s.cuts;
  }
}

template <class C, class Terms>
void channel_sums(const Shape& s, const Terms& terms, C* sums, int device) {
  const cudaStream_t stream = current_stream(device);
  if (s.inner == 1) {
    sum_columns<<<dim3(blocks_for(s.channels, kLanes), static_cast<unsigned>(s.parts)), dim3(kLanes, kRows), 0,
                  stream>>>(s, terms, sums);
  } else if (s.inner <= 512) {
    sum_short_runs<<<blocks_for(s.outer * s.channels, kSumThreads / 32), kSumThreads, 0, stream>>>(s, terms, sums);
  } else {
    sum_runs<<<static_cast<unsigned>(s.outer * s.channels * s.cuts), kSumThreads, 0, stream>>>(s, terms, sums);
  }
  MICA_CUDA(cudaGetLastError());
}

// body(channel, first, second) with the sums of all parts: a column of a block's threads for each channel, so that a
// warp reads neighbouring channels.
template <class C, class Body>
__global__ void __launch_bounds__(kLanes* kRows) finish_kernel(Shape s, const C* sums, Body body) {
  __shared__ double shared[2][kRows][kLanes];
  wait_for_predecessors();
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  double first = 0, second = 0;
  if (c < s.channels) {
#pragma unroll 4
    for (int64_t p = threadIdx.y; p < s.parts; p += kRows) {
      first += static_cast<double>(sums[p * s.channels + c]);
      second += static_cast<double>(sums[(s.parts + p) * s.channels + c]);
    }
  }
  shared[0][threadIdx.y][threadIdx.x] = first;
  shared[1][threadIdx.y][threadIdx.x] = second;
  __syncthreads();
  if (threadIdx.y || c >= s.channels) return;
  for (int r = 1; r < kRows; ++r) {
    first += shared[0][r][threadIdx.x];
    second += shared[1][r][threadIdx.x];
  }
  body(c, first, second);
}
template <class C, class Body>
void finish(const Shape& s, const C* sums, const Body& body, int device) {
  launch<finish_kernel<C, Body>>(device, blocks_for(s.channels, kLanes), dim3(kLanes, kRows), s, sums, body);
}

// Walks over all elements, in vectors of one run or of neighbouring channels where shapes allow it: f(loads and stores
// element i of channel c).
template <int V, class F>
__global__ void __launch_bounds__(kThreads) apply_kernel(int64_t vectors, Shape s, F f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t v = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; v < vectors; v += step) {
    const int64_t i = v * V;
    int64_t c;
    if (i >> 32 == 0) {
      c = static_cast<uint32_t>(i) / static_cast<uint32_t>(s.inner) % static_cast<uint32_t>(s.channels);
    } else {
      c = i / s.inner % s.channels;
    }
    f.template run<V>(i, c, s.inner == 1);
  }
}
template <class T, class F>
void apply(const Shape& s, const F& f, bool aligned, int device) {
  const int64_t n = s.outer * s.channels * s.inner;
  constexpr int V = kVector<T>;
  const bool wide = aligned && (s.inner == 1 ? s.channels % V == 0 : s.inner % V == 0);
  const int64_t vectors = wide ? n / V : n;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((vectors + kThreads - 1) / kThreads, 1 << 20));
  if (wide) {
    apply_kernel<V><<<blocks, kThreads, 0, current_stream(device)>>>(vectors, s, f);
  } else {
    apply_kernel<1><<<blocks, kThreads, 0, current_stream(device)>>>(vectors, s, f);
  }
  MICA_CUDA(cudaGetLastError());
}

inline bool aligned16(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* p : pointers) bits |= reinterpret_cast<uintptr_t>(p);
  return bits % 16 == 0;
}

}  // namespace mica::cuda
