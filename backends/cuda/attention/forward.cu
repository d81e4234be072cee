// Attention without the matrix of scores: tiles of 128 queries meet tiles of 64 keys, whose exponentials are taken
// relative to the largest score so far. Scores are in units of log 2.
#include "backends/cuda/attention/few.h"
#include "backends/cuda/attention/plain.h"
#include "backends/cuda/attention/plans.h"
#include "backends/cuda/attention/walk.cuh"

namespace mica::cuda {

namespace attention {

constexpr int kQueries = 128, kKeys = 64;
constexpr int kTiles = 1;  // of 16 queries, for each warp
constexpr int kBlockThreads = kQueries / (16 * kTiles) * 32;
// Two blocks of a multiprocessor hide each other's waits: narrow heads leave registers for that.
template <int kWidth>
inline constexpr int kBlocksOf = kWidth <= 64 ? 2 : 1;

template <class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads, kBlocksOf<kWidth>)
    forward_kernel(Problem<T> p, T* out, Strides out_strides, float* logsumexp) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kQueryBytes = kQueries * kWidth * 2, kKeyBytes = kKeys * kWidth * 2;
  const uint32_t query_tile = shared_address(memory);
  auto key_tile = [&](int stage) { return query_tile + kQueryBytes + stage * 2 * kKeyBytes; };
  const QueryBlock<T> at(p, kQueries);
  const int64_t first_query = at.first;
  const int blocks = static_cast<int>((at.last_key + kKeys - 1) / kKeys);

  auto load_keys = [&](int block) {
    const int64_t first = static_cast<int64_t>(block) * kKeys;
    const uint32_t to = key_tile(block % 2);
    load_tile<kKeys, kWidth, kBlockThreads>(to, at.key + first * p.key_strides.row, p.key_strides.row, p.keys - first,
                                            p.width);
    load_tile<kKeys, kWidth, kBlockThreads>(to + kKeyBytes, at.value + first * p.value_strides.row, p.value_strides.row,
                                            p.keys - first, p.width);
    commit();
  };
  load_tile<kQueries, kWidth, kBlockThreads>(query_tile, at.query, p.query_strides.row, p.length - first_query,
                                             p.width);
  load_keys(0);

  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * (16 * kTiles);
  // The largest score is found before scaling, so for a negative scale the scores are negated instead.
  const bool turned = p.scale < 0;
  const float scale = fabsf(p.scale) * kLog2E;
  float result[kTiles][kWidth / 8][4] = {};
  float largest[kTiles][2], sum[kTiles][2];
#pragma unroll
  for (int m = 0; m < kTiles; ++m) largest[m][0] = largest[m][1] = -INFINITY, sum[m][0] = sum[m][1] = 0;
  for (int block = 0; block < blocks; ++block) {
    if (block + 1 < blocks) {
      load_keys(block + 1);
      wait_for_all_but<1>();
    } else {
      wait_for_all_but<0>();
    }
    __syncthreads();
    const int64_t first_key = static_cast<int64_t>(block) * kKeys;
    // The warp's queries see nothing of this block.
    const bool unseen = p.causal && first_key > first_query + row + 16 * kTiles - 1;
    if (!unseen) {
      float scores[kTiles][kKeys / 8][4] = {};
      multiply_rows<kTiles, kKeys, kWidth, T>(scores, query_tile, row, key_tile(block % 2));
      if (turned) {
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int c = 0; c < 4; ++c) scores[m][n][c] = -scores[m][n][c];
      }
      // How many keys of the block a query of the tile sees.
      const auto left = static_cast<int>(p.keys - first_key < kKeys ? p.keys - first_key : kKeys);
      const auto ahead = static_cast<int>(first_query - first_key + 1);
      auto seen_of = [&](int query) { return p.causal && ahead + query < left ? ahead + query : left; };
      const bool edge = first_key + kKeys > p.keys || (p.causal && first_key + kKeys > first_query + row);
#pragma unroll
      for (int m = 0; m < kTiles; ++m) {
        if (edge) {
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              const int k = n * 8 + lane % 4 * 2 + c % 2;
              if (k >= seen_of(row + m * 16 + lane / 4 + c / 2 * 8)) scores[m][n][c] = -INFINITY;
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float top = scores[m][0][2 * h];
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) top = fmaxf(top, fmaxf(scores[m][n][2 * h], scores[m][n][2 * h + 1]));
          top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
          top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
          top = fmaxf(largest[m][h], top * scale);
          const float shift = top == -INFINITY ? 0.0f : top;
          const float factor = power_of_two(largest[m][h] - shift);
          largest[m][h] = top;
          float total = 0;
#pragma unroll
          for (int n = 0; n < kKeys / 8; ++n) {
            scores[m][n][2 * h] = power_of_two(__fmaf_rn(scores[m][n][2 * h], scale, -shift));
            scores[m][n][2 * h + 1] = power_of_two(__fmaf_rn(scores[m][n][2 * h + 1], scale, -shift));
            total += scores[m][n][2 * h] + scores[m][n][2 * h + 1];
          }
          sum[m][h] = __fmaf_rn(sum[m][h], factor, total);
#pragma unroll
          for (int n = 0; n < kWidth / 8; ++n) {
            result[m][n][2 * h] *= factor;
            result[m][n][2 * h + 1] *= factor;
          }
        }
      }
      multiply_accumulated<kTiles, kKeys, kWidth, T>(result, scores, key_tile(block % 2) + kKeyBytes);
    }
    __syncthreads();
  }
  out = rows_at(out, out_strides, at.batch, at.head);
#pragma unroll
  for (int m = 0; m < kTiles; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float total = sum[m][h];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int64_t q = first_query + row + m * 16 + lane / 4 + h * 8;
      if (q >= p.length) continue;
      const float inverse = total > 0 ? 1.0f / total : 0.0f;
      if (lane % 4 == 0) logsumexp[at.number + q] = largest[m][h] / kLog2E + logf(total);
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) {
        const int column = n * 8 + lane % 4 * 2;
        if (column >= p.width) continue;
        *reinterpret_cast<uint32_t*>(out + q * out_strides.row + column) =
            pack<T>(result[m][n][2 * h] * inverse, result[m][n][2 * h + 1] * inverse);
      }
    }
}

template <class T, int kWidth>
void launch_forward(const Problem<T>& p, int64_t batch, const TensorView& out, float* logsumexp) {
  constexpr int kBytes = (kQueries + 4 * kKeys) * kWidth * 2;
  auto* kernel = forward_kernel<T, kWidth>;
  static const cudaError_t raised = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  MICA_CUDA(raised);
  const dim3 blocks(blocks_for(p.length, kQueries), static_cast<unsigned>(batch * p.heads));
  kernel<<<blocks, kBlockThreads, kBytes, current_stream(out.device.index())>>>(p, out.ptr<T>(), strides_of(out),
                                                                                logsumexp);
  MICA_CUDA(cudaGetLastError());
}

}  // namespace attention

void attention_forward(const TensorView& out, const TensorView& logsumexp, const TensorView& query,
                       const TensorView& key, const TensorView& value, const TensorView& mask, bool is_causal,
                       double scale) {
  DeviceGuard guard(out.device.index());
  const bool only = !attention::own_kernels_take(query, value);
  if (!only && attention::few::takes(query))
    return attention::few::forward(
        {out, logsumexp, query, key, value, mask, is_causal, scale, false, nullptr, nullptr});
  if (query.dtype == DType::Float32 || mask.defined())
    return attention::plain::forward(out, logsumexp, query, key, value, mask, is_causal, scale);
  if (attention::forward_by_cudnn(out, logsumexp, query, key, value, is_causal, scale, only)) return;
  attention::visit(query.dtype, query.sizes[3], [&]<class T, int kWidth>() {
    attention::launch_forward<T, kWidth>(attention::problem<T>(query, key, value, is_causal, scale), query.sizes[0],
                                         out, logsumexp.ptr<float>());
  });
}

}  // namespace mica::cuda
