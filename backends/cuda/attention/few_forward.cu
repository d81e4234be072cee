// A block has one query of one head. Its threads form groups, which read a key and a value in pieces of 16 bytes. The
// groups take the keys in turn and keep a maximum, a sum and a weighted sum of values, which are joined at the end.
// Tiles of 64 queries would leave most of a multiprocessor idle, and most multiprocessors too.
#include "backends/cuda/attention/few.h"

#include "backends/cuda/attention/plain.cuh"
#include "backends/cuda/attention/plain_mask.h"
#include "backends/cuda/attention/walk.cuh"
#include "backends/cuda/pieces.cuh"

namespace mica::cuda::attention::few {

namespace {

constexpr int kAtOnce = 4;  // keys whose loads are under way together

template <class T>
__device__ Piece<T> piece_or_zeros(const T* from, bool inside) {
  int4 bits{0, 0, 0, 0};
  if (inside) bits = *reinterpret_cast<const int4*>(from);
  return as_piece<T>(bits);
}

// What a group has seen: the largest score and, relative to it, the sum of weights and of weighted values.
template <int kCount>
struct Seen {
  float largest = -INFINITY, sum = 0, values[kCount] = {};

  __device__ float shift_to(float top) {
    const float shift = top == -INFINITY ? 0.0f : top;
    const float factor = power_of_two(largest - shift);
    largest = top;
    sum *= factor;
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] *= factor;
    return shift;
  }
};

template <class T, int kWidth, int kThreads>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Problem<T> p, plain::Mask mask, T* out, Strides out_strides, float* logsumexp) {
  wait_for_predecessors();
  constexpr int kCount = Piece<T>::kCount, kGroup = kWidth / kCount, kGroups = kThreads / kGroup,
                kWarps = kThreads / 32;
  static_assert(kGroup <= 32 && kWidth <= kThreads);
  __shared__ float tops[kWarps], sums[kWarps], values[kWarps][kWidth];
  const QueryBlock<T> at(p, 1);
  const int group = threadIdx.x / kGroup, column = threadIdx.x % kGroup * kCount;
  const bool inside = column < p.width;
  const int64_t mask_base = at.batch * mask.batch + at.head * mask.head + at.first * mask.row;
  float query[kCount];
  const Piece<T> given = piece_or_zeros(at.query + column, inside);
#pragma unroll
  for (int i = 0; i < kCount; ++i) query[i] = convert<float>(given.item[i]);

  Seen<kCount> seen;
  for (int64_t first = 0; first < at.last_key; first += kGroups * kAtOnce) {
    Piece<T> keys[kAtOnce], rows[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t k = first + u * kGroups + group;
      const bool there = inside && k < at.last_key;
      keys[u] = piece_or_zeros(at.key + k * p.key_strides.row + column, there);
      rows[u] = piece_or_zeros(at.value + k * p.value_strides.row + column, there);
    }
    float scores[kAtOnce], top = seen.largest;
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      float product = 0;
#pragma unroll
      for (int i = 0; i < kCount; ++i) product = __fmaf_rn(query[i], convert<float>(keys[u].item[i]), product);
#pragma unroll
      for (int m = kGroup / 2; m > 0; m /= 2) product += __shfl_xor_sync(0xffffffffu, product, m);
      const int64_t k = first + u * kGroups + group;
      scores[u] = k < at.last_key ? mask.apply<T>(product * p.scale, mask_base + k * mask.column) * kLog2E : -INFINITY;
      top = fmaxf(top, scores[u]);
    }
    const float shift = seen.shift_to(top);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const float weight = power_of_two(scores[u] - shift);
      seen.sum += weight;
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        seen.values[i] = __fmaf_rn(weight, convert<float>(rows[u].item[i]), seen.values[i]);
    }
  }

#pragma unroll
  for (int m = kGroup; m < 32; m *= 2) {  // the groups of a warp
    const float other = __shfl_xor_sync(0xffffffffu, seen.largest, m);
    seen.shift_to(fmaxf(seen.largest, other));
    seen.sum += __shfl_xor_sync(0xffffffffu, seen.sum, m);
#pragma unroll
    for (int i = 0; i < kCount; ++i) seen.values[i] += __shfl_xor_sync(0xffffffffu, seen.values[i], m);
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (lane < kGroup) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[warp][column + i] = seen.values[i];
  }
  if (lane == 0) tops[warp] = seen.largest, sums[warp] = seen.sum;
  __syncthreads();
  if (threadIdx.x >= kWidth) return;
  float top = -INFINITY, total = 0, value = 0;
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, tops[w]);
  const float shift = top == -INFINITY ? 0.0f : top;
  for (int w = 0; w < kWarps; ++w) {
    const float factor = power_of_two(tops[w] - shift);
    total = __fmaf_rn(sums[w], factor, total);
    value = __fmaf_rn(values[w][threadIdx.x], factor, value);
  }
  const float inverse = total > 0 ? 1.0f / total : total != total ? total : 0.0f;
  if (threadIdx.x == 0) logsumexp[at.number + at.first] = top / kLog2E + logf(total);
  if (threadIdx.x < p.width)
    rows_at(out, out_strides, at.batch, at.head, at.first)[threadIdx.x] = convert<T>(value * inverse);
}

}  // namespace

void forward(const TensorView& out, const TensorView& logsumexp, const TensorView& query, const TensorView& key,
             const TensorView& value, const TensorView& mask, bool causal, double scale) {
  plain::visit(query.dtype, query.sizes[3], [&]<class T, int kWidth>() {
    const Problem<T> p = problem<T>(query, key, value, causal, scale);
    const dim3 blocks(static_cast<unsigned>(p.length), static_cast<unsigned>(query.sizes[0] * p.heads));
    const auto run = [&]<int kThreads>() {
      launch<forward_kernel<T, kWidth, kThreads>>(out.device.index(), blocks, kThreads, p,
                                                  plain::mask_of(mask, query.dtype), out.ptr<T>(), strides_of(out),
                                                  logsumexp.ptr<float>());
    };
    if (p.keys <= 512) return run.template operator()<256>();
    run.template operator()<1024>();
  });
}

}  // namespace mica::cuda::attention::few
