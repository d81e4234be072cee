// Images of which each pixel of a small one stands for a block of pixels of a large one, all blocks of one size:
// windows of a pooling that neither overlap nor leave pixels out, and magnification by whole factors. A block's sum,
// and a pixel that is written to all of its block.
#pragma once

#include "backends/cuda/pooling/volume.cuh"

namespace mica::cuda {

struct Blocks {
  Divider high, wide;            // the size of a block
  Divider small_row, large_row;  // pixels in a row
  Divider inner;                 // numbers of a pixel that lie side by side: channels, or one
  Divider vectors;               // vectors in what a vector lies along: a row of the large image, or a pixel's channels
  uint32_t small_count, large_count;
};

// The blocks of two volumes; none where they do not fit, or where positions need more than 31 bits.
inline std::unique_ptr<Blocks> blocks_of(const Volume& small, const Volume& large, int64_t planes) {
  const int64_t all = planes * large.places();
  if (small.size[0] != large.size[0] || all >= INT32_MAX || small.size[1] == 0 || small.size[2] == 0) return nullptr;
  if (large.size[1] % small.size[1] || large.size[2] % small.size[2]) return nullptr;
  const auto divider = [](int64_t n) { return Divider(static_cast<uint32_t>(n)); };
  auto b = std::make_unique<Blocks>();
  b->high = divider(large.size[1] / small.size[1]);
  b->wide = divider(large.size[2] / small.size[2]);
  b->small_row = divider(small.size[2]);
  b->large_row = divider(large.size[2]);
  b->inner = divider(large.channels_last ? large.channels : 1);
  b->small_count = static_cast<uint32_t>(planes * small.places());
  b->large_count = static_cast<uint32_t>(all);
  return b;
}

// Each element of the small image becomes the sum of its block, divided by `divisor`.
template <class T>
struct SumBlocks {
  Blocks b;
  const T* large;
  T* small;
  compute_t<T> divisor;
  __device__ void operator()(int64_t i) const {
    using C = compute_t<T>;
    const auto at = static_cast<uint32_t>(i);
    const uint32_t pixel = b.inner.divide(at), k = at - pixel * b.inner.divisor;
    const uint32_t row = b.small_row.divide(pixel), x = pixel - row * b.small_row.divisor;
    C sum = 0;
    for (uint32_t dy = 0; dy < b.high.divisor; ++dy) {
      const uint32_t from =
          ((row * b.high.divisor + dy) * b.large_row.divisor + x * b.wide.divisor) * b.inner.divisor + k;
      for (uint32_t dx = 0; dx < b.wide.divisor; ++dx) sum += convert<C>(large[from + dx * b.inner.divisor]);
    }
    small[i] = convert<T>(sum / divisor);
  }
};

// Each element of the large image becomes that of the small one whose block it is in, divided by `divisor`. V elements
// at a time: along a row, or of one pixel's channels.
template <int V, class T>
struct SpreadBlocks {
  Blocks b;
  const T* small;
  T* large;
  compute_t<T> divisor;
  bool divides;
  __device__ T share(T v) const { return divides ? convert<T>(convert<compute_t<T>>(v) / divisor) : v; }
  __device__ void operator()(int64_t i) const {
    const auto v = static_cast<uint32_t>(i);
    const uint32_t line = b.vectors.divide(v), first = (v - line * b.vectors.divisor) * V;
    Vector<T, V> out;
    if (b.inner.divisor == 1) {
      const T* from = small + static_cast<int64_t>(b.high.divide(line)) * b.small_row.divisor;
#pragma unroll
      for (int j = 0; j < V; ++j) out.item[j] = share(from[b.wide.divide(first + j)]);
    } else {
      const uint32_t row = b.large_row.divide(line), x = line - row * b.large_row.divisor;
      const uint32_t pixel = b.high.divide(row) * b.small_row.divisor + b.wide.divide(x);
      out = *reinterpret_cast<const Vector<T, V>*>(small + static_cast<int64_t>(pixel) * b.inner.divisor + first);
#pragma unroll
      for (int j = 0; j < V; ++j) out.item[j] = share(out.item[j]);
    }
    reinterpret_cast<Vector<T, V>*>(large)[i] = out;
  }
};

template <class T>
void sum_blocks(const Blocks& b, const T* large, T* small, double divisor, int device) {
  for_each(device, b.small_count, SumBlocks<T>{b, large, small, static_cast<compute_t<T>>(divisor)});
}

template <class T>
void spread_blocks(const Blocks& blocks, const T* small, T* large, double divisor, int device) {
  constexpr int V = sizeof(T) >= 8 ? 2 : sizeof(T) == 4 ? 4 : 8;
  Blocks b = blocks;
  const uint32_t along = b.inner.divisor == 1 ? b.large_row.divisor : b.inner.divisor;
  const bool aligned = (reinterpret_cast<uintptr_t>(small) | reinterpret_cast<uintptr_t>(large)) % 16 == 0;
  const auto run = [&]<int kWidth>(std::integral_constant<int, kWidth>) {
    b.vectors = Divider(along / kWidth);
    for_each(device, b.large_count / kWidth,
             SpreadBlocks<kWidth, T>{b, small, large, static_cast<compute_t<T>>(divisor), divisor != 1});
  };
  if (aligned && along % V == 0) {
    run(std::integral_constant<int, V>{});
  } else {
    run(std::integral_constant<int, 1>{});
  }
}

}  // namespace mica::cuda
