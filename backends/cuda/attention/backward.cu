// The gradients of attention by the matrix unit. The scores are computed again, once for the gradient of the queries
// and once for those of the keys and values. Each gradient is then a sum in registers: nothing is added in global
// memory, and a result does not change from run to run.
#include "backends/cuda/attention/walk.cuh"

namespace mica::cuda {

namespace attention {

constexpr int kWarps = 8, kBlockThreads = kWarps * 32, kRows = kWarps * 16;
// Two blocks on a multiprocessor hide each other's waits. Narrow heads leave registers for that; where two sums are
// kept, with fewer queries at a time.
template <int kWidth>
inline constexpr int kBlocksOf = kWidth <= 64 ? 2 : 1;

template <class T>
struct Backward {
  Problem<T> p;
  const T* grad;
  Strides grad_strides;
  const float *logsumexp, *products;
};

template <int kWidth, class T>
__device__ void store_rows(T* to, int64_t row_stride, int64_t first, int64_t count, int width,
                           const float (&values)[kWidth / 8][4], float factor) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t row = first + lane / 4 + h * 8;
    if (row >= count) continue;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      const int column = n * 8 + lane % 4 * 2;
      if (column < width)
        *reinterpret_cast<uint32_t*>(to + row * row_stride + column) =
            pack<T>(values[n][2 * h] * factor, values[n][2 * h + 1] * factor);
    }
  }
}

// 128 queries against all keys: dQ = scale * sum over keys of P (dP - products) K.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads, kBlocksOf<kWidth>)
    query_kernel(Backward<T> b, T* grad_query, Strides strides) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kOthers = 64;
  const Problem<T>& p = b.p;
  constexpr int kRowBytes = kRows * kWidth * 2, kOtherBytes = kOthers * kWidth * 2;
  const uint32_t query_tile = shared_address(memory), grad_tile = query_tile + kRowBytes;
  auto key_tile = [&](int stage) { return grad_tile + kRowBytes + stage * 2 * kOtherBytes; };
  const QueryBlock<T> at(p, kRows);
  const int64_t first_query = at.first;
  const T* grad = rows_at(b.grad, b.grad_strides, at.batch, at.head, first_query);
  const int blocks = static_cast<int>((at.last_key + kOthers - 1) / kOthers);
  auto load_keys = [&](int block) {
    const int64_t first = static_cast<int64_t>(block) * kOthers;
    const uint32_t to = key_tile(block % 2);
    load_tile<kOthers, kWidth, kBlockThreads>(to, at.key + first * p.key_strides.row, p.key_strides.row, p.keys - first,
                                              p.width);
    load_tile<kOthers, kWidth, kBlockThreads>(to + kOtherBytes, at.value + first * p.value_strides.row,
                                              p.value_strides.row, p.keys - first, p.width);
    commit();
  };
  load_tile<kRows, kWidth, kBlockThreads>(query_tile, at.query, p.query_strides.row, p.length - first_query, p.width);
  load_tile<kRows, kWidth, kBlockThreads>(grad_tile, grad, b.grad_strides.row, p.length - first_query, p.width);
  load_keys(0);
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
  const float scale = p.scale * kLog2E;
  float shift[2], product[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t q = first_query + row + lane / 4 + h * 8;
    shift[h] = q < p.length ? b.logsumexp[at.number + q] * kLog2E : 0.0f;
    product[h] = q < p.length ? b.products[at.number + q] : 0.0f;
  }
  float result[1][kWidth / 8][4] = {};
  for (int block = 0; block < blocks; ++block) {
    if (block + 1 < blocks) {
      load_keys(block + 1);
      wait_for_all_but<1>();
    } else {
      wait_for_all_but<0>();
    }
    __syncthreads();
    const int64_t first_key = static_cast<int64_t>(block) * kOthers;
    // How many keys of the block each of the thread's two queries sees; a warp that sees none continues.
    const auto left = static_cast<int>(p.keys - first_key < kOthers ? p.keys - first_key : kOthers);
    const auto ahead = static_cast<int>(first_query - first_key + 1) + row + lane / 4;
    const int seen[2] = {p.causal && ahead < left ? ahead : left, p.causal && ahead + 8 < left ? ahead + 8 : left};
    if (!p.causal || first_key <= first_query + row + 15) {
      float scores[1][kOthers / 8][4] = {}, slopes[1][kOthers / 8][4] = {};
      multiply_rows<1, kOthers, kWidth, T>(scores, query_tile, row, key_tile(block % 2));
      multiply_rows<1, kOthers, kWidth, T>(slopes, grad_tile, row, key_tile(block % 2) + kOtherBytes);
#pragma unroll
      for (int n = 0; n < kOthers / 8; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float power = power_of_two(__fmaf_rn(scores[0][n][c], scale, -shift[c / 2]));
          const float weight = n * 8 + lane % 4 * 2 + c % 2 < seen[c / 2] ? power : 0.0f;
          scores[0][n][c] = weight * (slopes[0][n][c] - product[c / 2]);
        }
      multiply_accumulated<1, kOthers, kWidth, T>(result, scores, key_tile(block % 2));
    }
    __syncthreads();
  }
  store_rows<kWidth>(rows_at(grad_query, strides, at.batch, at.head), strides.row, first_query + row, p.length, p.width,
                     result[0], p.scale);
}

// 128 keys against all queries of the heads that share them: dV = sum of P' dO, dK = scale * sum of (P (dP -
// products))' Q. Scores are made transposed, so that both factors are at hand.
template <class T, int kWidth>
__global__ void __launch_bounds__(kBlockThreads, kBlocksOf<kWidth>)
    key_kernel(Backward<T> b, T* grad_key, Strides key_strides, T* grad_value, Strides value_strides) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kOthers = kWidth <= 64 ? 32 : 64;
  const Problem<T>& p = b.p;
  constexpr int kRowBytes = kRows * kWidth * 2, kOtherBytes = kOthers * kWidth * 2;
  const uint32_t key_tile = shared_address(memory), value_tile = key_tile + kRowBytes;
  auto query_tile = [&](int stage) { return value_tile + kRowBytes + stage * 2 * kOtherBytes; };
  auto* numbers = reinterpret_cast<float*>(memory + 2 * kRowBytes + 4 * kOtherBytes);  // [stage][2][kOthers]
  const KeyBlock<T> at(p, kRows);
  const int64_t first_key = at.first;
  const int64_t query_blocks = (p.length + kOthers - 1) / kOthers;
  const int64_t first_block = p.causal ? first_key / kOthers : 0;
  const int64_t per_head = query_blocks > first_block ? query_blocks - first_block : 0;
  const auto blocks = static_cast<int>(per_head * at.shared);
  auto load_queries = [&](int block) {
    const int64_t head = at.kv_head * at.shared + block / per_head, first = (first_block + block % per_head) * kOthers;
    const uint32_t to = query_tile(block % 2);
    const T* query = rows_at(p.query, p.query_strides, at.batch, head, first);
    const T* grad = rows_at(b.grad, b.grad_strides, at.batch, head, first);
    load_tile<kOthers, kWidth, kBlockThreads>(to, query, p.query_strides.row, p.length - first, p.width);
    load_tile<kOthers, kWidth, kBlockThreads>(to + kOtherBytes, grad, b.grad_strides.row, p.length - first, p.width);
    if (threadIdx.x < 2 * kOthers) {
      const int i = threadIdx.x % kOthers;
      const int64_t number = (at.batch * p.heads + head) * p.length + first + i;
      const bool inside = first + i < p.length;
      numbers[block % 2 * 2 * kOthers + threadIdx.x] = !inside                 ? 0.0f
                                                       : threadIdx.x < kOthers ? b.logsumexp[number] * kLog2E
                                                                               : b.products[number];
    }
    commit();
  };
  load_tile<kRows, kWidth, kBlockThreads>(key_tile, at.key, p.key_strides.row, p.keys - first_key, p.width);
  load_tile<kRows, kWidth, kBlockThreads>(value_tile, at.value, p.value_strides.row, p.keys - first_key, p.width);
  if (blocks > 0) {
    load_queries(0);
  } else {
    commit();
    wait_for_all_but<0>();
  }
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
  const float scale = p.scale * kLog2E;
  float for_key[1][kWidth / 8][4] = {}, for_value[1][kWidth / 8][4] = {};
  for (int block = 0; block < blocks; ++block) {
    if (block + 1 < blocks) {
      load_queries(block + 1);
      wait_for_all_but<1>();
    } else {
      wait_for_all_but<0>();
    }
    __syncthreads();
    const int64_t first_query = (first_block + block % per_head) * kOthers;
    const float* shift = numbers + block % 2 * 2 * kOthers;
    const float* product = shift + kOthers;
    // Which queries of the block see each of the thread's two keys; a warp whose keys nobody sees continues.
    const auto last = static_cast<int>(p.length - first_query < kOthers ? p.length - first_query : kOthers);
    const auto begin = static_cast<int>(first_key - first_query) + row + lane / 4;
    const int64_t key_row = first_key + row + lane / 4;
    const int from[2] = {p.causal ? begin : 0, p.causal ? begin + 8 : 0};
    const int until[2] = {key_row < p.keys ? last : 0, key_row + 8 < p.keys ? last : 0};
    if (!p.causal || first_key + row < first_query + kOthers) {
      float weights[1][kOthers / 8][4] = {}, slopes[1][kOthers / 8][4] = {};
      multiply_rows<1, kOthers, kWidth, T>(weights, key_tile, row, query_tile(block % 2));
      multiply_rows<1, kOthers, kWidth, T>(slopes, value_tile, row, query_tile(block % 2) + kOtherBytes);
#pragma unroll
      for (int n = 0; n < kOthers / 8; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const int i = n * 8 + lane % 4 * 2 + c % 2;
          const float power = power_of_two(__fmaf_rn(weights[0][n][c], scale, -shift[i]));
          const float weight = i >= from[c / 2] && i < until[c / 2] ? power : 0.0f;
          weights[0][n][c] = weight;
          slopes[0][n][c] = weight * (slopes[0][n][c] - product[i]);
        }
      multiply_accumulated<1, kOthers, kWidth, T>(for_value, weights, query_tile(block % 2) + kOtherBytes);
      multiply_accumulated<1, kOthers, kWidth, T>(for_key, slopes, query_tile(block % 2));
    }
    __syncthreads();
  }
  grad_key = rows_at(grad_key, key_strides, at.batch, at.kv_head);
  grad_value = rows_at(grad_value, value_strides, at.batch, at.kv_head);
  store_rows<kWidth>(grad_key, key_strides.row, first_key + row, p.keys, p.width, for_key[0], p.scale);
  store_rows<kWidth>(grad_value, value_strides.row, first_key + row, p.keys, p.width, for_value[0], 1.0f);
}

void matrix_backward(const TensorView& grad_query, const TensorView& grad_key, const TensorView& grad_value,
                     const TensorView& grad_out, const TensorView& logsumexp, const float* products,
                     const TensorView& query, const TensorView& key, const TensorView& value, bool causal,
                     double scale) {
  visit(query.dtype, query.sizes[3], [&]<class T, int kWidth>() {
    const Backward<T> b{problem<T>(query, key, value, causal, scale), grad_out.ptr<const T>(), strides_of(grad_out),
                        logsumexp.ptr<const float>(), products};
    constexpr int kBytes = (2 * kRows + 4 * 64) * kWidth * 2 + 4 * 64 * 4;  // for either
    launch_gradients<query_kernel<T, kWidth>, key_kernel<T, kWidth>, kRows, kBlockThreads, kBytes>(
        b, query.sizes[0], grad_query, grad_key, grad_value);
  });
}

}  // namespace attention

}  // namespace mica::cuda
