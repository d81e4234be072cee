#include "backends/cuda/attention/plain.h"

#include "backends/cuda/attention/plain_mask.h"
#include "backends/cuda/attention/walk.cuh"

namespace mica::cuda::attention::plain {

// 64 queries against all keys that they see.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, kWidth <= 64 ? 3 : 2)
    forward_kernel(Problem<T> p, Mask mask, T* out, Strides out_strides, float* logsumexp) {
  extern __shared__ __align__(16) float memory[];
  constexpr int kKeys = kColumns<kWidth>;
  float* query_tile = memory;
  float* key_tile = query_tile + kTileFloats<kWidth>;
  float* value_tile = key_tile + kKeys * (kWidth + kPad);
  float* weight_tile = value_tile + kKeys * (kWidth + kPad);
  const QueryBlock<T> at(p, kRows);
  const int64_t first_query = at.first, mask_base = at.batch * mask.batch + at.head * mask.head;
  load_rows<kRows, kWidth>(query_tile, at.query, p.query_strides.row, p.length - first_query, p.width);
  const float scale = p.scale * kLog2E;
  float result[kEach][kWidth / 16] = {}, largest[kEach], sum[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) largest[i] = -INFINITY, sum[i] = 0;
  for (int64_t first_key = 0; first_key < at.last_key; first_key += kKeys) {
    __syncthreads();  // nobody reads the last tiles any more
    load_rows<kKeys, kWidth>(key_tile, at.key + first_key * p.key_strides.row, p.key_strides.row, p.keys - first_key,
                             p.width);
    commit();
    load_rows<kKeys, kWidth>(value_tile, at.value + first_key * p.value_strides.row, p.value_strides.row,
                             p.keys - first_key, p.width);
    commit();
    wait_for_all_but<1>();
    __syncthreads();
    float scores[kEach][kKeys / 16] = {};
    multiply_rows<kKeys, kWidth>(scores, query_tile, key_tile);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t q = first_query + thread_y() + 8 * i;
      float most = largest[i];
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        const int64_t k = first_key + thread_x() + 16 * j;
        const bool seen = q < p.length && k < p.keys && (!p.causal || k <= q);
        float score = scores[i][j] * scale;
        if (seen && mask.kind != MaskKind::None)
          score = mask.apply<T>(scores[i][j] * p.scale, mask_base + q * mask.row + k * mask.column) * kLog2E;
        scores[i][j] = seen ? score : -INFINITY;
        most = fmaxf(most, scores[i][j]);
      }
      most = over_row(most, [](float a, float b) { return fmaxf(a, b); });
      const float shift = most == -INFINITY ? 0.0f : most;
      const float factor = power_of_two(largest[i] - shift);
      largest[i] = most;
      float total = 0;
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        scores[i][j] = power_of_two(scores[i][j] - shift);
        total += scores[i][j];
      }
      sum[i] = __fmaf_rn(sum[i], factor, total);
#pragma unroll
      for (int n = 0; n < kWidth / 16; ++n) result[i][n] *= factor;
    }
    store_weights<kKeys>(weight_tile, scores);
    wait_for_all_but<0>();
    __syncthreads();
    multiply_onto<kKeys, kWidth>(result, weight_tile, value_tile);
  }
  float inverse[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float total = over_row(sum[i], [](float a, float b) { return a + b; });
    inverse[i] = total > 0 ? 1.0f / total : total != total ? total : 0.0f;
    const int64_t q = first_query + thread_y() + 8 * i;
    if (thread_x() == 0 && q < p.length) logsumexp[at.number + q] = largest[i] / kLog2E + logf(total);
  }
  out = rows_at(out, out_strides, at.batch, at.head);
  store_rows<kWidth>(out, out_strides.row, first_query, p.length, p.width, result, inverse);
}

void forward(const TensorView& out, const TensorView& logsumexp, const TensorView& query, const TensorView& key,
             const TensorView& value, const TensorView& mask, bool causal, double scale) {
  const cudaStream_t stream = current_stream(out.device.index());
  visit(query.dtype, query.sizes[3], [&]<class T, int kWidth>() {
    constexpr int kKeys = kColumns<kWidth>;
    constexpr int kBytes =
        (kTileFloats<kWidth> + 2 * kKeys * (kWidth + kPad) + kRows * (kKeys + kPad)) * static_cast<int>(sizeof(float));
    auto* kernel = forward_kernel<T, kWidth>;
    static const cudaError_t raised = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    MICA_CUDA(raised);
    const Problem<T> p = problem<T>(query, key, value, causal, scale);
    const dim3 blocks(blocks_for(p.length, kRows), static_cast<unsigned>(query.sizes[0] * p.heads));
    kernel<<<blocks, kThreads, kBytes, stream>>>(p, mask_of(mask, query.dtype), out.ptr<T>(), strides_of(out),
                                                 logsumexp.ptr<float>());
    MICA_CUDA(cudaGetLastError());
  });
}

}  // namespace mica::cuda::attention::plain
