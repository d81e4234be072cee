// A block has one query of one head, or some of its keys: where there are few queries, up to eight blocks, a cluster,
// share the keys of each. Threads form groups, which read a key and a value in pieces of 16 bytes. The groups take the
// keys in turn and keep a maximum, a sum and a weighted sum of values, which are joined at the end.
// Tiles of 64 queries would leave most of a multiprocessor idle, and most multiprocessors too.
#include "backends/cuda/attention/few.h"

#include <algorithm>

#include "backends/cuda/attention/plain.cuh"
#include "backends/cuda/attention/plain_mask.h"
#include "backends/cuda/attention/walk.cuh"
#include "backends/cuda/cluster.cuh"
#include "backends/cuda/fetch.cuh"
#include "backends/cuda/pieces.cuh"

namespace mica::cuda::attention::few {

namespace {

constexpr int kAtOnce = 4;            // keys whose loads are under way together
constexpr unsigned kMostSharing = 8;  // blocks that share the keys of a query

template <bool kPastFirstCache, class T>
__device__ int4 bits_or_zeros(const T* from, bool inside) {
  int4 bits{0, 0, 0, 0};
  const auto* at = reinterpret_cast<const int4*>(from);
  if (inside) bits = kPastFirstCache ? __ldcg(at) : *at;
  return bits;
}

// The elements of 16 bytes. They are not converted before this is reached: that would take a register for each.
template <class T>
__device__ Piece<T> unpacked(int4 bits) {
  asm volatile("" : "+r"(bits.x), "+r"(bits.y), "+r"(bits.z), "+r"(bits.w));
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

// Asks for keys and values into the second cache. Blocks that read the same ones ask for a share each. This changes no
// result, so it need not wait for earlier work.
template <class T>
__device__ void fetch_ahead(const Problem<T>& p, const QueryBlock<T>& at) {
  constexpr int64_t kLine = 128, kMostKeys = 4096;
  const int64_t heads = p.heads / p.kv_heads, shares = heads * gridDim.z, last = min(at.last_key, kMostKeys);
  const int64_t share = at.head % heads * gridDim.z + blockIdx.z;
  for (int64_t k = threadIdx.x * shares + share; k < last; k += blockDim.x * shares)
    for (int64_t byte = 0; byte < p.width * static_cast<int64_t>(sizeof(T)); byte += kLine) {
      prefetch(reinterpret_cast<const char*>(at.key + k * p.key_strides.row) + byte);
      prefetch(reinterpret_cast<const char*>(at.value + k * p.value_strides.row) + byte);
    }
}

// What a thread reads of kAtOnce keys.
struct Keys {
  int4 keys[kAtOnce], rows[kAtOnce];
  float given[kAtOnce];  // by the mask
};

// What weights relative to `top` are multiplied with to be relative to the largest score of all.
__device__ float factor_of(float top, float largest) {
  return power_of_two(top - (largest == -INFINITY ? 0.0f : largest));
}

// A block of few threads leaves room for those of the next kernel, which may begin early (FusedProducts).
constexpr int kFew = 256, kMany = 512;

// The new keys and values, as in FusedAttention.
struct Places {
  const int64_t *key, *value;
};
// The number of the new row, or -1. A number that names none is like one of none: the row was not written.
__device__ int64_t new_row(const int64_t* place, int64_t rows) {
  if (!place) return -1;
  return *place < 0 ? *place + rows : *place;
}

// kEarly: the first keys and values of each group are read before the kernel before this one has ended, and new ones
// again after that. All are read past the first cache, where new ones would stay as they were.
template <class T, int kWidth, int kThreads, bool kEarly>
__global__ void __launch_bounds__(kThreads, kThreads == kFew ? 3 : 1)
    forward_kernel(Problem<T> p, plain::Mask mask, Places places, T* out, Strides out_strides, float* logsumexp) {
  constexpr int kCount = Piece<T>::kCount, kGroup = kWidth / kCount, kGroups = kThreads / kGroup,
                kWarps = kThreads / 32;
  static_assert(kGroup <= 32 && kWidth <= kThreads);
  __shared__ float tops[kWarps], sums[kWarps], values[kWarps][kWidth];
  // What the blocks that share the keys have seen; the first one joins it.
  __shared__ float all_tops[kMostSharing], all_sums[kMostSharing], all_values[kMostSharing][kWidth];
  const QueryBlock<T> at(p, 1);
  const bool shares = gridDim.z > 1;
  const int group = threadIdx.x / kGroup, column = threadIdx.x % kGroup * kCount;
  const bool inside = column < p.width;
  const int64_t mask_base = at.batch * mask.batch + at.head * mask.head + at.first * mask.row;

  int64_t first = static_cast<int64_t>(blockIdx.z) * kGroups * kAtOnce + group;
  const auto there = [&](int u) { return inside && first + u * kGroups < at.last_key; };
  const auto key_at = [&](int u) { return at.key + (first + u * kGroups) * p.key_strides.row + column; };
  const auto value_at = [&](int u) { return at.value + (first + u * kGroups) * p.value_strides.row + column; };
  const auto read_rows = [&](Keys& to) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      to.keys[u] = bits_or_zeros<kEarly>(key_at(u), there(u));
      to.rows[u] = bits_or_zeros<kEarly>(value_at(u), there(u));
    }
  };
  // After all keys and values are asked for, since the mask's kinds are branches, which would part their loads.
  const auto read_mask = [&](Keys& to) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t k = first + u * kGroups;
      to.given[u] = k < at.last_key ? mask.read<T>(mask_base + k * mask.column) : 0;
    }
  };

  if (shares) arrive_at_cluster();
  Keys now;
  int64_t new_key = -1, new_value = -1;
  if constexpr (kEarly) {
    read_rows(now);
    new_key = new_row(places.key, p.keys), new_value = new_row(places.value, p.keys);
  }
  fetch_ahead(p, at);
  wait_for_predecessors();
  const int4 of_query = bits_or_zeros<false>(at.query + column, inside);
  if constexpr (kEarly) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t k = first + u * kGroups;
      if (k == new_key) now.keys[u] = bits_or_zeros<true>(key_at(u), there(u));
      if (k == new_value) now.rows[u] = bits_or_zeros<true>(value_at(u), there(u));
    }
  } else {
    read_rows(now);
  }
  read_mask(now);
  float query[kCount];
  const auto of = unpacked<T>(of_query);
#pragma unroll
  for (int i = 0; i < kCount; ++i) query[i] = convert<float>(of.item[i]);
  Seen<kCount> seen;
  while (true) {
    float scores[kAtOnce], top = seen.largest;
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      float product = 0;
      const auto key = unpacked<T>(now.keys[u]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) product = __fmaf_rn(query[i], convert<float>(key.item[i]), product);
#pragma unroll
      for (int m = kGroup / 2; m > 0; m /= 2) product += __shfl_xor_sync(0xffffffffu, product, m);
      const int64_t k = first + u * kGroups;
      scores[u] = k < at.last_key ? mask.with(product * p.scale, now.given[u]) * kLog2E : -INFINITY;
      top = fmaxf(top, scores[u]);
    }
    const float shift = seen.shift_to(top);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const float weight = power_of_two(scores[u] - shift);
      seen.sum += weight;
      const auto row = unpacked<T>(now.rows[u]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) seen.values[i] = __fmaf_rn(weight, convert<float>(row.item[i]), seen.values[i]);
    }
    first += static_cast<int64_t>(gridDim.z) * kGroups * kAtOnce;
    if (first - group >= at.last_key) break;
    read_rows(now);
    read_mask(now);
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
  float top = -INFINITY, total = 0, value = 0;
  if (threadIdx.x < kWidth) {  // the warps
#pragma unroll 8
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, tops[w]);
#pragma unroll 8
    for (int w = 0; w < kWarps; ++w) {
      const float factor = factor_of(tops[w], top);
      total = __fmaf_rn(sums[w], factor, total);
      value = __fmaf_rn(values[w][threadIdx.x], factor, value);
    }
  }
  if (shares) {
    const unsigned own = blockIdx.z;
    wait_for_cluster();
    if (threadIdx.x < kWidth) write_shared(&all_values[own][threadIdx.x], 0, value);
    if (threadIdx.x == 0) write_shared(&all_tops[own], 0, top), write_shared(&all_sums[own], 0, total);
    arrive_at_cluster();
    if (own != 0) return;
    wait_for_cluster();
    if (threadIdx.x < kWidth) {
      top = -INFINITY, total = value = 0;
      for (unsigned b = 0; b < gridDim.z; ++b) top = fmaxf(top, all_tops[b]);
      for (unsigned b = 0; b < gridDim.z; ++b) {
        const float factor = factor_of(all_tops[b], top);
        total = __fmaf_rn(all_sums[b], factor, total);
        value = __fmaf_rn(all_values[b][threadIdx.x], factor, value);
      }
    }
  }
  if (threadIdx.x >= kWidth) return;
  const float inverse = total > 0 ? 1.0f / total : total != total ? total : 0.0f;
  if (threadIdx.x == 0) logsumexp[at.number + at.first] = top / kLog2E + logf(total);
  if (threadIdx.x < p.width)
    rows_at(out, out_strides, at.batch, at.head, at.first)[threadIdx.x] = convert<T>(value * inverse);
}

// How many blocks share the keys of a query: as many as find kAtOnce keys for each group of theirs, while there are
// multiprocessors without work.
unsigned blocks_for_keys(int64_t keys, int64_t keys_of_block, int64_t queries, int device) {
  constexpr int64_t kOnMultiprocessor = 4;
  const int64_t most = kOnMultiprocessor * properties(device).multiProcessorCount;
  unsigned blocks = 1;
  while (has_clusters(device) && blocks < kMostSharing && blocks * keys_of_block < keys && 2 * blocks * queries <= most)
    blocks *= 2;
  return blocks;
}

}  // namespace

void forward(const FusedAttention& a) {
  plain::visit(a.query.dtype, a.query.sizes[3], [&]<class T, int kWidth>() {
    const Problem<T> p = problem<T>(a.query, a.key, a.value, a.is_causal, a.scale);
    const int device = a.out.device.index();
    dim3 blocks(static_cast<unsigned>(p.length), static_cast<unsigned>(a.query.sizes[0] * p.heads));
    constexpr int kKeys = kFew / (kWidth / Piece<T>::kCount) * kAtOnce;
    blocks.z = blocks_for_keys(p.keys, kKeys, int64_t{blocks.x} * blocks.y, device);
    const auto run = [&]<int kThreads, bool kEarly>() {
      Launcher<forward_kernel<T, kWidth, kThreads, kEarly>>::run(
          blocks.z > 1, device, blocks, kThreads, p, plain::mask_of(a.mask, a.query.dtype),
          Places{a.key_place, a.value_place}, a.out.ptr<T>(), strides_of(a.out), a.logsumexp.ptr<float>());
    };
    if (a.early && has_clusters(device)) return run.template operator()<kFew, true>();
    if (p.keys <= kKeys || has_clusters(device)) return run.template operator()<kFew, false>();
    run.template operator()<kMany, false>();
  });
}

}  // namespace mica::cuda::attention::few
