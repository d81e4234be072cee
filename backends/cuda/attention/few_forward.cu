// A block has one query of one head. Its threads form groups, which read a key and a value in pieces of 16 bytes. The
// groups take the keys in turn and keep a maximum, a sum and a weighted sum of values, which are joined at the end.
// Tiles of 64 queries would leave most of a multiprocessor idle, and most multiprocessors too.
#include "backends/cuda/attention/few.h"

#include "backends/cuda/attention/plain.cuh"
#include "backends/cuda/attention/plain_mask.h"
#include "backends/cuda/attention/walk.cuh"
#include "backends/cuda/fetch.cuh"
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

// Asks for keys and values into the second cache. Blocks whose heads share them ask for a share each. This changes no
// result, so it need not wait for earlier work.
template <class T>
__device__ void fetch_ahead(const Problem<T>& p, const QueryBlock<T>& at) {
  constexpr int64_t kLine = 128, kMostKeys = 4096;
  const int64_t shared = p.heads / p.kv_heads, last = min(at.last_key, kMostKeys);
  for (int64_t k = threadIdx.x * shared + at.head % shared; k < last; k += blockDim.x * shared)
    for (int64_t byte = 0; byte < p.width * static_cast<int64_t>(sizeof(T)); byte += kLine) {
      prefetch(reinterpret_cast<const char*>(at.key + k * p.key_strides.row) + byte);
      prefetch(reinterpret_cast<const char*>(at.value + k * p.value_strides.row) + byte);
    }
}

// What a thread reads of kAtOnce keys.
template <class T>
struct Keys {
  Piece<T> keys[kAtOnce], rows[kAtOnce];
  float given[kAtOnce];  // by the mask
};

template <class T, int kWidth, int kThreads>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(Problem<T> p, plain::Mask mask, T* out, Strides out_strides, float* logsumexp) {
  constexpr int kCount = Piece<T>::kCount, kGroup = kWidth / kCount, kGroups = kThreads / kGroup,
                kWarps = kThreads / 32;
  static_assert(kGroup <= 32 && kWidth <= kThreads);
  __shared__ float tops[kWarps], sums[kWarps], values[kWarps][kWidth];
  const QueryBlock<T> at(p, 1);
  fetch_ahead(p, at);
  wait_for_predecessors();
  const int group = threadIdx.x / kGroup, column = threadIdx.x % kGroup * kCount;
  const bool inside = column < p.width;
  const int64_t mask_base = at.batch * mask.batch + at.head * mask.head + at.first * mask.row;
  float query[kCount];
  const Piece<T> given = piece_or_zeros(at.query + column, inside);
#pragma unroll
  for (int i = 0; i < kCount; ++i) query[i] = convert<float>(given.item[i]);

  // The mask is read after all keys and values are asked for, since its kinds are branches, which would part their
  // loads. Where there are too few registers, it is read when a score is there.
  constexpr bool kMasksEarly = kThreads <= 512;
  const auto read = [&](Keys<T>& to, int64_t first) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t k = first + u * kGroups + group;
      const bool there = inside && k < at.last_key;
      to.keys[u] = piece_or_zeros(at.key + k * p.key_strides.row + column, there);
      to.rows[u] = piece_or_zeros(at.value + k * p.value_strides.row + column, there);
    }
    if constexpr (kMasksEarly) {
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        const int64_t k = first + u * kGroups + group;
        to.given[u] = k < at.last_key ? mask.read<T>(mask_base + k * mask.column) : 0;
      }
    }
  };
  Seen<kCount> seen;
  for (int64_t first = 0; first < at.last_key; first += kGroups * kAtOnce) {
    Keys<T> now;
    read(now, first);
    float scores[kAtOnce], top = seen.largest;
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      float product = 0;
#pragma unroll
      for (int i = 0; i < kCount; ++i) product = __fmaf_rn(query[i], convert<float>(now.keys[u].item[i]), product);
#pragma unroll
      for (int m = kGroup / 2; m > 0; m /= 2) product += __shfl_xor_sync(0xffffffffu, product, m);
      const int64_t k = first + u * kGroups + group;
      scores[u] = -INFINITY;
      if (k < at.last_key) {
        const float given = kMasksEarly ? now.given[u] : mask.read<T>(mask_base + k * mask.column);
        scores[u] = mask.with(product * p.scale, given) * kLog2E;
      }
      top = fmaxf(top, scores[u]);
    }
    const float shift = seen.shift_to(top);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const float weight = power_of_two(scores[u] - shift);
      seen.sum += weight;
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        seen.values[i] = __fmaf_rn(weight, convert<float>(now.rows[u].item[i]), seen.values[i]);
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
    if (p.keys <= 512) return run.template operator()<512>();
    run.template operator()<1024>();
  });
}

}  // namespace mica::cuda::attention::few
