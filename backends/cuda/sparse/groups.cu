// Indices as keys, equal keys brought together, and the sums of what belongs to them.
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

constexpr int kMaxDims = 64;
struct Shape {
  int dims;
  int64_t sizes[kMaxDims];
  explicit Shape(IntArrayRef of) : dims(static_cast<int>(of.size())) {
    MICA_CHECK(of.size() <= kMaxDims, "sparse tensors on CUDA have up to ", kMaxDims, " sparse dimensions");
    for (int d = 0; d < dims; ++d) sizes[d] = of[static_cast<size_t>(d)];
  }
};

struct KeyOf {
  Shape shape;
  int64_t* keys;
  const int64_t* indices;
  int64_t row, column;  // strides
  __device__ void operator()(int64_t i) const {
    int64_t key = 0;
    for (int d = 0; d < shape.dims; ++d) key = key * shape.sizes[d] + indices[d * row + i * column];
    keys[i] = key;
  }
};
struct IndexOf {
  Shape shape;
  int64_t* indices;
  int64_t row;
  const int64_t *keys, *order, *starts;
  __device__ void operator()(int64_t group) const {
    int64_t rest = keys[order[starts[group]]];
    for (int d = shape.dims - 1; d > 0; --d) {
      const int64_t next = rest / shape.sizes[d];
      indices[d * row + group] = rest - next * shape.sizes[d];
      rest = next;
    }
    if (shape.dims) indices[group] = rest;
  }
};

// Sorted keys and, of each, whether it begins a group.
template <class K>
struct MarkHeads {
  const K* keys;
  uint8_t* heads;
  __device__ void operator()(int64_t i) const { heads[i] = i == 0 || keys[i] != keys[i - 1]; }
};
template <class K>
struct PrepareKeys {
  const int64_t* from;
  K* keys;
  int64_t* places;
  __device__ void operator()(int64_t i) const {
    keys[i] = static_cast<K>(from[i]);
    places[i] = i;
  }
};
struct PutEnd {
  int64_t* starts;
  const int64_t* count;
  int64_t n;
  __device__ void operator()(int64_t) const { starts[*count] = n; }
};

template <class K>
int64_t group(int64_t* order, int64_t* starts, const int64_t* from, int64_t n, int bits, int device) {
  const cudaStream_t stream = current_stream(device);
  const auto length = static_cast<size_t>(n);
  const Workspace keys(length * sizeof(K), device), sorted(length * sizeof(K), device), places(length * 8, device),
      heads(length, device), count(sizeof(int64_t), device);
  auto *const given = static_cast<K*>(keys.data()), *const by_size = static_cast<K*>(sorted.data());
  auto* const number = static_cast<int64_t*>(count.data());
  for_each(device, n, PrepareKeys<K>{from, given, static_cast<int64_t*>(places.data())});
  size_t bytes = 0;
  const auto sort = [&](void* work) {
    MICA_CUDA(cub::DeviceRadixSort::SortPairs(work, bytes, given, by_size, static_cast<const int64_t*>(places.data()),
                                              order, n, 0, bits, stream));
  };
  sort(nullptr);
  {
    const Workspace work(std::max<size_t>(bytes, 16), device);
    sort(work.data());
  }
  auto* const marks = static_cast<uint8_t*>(heads.data());
  for_each(device, n, MarkHeads<K>{by_size, marks});
  const auto select = [&](void* work) {
    MICA_CUDA(cub::DeviceSelect::Flagged(work, bytes, thrust::counting_iterator<int64_t>(0), marks, starts, number, n,
                                         stream));
  };
  select(nullptr);
  {
    const Workspace work(std::max<size_t>(bytes, 16), device);
    select(work.data());
  }
  for_each(device, 1, PutEnd{starts, number, n});
  int64_t groups = 0;
  MICA_CUDA(cudaMemcpyAsync(&groups, number, sizeof groups, cudaMemcpyDeviceToHost, stream));
  MICA_CUDA(cudaStreamSynchronize(stream));
  return groups;
}

// A thread for each element of a group's sum, in the order of the group.
template <class T>
struct SumGroup {
  T* out;
  const T* values;
  const int64_t *order, *starts;
  int64_t width;
  __device__ void operator()(int64_t i) const {
    const int64_t g = i / width, j = i - g * width, first = starts[g], last = starts[g + 1];
    if constexpr (std::is_same_v<T, bool>) {
      bool any = false;
      for (int64_t at = first; at < last; ++at) any |= values[order[at] * width + j];
      out[i] = any;
    } else {
      using C = compute_t<T>;
      C sum = convert<C>(values[order[first] * width + j]);
      for (int64_t at = first + 1; at < last; ++at)
        sum = static_cast<C>(sum + convert<C>(values[order[at] * width + j]));
      out[i] = convert<T>(sum);
    }
  }
};

}  // namespace

void sparse_keys(const TensorView& keys, const TensorView& indices, IntArrayRef sizes) {
  DeviceGuard guard(keys.device.index());
  for_each(
      keys.device.index(), keys.numel,
      KeyOf{Shape(sizes), keys.ptr<int64_t>(), indices.ptr<const int64_t>(), indices.strides[0], indices.strides[1]});
}

void sparse_group_keys(const TensorView& order, const TensorView& starts, const TensorView& keys, int64_t bound,
                       int64_t* groups) {
  const int device = keys.device.index();
  DeviceGuard guard(device);
  const int64_t n = keys.numel;
  if (n == 0) {
    MICA_CUDA(cudaMemsetAsync(starts.data, 0, sizeof(int64_t), current_stream(device)));
    *groups = 0;
    return;
  }
  int bits = 1;
  while (bits < 63 && (bound - 1) >> bits) ++bits;
  auto *const to = order.ptr<int64_t>(), *const begins = starts.ptr<int64_t>();
  const auto* const from = keys.ptr<const int64_t>();
  *groups = bits <= 32 ? group<uint32_t>(to, begins, from, n, bits, device)
                       : group<uint64_t>(to, begins, from, n, bits, device);
}

void sparse_sum_groups(const TensorView& out, const TensorView& values, const TensorView& order,
                       const TensorView& starts) {
  DeviceGuard guard(out.device.index());
  if (out.numel == 0) return;
  visit_number_bool("coalesce", out.dtype, [&]<class T>(Tag<T>) {
    for_each(out.device.index(), out.numel,
             SumGroup<T>{out.ptr<T>(), values.ptr<const T>(), order.ptr<const int64_t>(), starts.ptr<const int64_t>(),
                         out.sizes[1]});
  });
}

void sparse_unflatten_keys(const TensorView& indices, const TensorView& keys, const TensorView& order,
                           const TensorView& starts, IntArrayRef sizes) {
  DeviceGuard guard(indices.device.index());
  for_each(indices.device.index(), indices.sizes[1],
           IndexOf{Shape(sizes), indices.ptr<int64_t>(), indices.strides[0], keys.ptr<const int64_t>(),
                   order.ptr<const int64_t>(), starts.ptr<const int64_t>()});
}

}  // namespace mica::cuda
