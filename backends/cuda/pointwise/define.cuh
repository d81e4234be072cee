// Short ways to define a pointwise kernel of one, two or three operands. Functors see values of the type that an
// element is computed in; a kernel that is called rarely has one loop, for any strides, and its function is compiled
// once and called, not written out for each element of a thread.
#pragma once

#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

// Floats of 16 and 32 bits share a kernel: it is told which they are.
enum class FloatKind : int { Single, Half, BFloat };
struct FloatSource {
  const char* data;  // null: the number
  float number;
  __device__ float load(int64_t offset, FloatKind kind) const {
    if (!data) return number;
    const char* at = data + offset;
    if (kind == FloatKind::Single) return *reinterpret_cast<const float*>(at);
    return kind == FloatKind::Half ? __half2float(*reinterpret_cast<const half*>(at))
                                   : __bfloat162float(*reinterpret_cast<const bfloat16*>(at));
  }
};
template <int kInputs>
struct FloatSources {
  FloatSource in[kInputs];
};

template <class F, int kInputs>
__global__ void __launch_bounds__(kThreads) rare_float_kernel(uint32_t n, Called<F> f, Offsets<1 + kInputs> offsets,
                                                              FloatKind kind, char* out, FloatSources<kInputs> from) {
  wait_for_predecessors();
  uint32_t i = blockIdx.x * (kThreads * kStridedPerThread) + threadIdx.x;
#pragma unroll
  for (int j = 0; j < kStridedPerThread; ++j, i += kThreads) {
    if (i >= n) return;
    int64_t at[1 + kInputs];
    offsets.at(i, at);
    float result;
    if constexpr (kInputs == 1) {
      result = f(from.in[0].load(at[1], kind));
    } else if constexpr (kInputs == 2) {
      result = f(from.in[0].load(at[1], kind), from.in[1].load(at[2], kind));
    } else {
      result = f(from.in[0].load(at[1], kind), from.in[1].load(at[2], kind), from.in[2].load(at[3], kind));
    }
    char* to = out + at[0];
    if (kind == FloatKind::Single) {
      *reinterpret_cast<float*>(to) = result;
    } else if (kind == FloatKind::Half) {
      *reinterpret_cast<half*>(to) = __float2half_rn(result);
    } else {
      *reinterpret_cast<bfloat16*>(to) = __float2bfloat16_rn(result);
    }
  }
}

template <class T>
inline constexpr FloatKind kFloatKind = std::is_same_v<T, float>  ? FloatKind::Single
                                        : std::is_same_v<T, half> ? FloatKind::Half
                                                                  : FloatKind::BFloat;
template <class T>
inline constexpr bool is_short_float_v =
    std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat16>;

template <int kInputs, class F>
void run_rare_floats(const PointwiseLoop& piece, const F& f, FloatKind kind) {
  FloatSources<kInputs> from;
  for (int k = 0; k < kInputs; ++k) {
    FloatSource& s = from.in[k];
    s = {piece.data[k + 1], 0};
    if (!(piece.numbers >> (k + 1) & 1)) continue;
    s.number = kind == FloatKind::Single ? source<float>(piece, k + 1).number
               : kind == FloatKind::Half ? __half2float(source<half>(piece, k + 1).number)
                                         : __bfloat162float(source<bfloat16>(piece, k + 1).number);
    s.data = nullptr;
  }
  launch<rare_float_kernel<F, kInputs>>(piece.device.index(), blocks_for(piece.numel, kThreads * kStridedPerThread),
                                        kThreads, static_cast<uint32_t>(piece.numel), Called<F>{f},
                                        offsets_of<1 + kInputs>(piece), kind, piece.data[0], from);
}

template <class Out, class... In, class F>
void run_rare(const PointwiseLoop& loop, const F& f) {
  if (loop.numel == 0) return;
  DeviceGuard guard(loop.device.index());
  PointwiseLoop whole = loop;
  for_each_piece(whole, [&](const PointwiseLoop& piece) {
    if constexpr (is_short_float_v<Out> && (std::is_same_v<Out, In> && ...) && sizeof...(In) <= 3) {
      run_rare_floats<sizeof...(In)>(piece, f, kFloatKind<Out>);
    } else {
      run_strided<Out, In...>(piece, Called<F>{f}, std::index_sequence_for<In...>{});
    }
  });
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
