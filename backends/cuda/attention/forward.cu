// Attention without the matrix of scores: tiles of 128 queries meet tiles of 64 keys, whose exponentials are taken
// relative to the largest score so far. Scores are in units of log 2.
#include "backends/cuda/attention/attention.h"
#include "backends/cuda/attention/tiles.cuh"
#include "backends/cuda/pointwise.cuh"

namespace mica::cuda {

namespace attention {

constexpr int kWarps = 8, kBlockThreads = kWarps * 32, kQueries = kWarps * 16, kKeys = 64;

template <class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads)
    forward_kernel(Problem<T> p, T* out, Strides out_strides, float* logsumexp) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kQueryBytes = kQueries * kWidth * 2, kKeyBytes = kKeys * kWidth * 2;
  const uint32_t query_tile = shared_address(memory);
  auto key_tile = [&](int stage) { return query_tile + kQueryBytes + stage * 2 * kKeyBytes; };
  const int64_t batch = blockIdx.y / p.heads, head = blockIdx.y % p.heads, kv_head = head / (p.heads / p.kv_heads);
  // Causal rows that see the most keys come first.
  const int64_t tiles = gridDim.x, tile = p.causal ? tiles - 1 - blockIdx.x : blockIdx.x;
  const int64_t first_query = tile * kQueries;
  const T* query = p.query + batch * p.query_strides.batch + head * p.query_strides.head +
                   first_query * p.query_strides.row;
  const T* key = p.key + batch * p.key_strides.batch + kv_head * p.key_strides.head;
  const T* value = p.value + batch * p.value_strides.batch + kv_head * p.value_strides.head;
  int64_t last_key = p.keys;
  if (p.causal && first_query + kQueries < last_key) last_key = first_query + kQueries;
  const int blocks = static_cast<int>((last_key + kKeys - 1) / kKeys);

  auto load_keys = [&](int block) {
    const int64_t first = static_cast<int64_t>(block) * kKeys;
    const uint32_t to = key_tile(block % 2);
    load_tile<kKeys, kWidth, kBlockThreads>(to, key + first * p.key_strides.row, p.key_strides.row, p.keys - first,
                                            p.width);
    load_tile<kKeys, kWidth, kBlockThreads>(to + kKeyBytes, value + first * p.value_strides.row, p.value_strides.row,
                                            p.keys - first, p.width);
    commit();
  };
  load_tile<kQueries, kWidth, kBlockThreads>(query_tile, query, p.query_strides.row, p.length - first_query, p.width);
  load_keys(0);

  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
  const float scale = p.scale * kLog2E;
  float result[kWidth / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  for (int block = 0; block < blocks; ++block) {
    if (block + 1 < blocks) {
      load_keys(block + 1);
      wait_for_all_but<1>();
    } else {
      wait_for_all_but<0>();
    }
    __syncthreads();
    float scores[kKeys / 8][4] = {};
    multiply_rows<kKeys, kWidth, T>(scores, query_tile, row, key_tile(block % 2));
    const int64_t first_key = static_cast<int64_t>(block) * kKeys;
    const bool edge = first_key + kKeys > p.keys || (p.causal && first_key + kKeys > first_query + row);
    if (edge) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int64_t k = first_key + n * 8 + lane % 4 * 2 + c % 2, q = first_query + row + lane / 4 + c / 2 * 8;
          if (k >= p.keys || (p.causal && k > q)) scores[n][c] = -INFINITY;
        }
    }
    float top[2] = {largest[0], largest[1]};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int c = 0; c < 4; ++c) top[c / 2] = fmaxf(top[c / 2], scores[n][c] * scale);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 1));
      top[h] = fmaxf(top[h], __shfl_xor_sync(0xffffffffu, top[h], 2));
      const float shift = top[h] == -INFINITY ? 0.0f : top[h];
      const float factor = exp2f(largest[h] - shift);
      largest[h] = top[h];
      sum[h] *= factor;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        result[n][2 * h] *= factor;
        result[n][2 * h + 1] *= factor;
      }
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        scores[n][2 * h] = exp2f(scores[n][2 * h] * scale - shift);
        scores[n][2 * h + 1] = exp2f(scores[n][2 * h + 1] * scale - shift);
        sum[h] += scores[n][2 * h] + scores[n][2 * h + 1];
      }
    }
    multiply_accumulated<kKeys, kWidth, T>(result, scores, key_tile(block % 2) + kKeyBytes);
    __syncthreads();
  }
  out += batch * out_strides.batch + head * out_strides.head;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
    sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
    const int64_t q = first_query + row + lane / 4 + h * 8;
    if (q >= p.length) continue;
    const float inverse = sum[h] > 0 ? 1.0f / sum[h] : 0.0f;
    if (lane % 4 == 0)
      logsumexp[(batch * p.heads + head) * p.length + q] = largest[h] / kLog2E + logf(sum[h]);
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      if (column >= p.width) continue;
      const uint32_t both = pack<T>(result[n][2 * h] * inverse, result[n][2 * h + 1] * inverse);
      *reinterpret_cast<uint32_t*>(out + q * out_strides.row + column) = both;
    }
  }
}

template <class T, int kWidth>
void launch_forward(const Problem<T>& p, int64_t batch, const TensorView& out, float* logsumexp) {
  constexpr int kBytes = (kQueries + 4 * kKeys) * kWidth * 2;
  auto* kernel = forward_kernel<T, kWidth>;
  static const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  MICA_CUDA(raised);
  const dim3 blocks(blocks_for(p.length, kQueries), static_cast<unsigned>(batch * p.heads));
  kernel<<<blocks, kBlockThreads, kBytes, current_stream(out.device.index)>>>(p, out.ptr<T>(), strides_of(out),
                                                                              logsumexp);
  MICA_CUDA(cudaGetLastError());
}

}  // namespace attention

void attention_forward(const TensorView& out, const TensorView& logsumexp, const TensorView& query,
                       const TensorView& key, const TensorView& value, const TensorView&, bool is_causal,
                       double scale) {
  DeviceGuard guard(out.device.index);
  attention::visit(query.dtype, query.sizes[3], [&]<class T, int kWidth>() {
    attention::launch_forward<T, kWidth>(attention::problem<T>(query, key, value, is_causal, scale), query.sizes[0],
                                         out, logsumexp.ptr<float>());
  });
}

}  // namespace mica::cuda
