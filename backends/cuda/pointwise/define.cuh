// Short ways to define a pointwise kernel of one, two or three operands. Functors see values of the type that an
// element is computed in. A kernel that is called rarely has a loop for any strides, in which its function is compiled
// once and called, and one for dense operands: floats of 16 and 32 bits share it, and elements of one and two bytes
// have it.
#pragma once

#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

inline constexpr int kFlatFloats = 8;  // floats of a thread, side by side

__device__ inline void load_floats(const FloatSource& source, int64_t first, float (&values)[kFlatFloats]) {
  if (!source.data) {
#pragma unroll
    for (float& value : values) value = source.number;
  } else if (source.kind == FloatKind::Single) {
    const auto* from = reinterpret_cast<const Vector<float, 4>*>(source.data) + first / 4;
    const Vector<float, 4> halves[2] = {from[0], from[1]};
#pragma unroll
    for (int j = 0; j < kFlatFloats; ++j) values[j] = halves[j / 4].item[j % 4];
  } else {
    const auto bits = reinterpret_cast<const Vector<uint16_t, kFlatFloats>*>(source.data)[first / kFlatFloats];
#pragma unroll
    for (int j = 0; j < kFlatFloats; ++j) values[j] = float_of(bits.item[j], source.kind);
  }
}

// Dense operands of 16- and 32-bit floats, as strided_floats_kernel does those of any strides.
template <class F, int kInputs>
__global__ void __launch_bounds__(kThreads)
    flat_floats_kernel(int64_t n, F f, FloatKind kind, char* out, FloatSources<kInputs> from) {
  wait_for_predecessors();
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kFlatFloats;
  float values[kInputs][kFlatFloats];
  if (first + kFlatFloats <= n) {
#pragma unroll
    for (int k = 0; k < kInputs; ++k) load_floats(from.in[k], first, values[k]);
    float results[kFlatFloats];
#pragma unroll
    for (int j = 0; j < kFlatFloats; ++j) results[j] = call_with(f, values, j);
    if (kind == FloatKind::Single) {
      auto* to = reinterpret_cast<Vector<float, 4>*>(out) + first / 4;
#pragma unroll
      for (int j = 0; j < kFlatFloats; j += 4)
        to[j / 4] = {{results[j], results[j + 1], results[j + 2], results[j + 3]}};
    } else {
      Vector<uint16_t, kFlatFloats> bits;
#pragma unroll
      for (int j = 0; j < kFlatFloats; ++j) bits.item[j] = bits_of(results[j], kind);
      reinterpret_cast<Vector<uint16_t, kFlatFloats>*>(out)[first / kFlatFloats] = bits;
    }
    return;
  }
#pragma unroll 1
  for (int64_t at = first; at < n; ++at) {
#pragma unroll
    for (int k = 0; k < kInputs; ++k)
      values[k][0] = from.in[k].load(at * (from.in[k].kind == FloatKind::Single ? 4 : 2));
    const float result = call_with(f, values, 0);
    if (kind == FloatKind::Single) {
      reinterpret_cast<float*>(out)[at] = result;
    } else {
      reinterpret_cast<uint16_t*>(out)[at] = bits_of(result, kind);
    }
  }
}

// False where the operands are not dense, or of elements that have no such loop.
template <class Out, class... In, class F, size_t... kIndex>
bool run_rare_flat(const PointwiseLoop& loop, const F& f, std::index_sequence<kIndex...>) {
  constexpr int kInputs = sizeof...(In);
  constexpr bool kFloats = kInputs >= 1 && kInputs <= 3 && is_short_float_v<Out> && (is_short_float_v<In> && ...);
  constexpr bool kNarrow = sizeof(Out) <= 2 && ((sizeof(In) <= 2) && ...);
  if constexpr (kFloats || kNarrow) {
    constexpr int kCount = kFloats ? kFlatFloats : kVectorCount<Out, In...>;
    if (loop.ndim != 1 || !is_flat(loop, 0, sizeof(Out), kCount) ||
        !(is_flat(loop, static_cast<int>(kIndex) + 1, sizeof(In), kCount) && ...))
      return false;
    const int device = loop.device.index();
    const uint32_t blocks = blocks_for(loop.numel, int64_t{kThreads} * kCount);
    if constexpr (kFloats) {
      const FloatSources<kInputs> from{{float_source<In>(loop, static_cast<int>(kIndex) + 1)...}};
      launch<flat_floats_kernel<F, kInputs>>(device, blocks, kThreads, loop.numel, f, kFloatKind<Out>, loop.data[0],
                                             from);
    } else {
      launch<flat_kernel<kCount, F, Out, In...>>(device, blocks, kThreads, loop.numel, f,
                                                 reinterpret_cast<Out*>(loop.data[0]),
                                                 source<In>(loop, static_cast<int>(kIndex) + 1)...);
    }
    return true;
  }
  return false;
}

template <class Out, class... In, class F>
void run_rare(const PointwiseLoop& loop, const F& f) {
  if (loop.numel == 0) return;
  DeviceGuard guard(loop.device.index());
  if (run_rare_flat<Out, In...>(loop, f, std::index_sequence_for<In...>{})) return;
  PointwiseLoop whole = loop;
  for_each_piece(whole, [&](const PointwiseLoop& piece) {
    run_strided<Out, In...>(piece, Called<F>{f}, std::index_sequence_for<In...>{});
  });
}

// All loops for floats of 16 and 32 bits, and one for dtypes that come rarely.
template <class Out, class... In, class F>
void run_common(const PointwiseLoop& loop, const F& f) {
  if constexpr (is_short_float_v<Out>) {
    run_pointwise<Out, In...>(loop, f);
  } else {
    run_rare<Out, In...>(loop, f);
  }
}

// One answer for all elements: integers are finite, and unsigned ones are not negative.
struct Always {
  bool value;
  __device__ bool operator()() const { return value; }
};

#define MICA_RARE_1(slot, Name, visit, ...)                                                         \
  namespace {                                                                                       \
  template <class T>                                                                                \
  struct Name {                                                                                     \
    __device__ T operator()(T x) const { __VA_ARGS__ }                                              \
  };                                                                                                \
  }                                                                                                 \
  void slot(const PointwiseLoop& loop) {                                                            \
    visit(#slot, loop.dtype, [&]<class T>(Tag<T>) { run_rare<T, T>(loop, Name<compute_t<T>>{}); }); \
  }
#define MICA_RARE_2(slot, Name, visit, ...)                                                            \
  namespace {                                                                                          \
  template <class T>                                                                                   \
  struct Name {                                                                                        \
    __device__ T operator()(T x, T y) const { __VA_ARGS__ }                                            \
  };                                                                                                   \
  }                                                                                                    \
  void slot(const PointwiseLoop& loop) {                                                               \
    visit(#slot, loop.dtype, [&]<class T>(Tag<T>) { run_rare<T, T, T>(loop, Name<compute_t<T>>{}); }); \
  }

}  // namespace mica::cuda
