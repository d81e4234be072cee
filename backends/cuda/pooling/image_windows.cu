// One thread for each output, for two neighbours, or for each vector of channels of one: its taps are known to the
// compiler, so that all of them are loaded before the first is used, and positions are numbers of 32 bits that are
// divided by multiplying.
#include "backends/cuda/pooling/image_windows.h"

#include "backends/cuda/places.cuh"
#include "backends/cuda/reduce/limits.cuh"

namespace mica::cuda {

namespace {

struct Image {
  int height, width;  // of the input
  int out_h, out_w;   // of the output
  int stride_h, stride_w;
  int pad_h, pad_w;
  int channels;     // in vectors; 1 where planes are contiguous
  int64_t vectors;  // of the output
  Divider by_channels, by_width, by_height;
};

// kTaps x kTaps elements, V planes at a time. The largest, the first of equal ones, the last NaN.
template <int kTaps, int V, class T, class I>
__global__ void __launch_bounds__(kThreads) window_maximum(Image s, const T* in, T* out, I* indices) {
  wait_for_predecessors();
  using C = compute_t<T>;
  const auto i = static_cast<uint32_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.vectors) return;
  const uint32_t pixel = V == 1 && s.channels == 1 ? i : s.by_channels.divide(i);
  const uint32_t c = i - pixel * static_cast<uint32_t>(s.channels);
  const uint32_t line = s.by_width.divide(pixel), plane = s.by_height.divide(line);
  const int y0 = static_cast<int>(line - plane * static_cast<uint32_t>(s.out_h)) * s.stride_h - s.pad_h;
  const int x0 = static_cast<int>(pixel - line * static_cast<uint32_t>(s.out_w)) * s.stride_w - s.pad_w;
  const auto* from =
      reinterpret_cast<const Vector<T, V>*>(in) + static_cast<int64_t>(plane) * s.height * s.width * s.channels + c;
  Vector<T, V> taps[kTaps][kTaps];
#pragma unroll
  for (int y = 0; y < kTaps; ++y)
#pragma unroll
    for (int x = 0; x < kTaps; ++x)
      if (static_cast<unsigned>(y0 + y) < static_cast<unsigned>(s.height) &&
          static_cast<unsigned>(x0 + x) < static_cast<unsigned>(s.width))
        taps[y][x] = from[static_cast<int64_t>((y0 + y) * s.width + x0 + x) * s.channels];
  C highest[V];
  int best[V];
  const int first = (y0 > 0 ? y0 : 0) * s.width + (x0 > 0 ? x0 : 0);
#pragma unroll
  for (int j = 0; j < V; ++j) {
    highest[j] = lowest<C>();
    best[j] = first;
  }
#pragma unroll
  for (int y = 0; y < kTaps; ++y)
#pragma unroll
    for (int x = 0; x < kTaps; ++x)
      if (static_cast<unsigned>(y0 + y) < static_cast<unsigned>(s.height) &&
          static_cast<unsigned>(x0 + x) < static_cast<unsigned>(s.width)) {
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C v = convert<C>(taps[y][x].item[j]);
          if (v > highest[j] || v != v) {
            highest[j] = v;
            best[j] = (y0 + y) * s.width + x0 + x;
          }
        }
      }
  Vector<T, V> result;
#pragma unroll
  for (int j = 0; j < V; ++j) result.item[j] = convert<T>(highest[j]);
  reinterpret_cast<Vector<T, V>*>(out)[i] = result;
  if constexpr (!std::is_void_v<I>) {
    constexpr int kPart = V * sizeof(I) > 16 ? static_cast<int>(16 / sizeof(I)) : V;
#pragma unroll
    for (int part = 0; part < V / kPart; ++part) {
      Vector<I, kPart> where;
#pragma unroll
      for (int j = 0; j < kPart; ++j) where.item[j] = best[part * kPart + j];
      reinterpret_cast<Vector<I, kPart>*>(indices)[static_cast<int64_t>(i) * (V / kPart) + part] = where;
    }
  }
}

// Two neighbours of a row of the output from planes whose rows are whole vectors of four: windows of 2, or of 3 with
// one column of padding, two apart. Their columns are one vector, and for windows of 3 the element before it.
template <int kTaps, class T, class I>
__global__ void __launch_bounds__(kThreads) window_maximum_pairs(Image s, const T* in, T* out, I* indices) {
  wait_for_predecessors();
  using C = compute_t<T>;
  constexpr bool kHasLeft = kTaps == 3;
  const auto i = static_cast<uint32_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= s.vectors) return;
  const uint32_t line = s.by_width.divide(i), plane = s.by_height.divide(line);
  const int x = static_cast<int>(i - line * static_cast<uint32_t>(s.out_w / 2)) * 4;
  const int y0 = static_cast<int>(line - plane * static_cast<uint32_t>(s.out_h)) * 2 - s.pad_h;
  const T* from = in + static_cast<int64_t>(plane) * s.height * s.width + x;
  Vector<T, 4> taps[kTaps];
  T left[kTaps];
#pragma unroll
  for (int y = 0; y < kTaps; ++y)
    if (static_cast<unsigned>(y0 + y) < static_cast<unsigned>(s.height)) {
      const T* row = from + static_cast<int64_t>(y0 + y) * s.width;
      taps[y] = *reinterpret_cast<const Vector<T, 4>*>(row);
      if (kHasLeft && x > 0) left[y] = row[-1];
    }
  C highest[2] = {lowest<C>(), lowest<C>()};
  const int top = (y0 > 0 ? y0 : 0) * s.width + x;
  int best[2] = {top - (kHasLeft && x > 0), top + (kHasLeft ? 1 : 2)};
  auto look = [&](int which, T element, int at) {
    const C v = convert<C>(element);
    if (v > highest[which] || v != v) highest[which] = v, best[which] = at;
  };
#pragma unroll
  for (int y = 0; y < kTaps; ++y)
    if (static_cast<unsigned>(y0 + y) < static_cast<unsigned>(s.height)) {
      const int at = (y0 + y) * s.width + x;
      if (kHasLeft && x > 0) look(0, left[y], at - 1);
      look(0, taps[y].item[0], at);
      look(0, taps[y].item[1], at + 1);
      if (kHasLeft) look(1, taps[y].item[1], at + 1);
      look(1, taps[y].item[2], at + 2);
      look(1, taps[y].item[3], at + 3);
    }
  Vector<T, 2> result;
  result.item[0] = convert<T>(highest[0]);
  result.item[1] = convert<T>(highest[1]);
  reinterpret_cast<Vector<T, 2>*>(out)[i] = result;
  if constexpr (!std::is_void_v<I>) {
    Vector<I, 2> where;
    where.item[0] = best[0];
    where.item[1] = best[1];
    reinterpret_cast<Vector<I, 2>*>(indices)[i] = where;
  }
}

// Calls run with the place for indices in the type that it has.
template <class Run>
void visit_indices(const TensorView& indices, const Run& run) {
  if (!indices.defined()) {
    run(static_cast<void*>(nullptr));
  } else if (indices.dtype == DType::Int64) {
    run(indices.ptr<int64_t>());
  } else {
    run(indices.ptr<int32_t>());
  }
}

template <int kTaps, class T>
void launch_pairs(const Image& s, const TensorView& out, const TensorView& indices, const TensorView& self) {
  visit_indices(indices, [&]<class I>(I* to) {
    launch<window_maximum_pairs<kTaps, T, I>>(out.device.index(), blocks_for(s.vectors, kThreads), kThreads, s,
                                              self.ptr<const T>(), out.ptr<T>(), to);
  });
}

template <int kTaps, int V, class T>
void launch_windows(const Image& s, const TensorView& out, const TensorView& indices, const TensorView& self) {
  visit_indices(indices, [&]<class I>(I* to) {
    launch<window_maximum<kTaps, V, T, I>>(out.device.index(), blocks_for(s.vectors, kThreads), kThreads, s,
                                           self.ptr<const T>(), out.ptr<T>(), to);
  });
}

template <class T>
void run_windows(Image s, int taps, const TensorView& out, const TensorView& indices, const TensorView& self,
                 bool channels_last) {
  constexpr int V = static_cast<int>(16 / sizeof(T));
  uintptr_t bits = reinterpret_cast<uintptr_t>(out.data) | reinterpret_cast<uintptr_t>(self.data);
  if (indices.defined()) bits |= reinterpret_cast<uintptr_t>(indices.data);
  s.by_width = Divider(static_cast<uint32_t>(s.out_w));
  s.by_height = Divider(static_cast<uint32_t>(s.out_h));
  if (channels_last && s.channels % V == 0 && bits % 16 == 0) {
    s.channels /= V;
    s.vectors = out.numel / V;
    s.by_channels = Divider(static_cast<uint32_t>(s.channels));
    return taps == 2 ? launch_windows<2, V, T>(s, out, indices, self) : launch_windows<3, V, T>(s, out, indices, self);
  }
  if (!channels_last) s.channels = 1;
  const int padding = taps == 3 ? 1 : 0;
  if (s.channels == 1 && s.stride_h == 2 && s.stride_w == 2 && s.pad_h == padding && s.pad_w == padding &&
      s.width % 4 == 0 && s.out_w * 2 == s.width && bits % 16 == 0) {
    s.vectors = out.numel / 2;
    s.by_width = Divider(static_cast<uint32_t>(s.out_w / 2));
    return taps == 2 ? launch_pairs<2, T>(s, out, indices, self) : launch_pairs<3, T>(s, out, indices, self);
  }
  s.vectors = out.numel;
  s.by_channels = Divider(static_cast<uint32_t>(s.channels));
  taps == 2 ? launch_windows<2, 1, T>(s, out, indices, self) : launch_windows<3, 1, T>(s, out, indices, self);
}

}  // namespace

bool max_pool_images(const TensorView& out, const TensorView& indices, const TensorView& self, IntArrayRef kernel,
                     IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool channels_last) {
  const bool square = kernel[0] == 1 && kernel[1] == kernel[2] && (kernel[1] == 2 || kernel[1] == 3);
  const bool flat = self.sizes[2] == 1 && out.sizes[2] == 1 && padding[0] == 0;
  const bool dense = dilation.empty() || (dilation[1] == 1 && dilation[2] == 1);
  constexpr int64_t kMost = int64_t{1} << 31;
  const bool narrow = out.numel < kMost && self.sizes[3] * self.sizes[4] < kMost &&
                      self.sizes[3] + stride[1] * 4 < (1 << 30) && self.sizes[4] + stride[2] * 4 < (1 << 30) &&
                      out.sizes[3] * stride[1] < kMost / 2 && out.sizes[4] * stride[2] < kMost / 2;
  if (!square || !flat || !dense || !narrow) return false;
  const Image s{static_cast<int>(self.sizes[3]),
                static_cast<int>(self.sizes[4]),
                static_cast<int>(out.sizes[3]),
                static_cast<int>(out.sizes[4]),
                static_cast<int>(stride[1]),
                static_cast<int>(stride[2]),
                static_cast<int>(padding[1]),
                static_cast<int>(padding[2]),
                static_cast<int>(self.sizes[1]),
                0,
                {},
                {},
                {}};
  const auto taps = static_cast<int>(kernel[1]);
  switch (self.dtype) {
    case DType::Float32:
      run_windows<float>(s, taps, out, indices, self, channels_last);
      return true;
    case DType::Float16:
      run_windows<half>(s, taps, out, indices, self, channels_last);
      return true;
    case DType::BFloat16:
      run_windows<bfloat16>(s, taps, out, indices, self, channels_last);
      return true;
    default:
      return false;
  }
}

}  // namespace mica::cuda
