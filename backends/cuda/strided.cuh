// Pointwise loops over operands of any strides: run_strided<Out, In...>(piece, f) computes out = f(in...). Floats of 16
// and 32 bits share a kernel, which is told what each operand is.
#pragma once

#include <algorithm>
#include <cstring>

#include "backends/cuda/divider.h"
#include "backends/cuda/element.cuh"
#include "backends/cuda/launch.cuh"

namespace mica::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kStridedDims = 12;  // more are run piece by piece
inline constexpr int64_t kPieceElements = int64_t{1} << 30;

template <class T, int kCount>
struct alignas(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Vector {
  T item[kCount];
};

// Where elements of each operand lie.
template <int kOperands>
struct Offsets {
  int ndim;
  Divider sizes[kStridedDims];
  int64_t strides[kStridedDims][kOperands];

  __device__ void at(uint32_t i, int64_t (&offsets)[kOperands]) const {
    int64_t of_one[1][kOperands];
    at(i, 0, i, of_one);
#pragma unroll
    for (int k = 0; k < kOperands; ++k) offsets[k] = of_one[0][k];
  }

  // Of the elements first, first + step, ..., and of `last` in the place of those behind it.
  template <int kElements>
  __device__ void at(uint32_t first, uint32_t step, uint32_t last, int64_t (&offsets)[kElements][kOperands]) const {
    uint32_t i[kElements];
#pragma unroll
    for (int j = 0; j < kElements; ++j) {
      i[j] = min(first + j * step, last);
#pragma unroll
      for (int k = 0; k < kOperands; ++k) offsets[j][k] = 0;
    }
    for (int d = 0; d < ndim; ++d) {
#pragma unroll
      for (int j = 0; j < kElements; ++j) {
        const uint32_t rest = d + 1 < ndim ? sizes[d].divide(i[j]) : 0;
        const uint32_t here = d + 1 < ndim ? i[j] - rest * sizes[d].divisor : i[j];
        i[j] = rest;
#pragma unroll
        for (int k = 0; k < kOperands; ++k) offsets[j][k] += here * strides[d][k];
      }
    }
  }
};

// An input: elements in memory, or a number where `data` is null.
template <class T>
struct Source {
  const char* data;
  T number;

  __device__ T load(int64_t offset) const { return data ? *reinterpret_cast<const T*>(data + offset) : number; }
};

template <class T>
Source<T> source(const PointwiseLoop& loop, int k) {
  Source<T> s{nullptr, T()};
  if (loop.numbers >> k & 1) {
    std::memcpy(static_cast<void*>(&s.number), loop.data[k], sizeof(T));
  } else {
    s.data = loop.data[k];
  }
  return s;
}

inline uint32_t blocks_for(int64_t n, int64_t per_block) {
  return static_cast<uint32_t>((n + per_block - 1) / per_block);
}

// Calls f with parts of the loop that have few enough dimensions and elements; `loop` is as before afterwards.
template <class F>
void for_each_piece(PointwiseLoop& loop, const F& f) {
  if (loop.ndim <= kStridedDims && loop.numel <= kPieceElements) return f(loop);
  // Along the slowest dimension: one index of it at a time, or half of it.
  const int last = loop.ndim - 1;
  const int64_t size = loop.shape[last], numel = loop.numel;
  const int64_t step = loop.ndim > kStridedDims || size == 1 ? 1 : (size + 1) / 2;
  char* start[PointwiseLoop::kMaxOperands];
  std::copy_n(loop.data, loop.noperands, start);
  for (int64_t begin = 0; begin < size; begin += step) {
    const int64_t count = std::min(step, size - begin);
    for (int k = 0; k < loop.noperands; ++k) loop.data[k] = start[k] + begin * loop.strides[last][k];
    loop.numel = numel / size * count;
    loop.shape[last] = count;
    if (count == 1 && last > 0) loop.ndim = last;
    for_each_piece(loop, f);
    loop.ndim = last + 1;
  }
  loop.shape[last] = size;
  loop.numel = numel;
  std::copy_n(start, loop.noperands, loop.data);
}

template <int kOperands>
Offsets<kOperands> offsets_of(const PointwiseLoop& piece) {
  Offsets<kOperands> offsets;
  offsets.ndim = piece.ndim;
  for (int d = 0; d < piece.ndim; ++d) {
    offsets.sizes[d] = Divider(static_cast<uint32_t>(piece.shape[d]));
    for (int k = 0; k < kOperands; ++k) offsets.strides[d][k] = piece.strides[d][k];
  }
  return offsets;
}

// A function that is compiled once and called, where it would be written out for each element of a thread.
template <class F>
struct Called {
  F f;
  template <class... C>
  __device__ __noinline__ auto operator()(C... values) const {
    return f(values...);
  }
};

// Elements of a thread, kThreads apart. All of their loads are on their way before the first is used: nothing else
// hides the time that memory takes.
inline constexpr int kStridedPerThread = 4;
template <int kOperands>
using Places4 = int64_t[kStridedPerThread][kOperands];

template <class T, int kOperands>
__device__ Vector<T, kStridedPerThread> load_elements(const Source<T>& source, const Places4<kOperands>& at, int k) {
  Vector<T, kStridedPerThread> v;
#pragma unroll
  for (int j = 0; j < kStridedPerThread; ++j) v.item[j] = source.load(at[j][k]);
  return v;
}

template <class F, class Out, class... In, size_t... kIndex>
__device__ void strided_elements(uint32_t n, const F& f, const Offsets<1 + sizeof...(In)>& offsets, char* out,
                                 std::index_sequence<kIndex...>, const Source<In>&... in) {
  const uint32_t first = blockIdx.x * (kThreads * kStridedPerThread) + threadIdx.x;
  if (first >= n) return;
  Places4<1 + sizeof...(In)> at;
  offsets.at(first, kThreads, n - 1, at);
  [&](const auto&... values) {
#pragma unroll
    for (int j = 0; j < kStridedPerThread; ++j)
      if (first + j * kThreads < n)
        *reinterpret_cast<Out*>(out + at[j][0]) = convert<Out>(f(convert<compute_t<In>>(values.item[j])...));
  }(load_elements(in, at, static_cast<int>(kIndex) + 1)...);
}

template <class F, class Out, class... In>
__global__ void __launch_bounds__(kThreads)
    strided_kernel(uint32_t n, F f, Offsets<1 + sizeof...(In)> offsets, char* out, Source<In>... in) {
  wait_for_predecessors();
  strided_elements<F, Out, In...>(n, f, offsets, out, std::index_sequence_for<In...>{}, in...);
}

// ---- floats of 16 and 32 bits

enum class FloatKind : int { Single, Half, BFloat };
template <class T>
inline constexpr FloatKind kFloatKind = std::is_same_v<T, float>  ? FloatKind::Single
                                        : std::is_same_v<T, half> ? FloatKind::Half
                                                                  : FloatKind::BFloat;
template <class T>
inline constexpr bool is_short_float_v =
    std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

__device__ inline float float_of(uint16_t bits, FloatKind kind) {
  return kind == FloatKind::Half ? __half2float(__ushort_as_half(bits)) : __uint_as_float(uint32_t{bits} << 16);
}
__device__ inline uint16_t bits_of(float value, FloatKind kind) {
  return kind == FloatKind::Half ? __half_as_ushort(__float2half_rn(value))
                                 : __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

struct FloatSource {
  const char* data;  // null: the number
  float number;
  FloatKind kind;
  __device__ float load(int64_t offset) const {
    if (!data) return number;
    if (kind == FloatKind::Single) return *reinterpret_cast<const float*>(data + offset);
    return float_of(*reinterpret_cast<const uint16_t*>(data + offset), kind);
  }
};
template <int kInputs>
struct FloatSources {
  FloatSource in[kInputs];
};
template <class T>
FloatSource float_source(const PointwiseLoop& loop, int k) {
  const Source<T> s = source<T>(loop, k);
  float number = 0;
  if constexpr (std::is_same_v<T, float>) {
    number = s.number;
  } else if constexpr (std::is_same_v<T, half>) {
    number = __half2float(s.number);
  } else {
    number = __bfloat162float(s.number);
  }
  return {s.data, number, kFloatKind<T>};
}

// f of the j-th values of one, two or three inputs.
template <class F, int kInputs, int kElements>
__device__ float call_with(const F& f, const float (&values)[kInputs][kElements], int j) {
  if constexpr (kInputs == 1) {
    return f(values[0][j]);
  } else if constexpr (kInputs == 2) {
    return f(values[0][j], values[1][j]);
  } else {
    return f(values[0][j], values[1][j], values[2][j]);
  }
}

template <int kOperands>
__device__ void load_elements(const FloatSource& source, const Places4<kOperands>& at, int k,
                              float (&values)[kStridedPerThread]) {
  if (!source.data) {
#pragma unroll
    for (float& value : values) value = source.number;
  } else if (source.kind == FloatKind::Single) {
#pragma unroll
    for (int j = 0; j < kStridedPerThread; ++j) values[j] = *reinterpret_cast<const float*>(source.data + at[j][k]);
  } else {
    uint16_t bits[kStridedPerThread];
#pragma unroll
    for (int j = 0; j < kStridedPerThread; ++j) bits[j] = *reinterpret_cast<const uint16_t*>(source.data + at[j][k]);
#pragma unroll
    for (int j = 0; j < kStridedPerThread; ++j) values[j] = float_of(bits[j], source.kind);
  }
}

template <class F, int kInputs>
__global__ void __launch_bounds__(kThreads)
    strided_floats_kernel(uint32_t n, F f, Offsets<1 + kInputs> offsets, FloatKind kind, char* out,
                          FloatSources<kInputs> from) {
  wait_for_predecessors();
  const uint32_t first = blockIdx.x * (kThreads * kStridedPerThread) + threadIdx.x;
  if (first >= n) return;
  Places4<1 + kInputs> at;
  offsets.at(first, kThreads, n - 1, at);
  float values[kInputs][kStridedPerThread];
#pragma unroll
  for (int k = 0; k < kInputs; ++k) load_elements(from.in[k], at, k + 1, values[k]);
#pragma unroll
  for (int j = 0; j < kStridedPerThread; ++j) {
    const float result = call_with(f, values, j);
    if (first + j * kThreads >= n) return;
    char* to = out + at[j][0];
    if (kind == FloatKind::Single) {
      *reinterpret_cast<float*>(to) = result;
    } else {
      *reinterpret_cast<uint16_t*>(to) = bits_of(result, kind);
    }
  }
}

template <class Out, class... In, class F, size_t... kIndex>
void run_strided(const PointwiseLoop& piece, const F& f, std::index_sequence<kIndex...>) {
  constexpr int kInputs = sizeof...(In);
  const int device = piece.device.index();
  const uint32_t blocks = blocks_for(piece.numel, kThreads * kStridedPerThread);
  const auto n = static_cast<uint32_t>(piece.numel);
  if constexpr (kInputs >= 1 && kInputs <= 3 && is_short_float_v<Out> && (is_short_float_v<In> && ...)) {
    const FloatSources<kInputs> from{{float_source<In>(piece, static_cast<int>(kIndex) + 1)...}};
    launch<strided_floats_kernel<F, kInputs>>(device, blocks, kThreads, n, f, offsets_of<1 + kInputs>(piece),
                                              kFloatKind<Out>, piece.data[0], from);
  } else {
    launch<strided_kernel<F, Out, In...>>(device, blocks, kThreads, n, f, offsets_of<1 + kInputs>(piece), piece.data[0],
                                          source<In>(piece, static_cast<int>(kIndex) + 1)...);
  }
}

}  // namespace mica::cuda
