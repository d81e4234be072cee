// Tables of rows: their gradient, rows scaled down to a norm, bags of rows.
#include "backends/cuda/bounds.h"
#include "backends/cuda/sort/sorted_index.cuh"

namespace mica::cuda {

namespace {

struct RowKeys {
  const int64_t* rows;
  uint32_t* keys;
  __device__ void operator()(int64_t i) const { keys[i] = static_cast<uint32_t>(rows[i]); }
};

// Positions in the order of their rows: a warp at the first position of each row adds the gradients of all of them, so
// that sums are taken in one order, without atomics.
template <class T>
__global__ void __launch_bounds__(256)
    add_rows(T* out, int64_t out_row, int64_t out_column, const T* grad, int64_t grad_row, int64_t grad_column,
             const int64_t* rows, const uint32_t* order, int64_t count, int64_t num_rows, int64_t width,
             int64_t padding_idx, bool by_frequency, Bounds bounds) {
  using C = compute_t<T>;
  const int64_t p = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (p >= count) return;
  const int64_t row = rows[order[p]];
  if (p > 0 && rows[order[p - 1]] == row) return;
  if (row == padding_idx) return;
  if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(num_rows)) {
    bounds.checked(row, num_rows, 0, false);
    return;
  }
  int64_t end = p + 1;
  while (end < count && rows[order[end]] == row) ++end;
  const C factor = by_frequency ? C(1) / C(static_cast<float>(end - p)) : C(1);
  for (int64_t i = threadIdx.x % 32; i < width; i += 32) {
    C sum = C(0);
    for (int64_t k = p; k < end; ++k) sum = sum + convert<C>(grad[order[k] * grad_row + i * grad_column]);
    out[row * out_row + i * out_column] = convert<T>(sum * factor);
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    renorm_rows(T* table, int64_t row_stride, int64_t step, const int64_t* rows, const uint32_t* order, int64_t count,
                int64_t num_rows, int64_t width, double max_norm, double p, Bounds bounds) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * 8 + threadIdx.x / 32;
  if (at >= count) return;
  const int64_t row = rows[order[at]];
  if (at > 0 && rows[order[at - 1]] == row) return;
  if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(num_rows)) {
    bounds.checked(row, num_rows, 0, false);
    return;
  }
  T* data = table + row * row_stride;
  const bool infinite = ::isinf(p);
  double total = infinite && p < 0 ? INFINITY : 0;
  for (int64_t i = threadIdx.x % 32; i < width; i += 32) {
    const double v = ::fabs(static_cast<double>(convert<compute_t<T>>(data[i * step])));
    if (p == 2) {
      total += v * v;
    } else if (infinite) {
      total = p > 0 ? ::fmax(total, v) : ::fmin(total, v);
    } else if (p == 0) {
      total += v != 0;
    } else {
      total += p == 1 ? v : ::pow(v, p);
    }
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    const double other = __shfl_xor_sync(0xffffffffu, total, mask);
    total = !infinite ? total + other : p > 0 ? ::fmax(total, other) : ::fmin(total, other);
  }
  const double norm = p == 2 ? ::sqrt(total) : infinite || p == 0 || p == 1 ? total : ::pow(total, 1 / p);
  if (!(norm > max_norm)) return;
  const double scale = max_norm / (norm + 1e-7);
  for (int64_t i = threadIdx.x % 32; i < width; i += 32)
    data[i * step] =
        convert<T>(static_cast<compute_t<T>>(static_cast<double>(convert<compute_t<T>>(data[i * step])) * scale));
}

// A thread for each element of a bag's row.
template <class T>
struct Bag {
  T* out;
  int64_t *bag_size, *max_indices;
  const T *table, *factors;
  const int64_t *indices, *begins;
  int64_t width, rows, mode, padding_idx;
  Bounds bounds;
  __device__ void operator()(int64_t k) const {
    using C = compute_t<T>;
    const int64_t b = k / width, d = k % width;
    C total = 0;
    int64_t counted = 0, from = 0;
    for (int64_t i = begins[b]; i < begins[b + 1]; ++i) {
      const int64_t index = indices[i];
      if (index == padding_idx) continue;
      const C v = convert<C>(table[bounds.checked(index, rows, 0, false) * width + d]);
      if (mode == 2) {
        if (counted == 0 || v > total) {
          total = v;
          from = index;
        }
      } else {
        total += factors ? v * convert<C>(factors[i]) : v;
      }
      ++counted;
    }
    if (d == 0) bag_size[b] = counted;
    if (mode == 2 && counted > 0) max_indices[k] = from;
    if (mode == 1 && counted > 0) total *= C(1) / static_cast<C>(counted);
    out[k] = convert<T>(total);
  }
};

Buffer order_of(const TensorView& indices, int device) {
  const Buffer keys = buffer(indices.numel * 4, device);
  auto* k = static_cast<uint32_t*>(keys->data());
  for_each(device, indices.numel, RowKeys{indices.ptr<const int64_t>(), k});
  return sort_keys(k, nullptr, 1, indices.numel, device);
}

}  // namespace

void embedding_dense_backward(const TensorView& out, const TensorView& grad, const TensorView& indices,
                              int64_t padding_idx, bool scale_grad_by_freq) {
  const int device = out.device.index();
  DeviceGuard guard(device);
  const Buffer order = order_of(indices, device);
  visit_floating_complex("embedding_backward", out.dtype, [&]<class T>(Tag<T>) {
    add_rows<T><<<blocks_for(indices.numel, 8), 256, 0, current_stream(device)>>>(
        out.ptr<T>(), out.strides[0], out.strides[1], grad.ptr<const T>(), grad.strides[0], grad.strides[1],
        indices.ptr<const int64_t>(), static_cast<const uint32_t*>(order->data()), indices.numel, out.sizes[0],
        out.sizes[1], padding_idx, scale_grad_by_freq, Bounds::of("embedding_backward", device));
  });
  MICA_CUDA(cudaGetLastError());
}

void embedding_renorm(const TensorView& self, const TensorView& indices, double max_norm, double norm_type) {
  if (indices.numel == 0) return;
  const int device = self.device.index();
  DeviceGuard guard(device);
  const Buffer order = order_of(indices, device);
  visit_floating("embedding_renorm", self.dtype, [&]<class T>(Tag<T>) {
    renorm_rows<T><<<blocks_for(indices.numel, 8), 256, 0, current_stream(device)>>>(
        self.ptr<T>(), self.strides[0], self.strides[1], indices.ptr<const int64_t>(),
        static_cast<const uint32_t*>(order->data()), indices.numel, self.sizes[0], self.sizes[1], max_norm, norm_type,
        Bounds::of("embedding_renorm_", device));
  });
  MICA_CUDA(cudaGetLastError());
}

void embedding_bag(const TensorView& out, const TensorView& bag_size, const TensorView& max_indices,
                   const TensorView& weight, const TensorView& indices, const TensorView& begins,
                   const TensorView& per_sample_weights, int64_t mode, int64_t padding_idx) {
  if (out.numel == 0) return;
  const int device = out.device.index();
  DeviceGuard guard(device);
  visit_floating("embedding_bag", weight.dtype, [&]<class T>(Tag<T>) {
    for_each(device, out.numel,
             Bag<T>{out.ptr<T>(), bag_size.ptr<int64_t>(), max_indices.defined() ? max_indices.ptr<int64_t>() : nullptr,
                    weight.ptr<const T>(), per_sample_weights.defined() ? per_sample_weights.ptr<const T>() : nullptr,
                    indices.ptr<const int64_t>(), begins.ptr<const int64_t>(), out.sizes[1], weight.sizes[0], mode,
                    padding_idx, Bounds::of("embedding_bag", device)});
  });
}

}  // namespace mica::cuda
