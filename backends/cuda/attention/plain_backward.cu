// The gradients of attention in float32 arithmetic. As with 16-bit floats, the scores are made once for the gradient of
// the queries and once for those of keys and values, and nothing is added in global memory.
#include "backends/cuda/attention/plain.h"
#include "backends/cuda/attention/plain_mask.h"
#include "backends/cuda/attention/walk.cuh"

namespace mica::cuda::attention::plain {

template <class T>
struct Gradient {
  Problem<T> p;
  Mask mask;
  const T* grad;
  Strides grad_strides;
  const float *logsumexp, *products;
};

// The weight of key k for query q, from their product.
template <class T>
__device__ inline float weight_of(const Gradient<T>& g, float product, int64_t q, int64_t k, float shift,
                                  int64_t mask_base) {
  const Problem<T>& p = g.p;
  if (q >= p.length || k >= p.keys || (p.causal && k > q)) return 0;
  float score = product * p.scale;
  if (g.mask.kind != MaskKind::None)
    score = g.mask.template apply<T>(score, mask_base + q * g.mask.row + k * g.mask.column);
  return score == -INFINITY ? 0.0f : power_of_two((score - shift) * kLog2E);
}

// 64 queries against all keys: dQ = scale * sum over keys of P (dP - products) K.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2) query_kernel(Gradient<T> g, T* grad_query, Strides strides) {
  extern __shared__ __align__(16) float memory[];
  constexpr int kKeys = kColumns<kWidth>, kKeyFloats = kKeys * (kWidth + kPad);
  const Problem<T>& p = g.p;
  float* query_tile = memory;
  float* grad_tile = query_tile + kTileFloats<kWidth>;
  float* key_tile = grad_tile + kTileFloats<kWidth>;
  float* value_tile = key_tile + kKeyFloats;
  float* slope_tile = value_tile + kKeyFloats;
  const QueryBlock<T> at(p, kRows);
  const int64_t first_query = at.first, mask_base = at.batch * g.mask.batch + at.head * g.mask.head;
  const T* grad = rows_at(g.grad, g.grad_strides, at.batch, at.head, first_query);
  load_rows<kRows, kWidth>(query_tile, at.query, p.query_strides.row, p.length - first_query, p.width);
  load_rows<kRows, kWidth>(grad_tile, grad, g.grad_strides.row, p.length - first_query, p.width);
  float shift[kEach], product[kEach], result[kEach][kWidth / 16] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int64_t q = first_query + thread_y() + 8 * i;
    shift[i] = q < p.length ? g.logsumexp[at.number + q] : 0.0f;
    product[i] = q < p.length ? g.products[at.number + q] : 0.0f;
  }
  for (int64_t first_key = 0; first_key < at.last_key; first_key += kKeys) {
    __syncthreads();
    load_rows<kKeys, kWidth>(key_tile, at.key + first_key * p.key_strides.row, p.key_strides.row, p.keys - first_key,
                             p.width);
    load_rows<kKeys, kWidth>(value_tile, at.value + first_key * p.value_strides.row, p.value_strides.row,
                             p.keys - first_key, p.width);
    commit();
    wait_for_all_but<0>();
    __syncthreads();
    float scores[kEach][kKeys / 16] = {}, slopes[kEach][kKeys / 16] = {};
    multiply_rows<kKeys, kWidth>(scores, query_tile, key_tile);
    multiply_rows<kKeys, kWidth>(slopes, grad_tile, value_tile);
#pragma unroll
    for (int i = 0; i < kEach; ++i)
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        const int64_t q = first_query + thread_y() + 8 * i, k = first_key + thread_x() + 16 * j;
        const float weight = weight_of(g, scores[i][j], q, k, shift[i], mask_base);
        slopes[i][j] = weight * (slopes[i][j] - product[i]);
      }
    store_weights<kKeys>(slope_tile, slopes);
    __syncthreads();
    multiply_onto<kKeys, kWidth>(result, slope_tile, key_tile);
  }
  float factor[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) factor[i] = p.scale;
  store_rows<kWidth>(rows_at(grad_query, strides, at.batch, at.head), strides.row, first_query, p.length, p.width,
                     result, factor);
}

// 64 keys against all queries of the heads that share them: dV = sum of P' dO, dK = scale * sum of (P (dP -
// products))' Q. Scores are made transposed.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads, 2)
    key_kernel(Gradient<T> g, T* grad_key, Strides key_strides, T* grad_value, Strides value_strides) {
  extern __shared__ __align__(16) float memory[];
  constexpr int kQueries = kColumns<kWidth>, kQueryFloats = kQueries * (kWidth + kPad);
  const Problem<T>& p = g.p;
  float* key_tile = memory;
  float* value_tile = key_tile + kTileFloats<kWidth>;
  float* query_tile = value_tile + kTileFloats<kWidth>;
  float* grad_tile = query_tile + kQueryFloats;
  float* weight_tile = grad_tile + kQueryFloats;
  const KeyBlock<T> at(p, kRows);
  const int64_t first_key = at.first;
  load_rows<kRows, kWidth>(key_tile, at.key, p.key_strides.row, p.keys - first_key, p.width);
  load_rows<kRows, kWidth>(value_tile, at.value, p.value_strides.row, p.keys - first_key, p.width);
  float for_key[kEach][kWidth / 16] = {}, for_value[kEach][kWidth / 16] = {};
  for (int64_t head = at.kv_head * at.shared; head < (at.kv_head + 1) * at.shared; ++head) {
    const T* query = rows_at(p.query, p.query_strides, at.batch, head);
    const T* grad = rows_at(g.grad, g.grad_strides, at.batch, head);
    const int64_t mask_base = at.batch * g.mask.batch + head * g.mask.head,
                  number = (at.batch * p.heads + head) * p.length;
    for (int64_t first_query = p.causal ? first_key / kQueries * kQueries : 0; first_query < p.length;
         first_query += kQueries) {
      __syncthreads();
      load_rows<kQueries, kWidth>(query_tile, query + first_query * p.query_strides.row, p.query_strides.row,
                                  p.length - first_query, p.width);
      load_rows<kQueries, kWidth>(grad_tile, grad + first_query * g.grad_strides.row, g.grad_strides.row,
                                  p.length - first_query, p.width);
      commit();
      float shift[kQueries / 16], product[kQueries / 16];
#pragma unroll
      for (int j = 0; j < kQueries / 16; ++j) {
        const int64_t q = first_query + thread_x() + 16 * j;
        shift[j] = q < p.length ? g.logsumexp[number + q] : 0.0f;
        product[j] = q < p.length ? g.products[number + q] : 0.0f;
      }
      wait_for_all_but<0>();
      __syncthreads();
      float weights[kEach][kQueries / 16] = {}, slopes[kEach][kQueries / 16] = {};
      multiply_rows<kQueries, kWidth>(weights, key_tile, query_tile);
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kQueries / 16; ++j) {
          const int64_t k = first_key + thread_y() + 8 * i, q = first_query + thread_x() + 16 * j;
          weights[i][j] = weight_of(g, weights[i][j], q, k, shift[j], mask_base);
        }
      store_weights<kQueries>(weight_tile, weights);
      multiply_rows<kQueries, kWidth>(slopes, value_tile, grad_tile);
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kQueries / 16; ++j) slopes[i][j] = weights[i][j] * (slopes[i][j] - product[j]);
      __syncthreads();
      multiply_onto<kQueries, kWidth>(for_value, weight_tile, grad_tile);
      __syncthreads();
      store_weights<kQueries>(weight_tile, slopes);
      __syncthreads();
      multiply_onto<kQueries, kWidth>(for_key, weight_tile, query_tile);
    }
  }
  float one[kEach], factor[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) one[i] = 1, factor[i] = p.scale;
  wait_for_all_but<0>();
  grad_key = rows_at(grad_key, key_strides, at.batch, at.kv_head);
  grad_value = rows_at(grad_value, value_strides, at.batch, at.kv_head);
  store_rows<kWidth>(grad_key, key_strides.row, first_key, p.keys, p.width, for_key, factor);
  store_rows<kWidth>(grad_value, value_strides.row, first_key, p.keys, p.width, for_value, one);
}

void backward(const TensorView& grad_query, const TensorView& grad_key, const TensorView& grad_value,
              const TensorView& grad_out, const TensorView& logsumexp, const float* products, const TensorView& query,
              const TensorView& key, const TensorView& value, const TensorView& mask, bool causal, double scale) {
  visit(query.dtype, query.sizes[3], [&]<class T, int kWidth>() {
    constexpr int kOthers = kColumns<kWidth>;
    constexpr int kBytes = (2 * kTileFloats<kWidth> + 2 * kOthers * (kWidth + kPad) + kRows * (kOthers + kPad)) *
                           static_cast<int>(sizeof(float));
    const Gradient<T> g{problem<T>(query, key, value, causal, scale),
                        mask_of(mask, query.dtype),
                        grad_out.ptr<const T>(),
                        strides_of(grad_out),
                        logsumexp.ptr<const float>(),
                        products};
    launch_gradients<query_kernel<T, kWidth>, key_kernel<T, kWidth>, kRows, kThreads, kBytes>(
        g, query.sizes[0], grad_query, grad_key, grad_value);
  });
}

}  // namespace mica::cuda::attention::plain
