// Runs a functor over a PointwiseLoop: run_pointwise<Out, In...>(loop, f) computes out = f(in...) element by element.
// Where all operands are contiguous, 16 bytes at a time; else through strides.
#pragma once

#include "backends/cuda/strided.cuh"

namespace mica::cuda {

template <int kCount, class T>
__device__ Vector<T, kCount> load_vector(const Source<T>& source, int64_t i) {
  if (source.data) return reinterpret_cast<const Vector<T, kCount>*>(source.data)[i];
  Vector<T, kCount> v;
#pragma unroll
  for (int j = 0; j < kCount; ++j) v.item[j] = source.number;
  return v;
}

template <int kCount, class F, class Out, class... In>
__global__ void __launch_bounds__(kThreads) flat_kernel(int64_t n, F f, Out* out, Source<In>... in) {
  wait_for_predecessors();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t first = i * kCount;
  if (first + kCount <= n) {
    Vector<Out, kCount> result;
    [&](const auto&... values) {
#pragma unroll
      for (int j = 0; j < kCount; ++j) result.item[j] = convert<Out>(f(convert<compute_t<In>>(values.item[j])...));
    }(load_vector<kCount>(in, i)...);
    reinterpret_cast<Vector<Out, kCount>*>(out)[i] = result;
  } else {
#pragma unroll 1
    for (int64_t at = first; at < n; ++at)
      out[at] = convert<Out>(f(convert<compute_t<In>>(in.load(at * static_cast<int64_t>(sizeof(In))))...));
  }
}

// Rows of vectors: along the fastest dimension each operand is dense or one element, as the bits of `dense` say. This
// is what broadcast rows and columns and slices of rows look like.
template <int kCount, class T>
__device__ Vector<T, kCount> load_row(const Source<T>& source, int64_t offset, bool dense) {
  if (dense) return *reinterpret_cast<const Vector<T, kCount>*>(source.data + offset);
  const T one = source.load(offset);
  Vector<T, kCount> v;
#pragma unroll
  for (int j = 0; j < kCount; ++j) v.item[j] = one;
  return v;
}

template <int kCount, class F, class Out, class... In, size_t... kIndex>
__device__ void row_vector(const F& f, char* out, const int64_t* at, uint32_t dense, std::index_sequence<kIndex...>,
                           const Source<In>&... in) {
  Vector<Out, kCount> result;
  [&](const auto&... values) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) result.item[j] = convert<Out>(f(convert<compute_t<In>>(values.item[j])...));
  }(load_row<kCount>(in, at[kIndex + 1], dense >> (kIndex + 1) & 1)...);
  *reinterpret_cast<Vector<Out, kCount>*>(out + at[0]) = result;
}

template <int kCount, class F, class Out, class... In>
__global__ void __launch_bounds__(kThreads)
    row_kernel(uint32_t vectors, F f, Offsets<1 + sizeof...(In)> offsets, uint32_t dense, char* out, Source<In>... in) {
  wait_for_predecessors();
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= vectors) return;
  int64_t at[1 + sizeof...(In)];
  offsets.at(i, at);
  row_vector<kCount, F, Out, In...>(f, out, at, dense, std::index_sequence_for<In...>{}, in...);
}

// Whether operand k can be read in 16-byte pieces from one end to the other.
inline bool is_flat(const PointwiseLoop& loop, int k, size_t size, int per_thread) {
  if (loop.numbers >> k & 1) return true;
  const size_t alignment = std::min<size_t>(16, size * static_cast<size_t>(per_thread));
  return loop.strides[0][k] == static_cast<int64_t>(size) && reinterpret_cast<uintptr_t>(loop.data[k]) % alignment == 0;
}

// Whether operand k is dense along the fastest dimension, in vectors, or one element there; adds its bit to `dense`.
inline bool is_row(const PointwiseLoop& loop, int k, size_t size, int per_thread, uint32_t& dense) {
  if (loop.numbers >> k & 1 || loop.strides[0][k] == 0) return k > 0;
  const int64_t unit = static_cast<int64_t>(size) * per_thread;
  if (loop.strides[0][k] != static_cast<int64_t>(size) || reinterpret_cast<uintptr_t>(loop.data[k]) % unit)
    return false;
  for (int d = 1; d < loop.ndim; ++d)
    if (loop.strides[d][k] % unit) return false;
  dense |= 1u << k;
  return true;
}

// False where the loop is no rows of vectors.
template <int kCount, class Out, class... In, class F, size_t... kIndex>
bool run_rows(const PointwiseLoop& loop, const F& f, std::index_sequence<kIndex...> index) {
  if (kCount == 1 || loop.shape[0] % kCount || loop.ndim > kStridedDims || loop.numel > kPieceElements) return false;
  uint32_t dense = 0;
  if (!is_row(loop, 0, sizeof(Out), kCount, dense)) return false;
  if (!(is_row(loop, static_cast<int>(kIndex) + 1, sizeof(In), kCount, dense) && ...)) return false;
  Offsets<1 + sizeof...(In)> offsets = offsets_of<1 + sizeof...(In)>(loop);
  offsets.sizes[0] = Divider(static_cast<uint32_t>(loop.shape[0] / kCount));
  for (size_t k = 0; k < 1 + sizeof...(In); ++k) offsets.strides[0][k] *= kCount;
  const int64_t vectors = loop.numel / kCount;
  launch<row_kernel<kCount, F, Out, In...>>(loop.device.index(), blocks_for(vectors, kThreads), kThreads,
                                            static_cast<uint32_t>(vectors), f, offsets, dense, loop.data[0],
                                            source<In>(loop, static_cast<int>(kIndex) + 1)...);
  return true;
}

// The loops that a dtype has beside the one for any strides. Each of them is compiled for every function, so rare
// dtypes have none for rows of vectors (which is for broadcasting, and so for several operands). Unsigned integers of
// several bytes, and elements of 8 bytes and more except int64, have none for whole vectors. Elements that are only
// moved have all of them (kMoved).
template <class T>
inline constexpr bool has_row_loop_v =
    std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16> || std::is_same_v<T, bool> ||
    std::is_same_v<T, uint8_t>;
template <class T>
inline constexpr bool has_flat_loop_v = has_row_loop_v<T> || std::is_same_v<T, int8_t> || std::is_same_v<T, int16_t> ||
                                        std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>;

// Elements that a thread takes side by side: 16 bytes of the widest operand.
template <class... T>
inline constexpr int kVectorCount = static_cast<int>(16 / std::max({sizeof(T)...}));

template <bool kMoved, class Out, class... In, class F, size_t... kIndex>
void run_pointwise_indexed(const PointwiseLoop& loop, const F& f, std::index_sequence<kIndex...> index) {
  if (loop.numel == 0) return;
  DeviceGuard guard(loop.device.index());
  constexpr int kCount = kVectorCount<Out, In...>;
  if constexpr (kMoved || (has_flat_loop_v<In> && ...)) {
    if (loop.ndim == 1 && is_flat(loop, 0, sizeof(Out), kCount) &&
        (is_flat(loop, static_cast<int>(kIndex) + 1, sizeof(In), kCount) && ...)) {
      return launch<flat_kernel<kCount, F, Out, In...>>(
          loop.device.index(), blocks_for(loop.numel, int64_t{kThreads} * kCount), kThreads, loop.numel, f,
          reinterpret_cast<Out*>(loop.data[0]), source<In>(loop, static_cast<int>(kIndex) + 1)...);
    }
  }
  if constexpr (kMoved || (sizeof...(In) > 1 && (has_row_loop_v<In> || ...))) {
    if (run_rows<std::min(kCount, 8), Out, In...>(loop, f, index)) return;  // many rows are of 8, few of 16
  }
  PointwiseLoop whole = loop;
  for_each_piece(whole, [&](const PointwiseLoop& piece) { run_strided<Out, In...>(piece, f, index); });
}

template <class Out, class... In, class F>
void run_pointwise(const PointwiseLoop& loop, const F& f) {
  run_pointwise_indexed<false, Out, In...>(loop, f, std::index_sequence_for<In...>{});
}
template <class Out, class... In, class F>
void run_moved(const PointwiseLoop& loop, const F& f) {
  run_pointwise_indexed<true, Out, In...>(loop, f, std::index_sequence_for<In...>{});
}

}  // namespace mica::cuda
