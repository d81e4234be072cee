// Copies between planes and pixels of two to four channels, as images have them: [channels, places] to [places,
// channels] and back. A thread turns 16 bytes of each plane in its registers.
#pragma once

#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

struct PixelCopy {
  int channels;
  bool to_pixels;
  int64_t places, batch;
  const char* from;
  char* to;
  int64_t plane_pitch;           // bytes from one plane to the next
  int64_t from_pitch, to_pitch;  // bytes from one image to the next
};

template <class T, int kChannels, bool kToPixels>
__global__ void __launch_bounds__(kThreads) pixel_kernel(PixelCopy c) {
  constexpr int V = static_cast<int>(16 / sizeof(T));
  using Piece = Vector<T, V>;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i * V >= c.places) return;
  const char* from = c.from + blockIdx.y * c.from_pitch;
  char* to = c.to + blockIdx.y * c.to_pitch;
  Piece in[kChannels], out[kChannels];
#pragma unroll
  for (int k = 0; k < kChannels; ++k)
    in[k] = kToPixels ? reinterpret_cast<const Piece*>(from + k * c.plane_pitch)[i]
                      : reinterpret_cast<const Piece*>(from)[i * kChannels + k];
#pragma unroll
  for (int k = 0; k < kChannels; ++k)
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int pixel = j * kChannels + k;  // where element j of plane k stands among the pixels
      if constexpr (kToPixels) {
        out[pixel / V].item[pixel % V] = in[k].item[j];
      } else {
        out[k].item[j] = in[pixel / V].item[pixel % V];
      }
    }
#pragma unroll
  for (int k = 0; k < kChannels; ++k) {
    if constexpr (kToPixels) {
      reinterpret_cast<Piece*>(to)[i * kChannels + k] = out[k];
    } else {
      reinterpret_cast<Piece*>(to + k * c.plane_pitch)[i] = out[k];
    }
  }
}

// Whether a copy is one of these; dimensions come fastest in the output first.
inline bool as_pixel_copy(const PointwiseLoop& loop, int64_t size, PixelCopy& c) {
  if (size > 8 || (loop.ndim != 2 && loop.ndim != 3) || (loop.ndim == 3 && loop.shape[2] >= 65536)) return false;
  const bool to_pixels = loop.shape[0] <= 4;
  const int across = to_pixels ? 0 : 1, along = 1 - across;  // the dimensions of channels and of places
  const int planes = to_pixels ? 1 : 0;                      // the operand that is planes: the input is 1
  const int64_t channels = loop.shape[across];
  if (channels < 2 || channels > 4 || loop.shape[along] * size % 16) return false;
  if (loop.strides[across][1 - planes] != size || loop.strides[along][1 - planes] != channels * size ||
      loop.strides[along][planes] != size)
    return false;
  const bool batched = loop.ndim == 3;
  c = {static_cast<int>(channels),
       to_pixels,
       loop.shape[along],
       batched ? loop.shape[2] : 1,
       loop.data[1],
       loop.data[0],
       loop.strides[across][planes],
       batched ? loop.strides[2][1] : 0,
       batched ? loop.strides[2][0] : 0};
  const auto bits = reinterpret_cast<uintptr_t>(c.from) | reinterpret_cast<uintptr_t>(c.to) |
                    static_cast<uintptr_t>(c.plane_pitch | c.from_pitch | c.to_pitch);
  return bits % 16 == 0;
}

template <class T>
void copy_pixels(const PixelCopy& c, cudaStream_t stream) {
  if constexpr (sizeof(T) <= 8) {
    const dim3 blocks(blocks_for(c.places, int64_t{kThreads} * static_cast<int64_t>(16 / sizeof(T))),
                      static_cast<unsigned>(c.batch));
    auto launch = [&]<int kChannels>(std::integral_constant<int, kChannels>) {
      if (c.to_pixels) {
        pixel_kernel<T, kChannels, true><<<blocks, kThreads, 0, stream>>>(c);
      } else {
        pixel_kernel<T, kChannels, false><<<blocks, kThreads, 0, stream>>>(c);
      }
    };
    if (c.channels == 2) launch(std::integral_constant<int, 2>{});
    if (c.channels == 3) launch(std::integral_constant<int, 3>{});
    if (c.channels == 4) launch(std::integral_constant<int, 4>{});
    MICA_CUDA(cudaGetLastError());
  }
}

}  // namespace mica::cuda
