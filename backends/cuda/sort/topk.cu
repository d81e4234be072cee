// topk: long rows are cut into parts; the k largest keys of each part are found digit by digit, and then those of all
// parts together. Of equal elements the first ones are taken.
#include <cub/cub.cuh>

#include "backends/cuda/sort/sorted_index.cuh"

namespace mica::cuda {

namespace {

constexpr int kBlock = 512;
constexpr int64_t kPart = 32768;

// Part p of each row of n keys: its k largest, those above the k-th in front, in the order in which they stand.
template <class K>
__global__ void __launch_bounds__(kBlock) select_kernel(const K* keys, const uint32_t* from, int64_t n, int64_t part,
                                                        int64_t parts, int k, K* out_keys, uint32_t* out_from) {
  using Scan = cub::BlockScan<uint32_t, kBlock>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ uint32_t histogram[256];
  __shared__ K prefix_of_all;
  __shared__ int wanted_of_all;
  const int64_t row = blockIdx.x / parts, begin = blockIdx.x % parts * part;
  const int64_t count = n - begin < part ? n - begin : part;
  keys += row * n + begin;
  if (from) from += row * n + begin;
  out_keys += static_cast<int64_t>(blockIdx.x) * k;
  out_from += static_cast<int64_t>(blockIdx.x) * k;
  auto number = [&](int64_t i) { return from ? from[i] : static_cast<uint32_t>(begin + i); };
  if (count <= k) {
    // Fewer than wanted: all of them, then keys that come after everything else.
    for (int64_t i = threadIdx.x; i < k; i += kBlock) {
      out_keys[i] = i < count ? keys[i] : K(0);
      out_from[i] = i < count ? number(i) : 0xffffffffu;
    }
    return;
  }
  K prefix = 0;
  int wanted = k;  // how many of those that begin with the prefix
  for (int shift = static_cast<int>(sizeof(K)) * 8 - 8; shift >= 0; shift -= 8) {
    for (int d = threadIdx.x; d < 256; d += kBlock) histogram[d] = 0;
    __syncthreads();
    for (int64_t i = threadIdx.x; i < count; i += kBlock) {
      const K key = keys[i];
      const bool same = shift + 8 >= static_cast<int>(sizeof(K)) * 8 ||
                        static_cast<uint64_t>(key) >> (shift + 8) == static_cast<uint64_t>(prefix) >> (shift + 8);
      if (same) atomicAdd(&histogram[static_cast<uint64_t>(key) >> shift & 255], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int left = wanted, digit = 255;
      while (static_cast<int>(histogram[digit]) < left) left -= static_cast<int>(histogram[digit--]);
      prefix_of_all = static_cast<K>(prefix | static_cast<K>(static_cast<uint64_t>(digit) << shift));
      wanted_of_all = left;
    }
    __syncthreads();
    prefix = prefix_of_all;
    wanted = wanted_of_all;
    __syncthreads();
  }
  // `prefix` is the k-th largest key; k - wanted keys are above it.
  uint32_t above = 0, equal = 0;
  for (int64_t tile = 0; tile < count; tile += kBlock) {
    const int64_t i = tile + threadIdx.x;
    const K key = i < count ? keys[i] : K(0);
    const bool is_above = i < count && key > prefix, is_equal = i < count && key == prefix;
    uint32_t before, total;
    Scan(storage).ExclusiveSum(static_cast<uint32_t>(is_above) | static_cast<uint32_t>(is_equal) << 16, before, total);
    const uint32_t place_above = above + (before & 0xffffu), place_equal = equal + (before >> 16);
    if (is_above || (is_equal && place_equal < static_cast<uint32_t>(wanted))) {
      const uint32_t place = is_above ? place_above : static_cast<uint32_t>(k - wanted) + place_equal;
      out_keys[place] = key;
      out_from[place] = number(i);
    }
    above += total & 0xffffu;
    equal += total >> 16;
    __syncthreads();
  }
}

template <class K>
struct Turn {
  K* keys;
  __device__ void operator()(int64_t i) const { keys[i] = static_cast<K>(~keys[i]); }
};

template <class T>
struct Write {
  SortRows rows;
  const T* in;
  T* values;
  int64_t* indices;
  const uint32_t* order;
  int64_t k, pitch;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / k, j = i - row * k;
    int64_t at[3];
    rows.places.at(row, at);
    const int64_t from = order[row * pitch + j];
    values[at[1] + j * rows.strides[1]] = in[at[0] + from * rows.strides[0]];
    indices[at[2] + j * rows.strides[2]] = from;
  }
};

}  // namespace

void topk(const TensorView& values, const TensorView& indices, const TensorView& self, int64_t k, int64_t dim,
          bool largest, bool) {
  if (values.numel == 0) return;
  DeviceGuard guard(self.device.index());
  const int device = self.device.index();
  SortRows rows(self, values, indices, dim);
  visit_real_bool("topk", self.dtype, [&]<class T>(Tag<T>) {
    using K = key_t<T>;
    auto write = [&](const Buffer& order, int64_t pitch) {
      for_each(device, rows.rows * k,
               Write<T>{rows, self.ptr<const T>(), values.ptr<T>(), indices.ptr<int64_t>(),
                        static_cast<const uint32_t*>(order->data()), k, pitch});
    };
    if (rows.n <= 4096 || k > 1024 || k * 4 > rows.n) return write(sorted_index<T>(rows, self, largest), rows.n);
    Buffer keys = buffer(rows.rows * rows.n * static_cast<int64_t>(sizeof(K)), device), from;
    for_each(device, rows.rows * rows.n,
             MakeKeys<T>{rows, self.ptr<const T>(), static_cast<K*>(keys->data()), !largest});
    int64_t n = rows.n;
    while (n > k) {
      const int64_t parts = (n + kPart - 1) / kPart;
      Buffer next_keys = buffer(rows.rows * parts * k * static_cast<int64_t>(sizeof(K)), device),
             next_from = buffer(rows.rows * parts * k * 4, device);
      select_kernel<K><<<static_cast<unsigned>(rows.rows * parts), kBlock, 0, current_stream(device)>>>(
          static_cast<const K*>(keys->data()), from ? static_cast<const uint32_t*>(from->data()) : nullptr, n,
          parts == 1 ? n : kPart, parts, static_cast<int>(k), static_cast<K*>(next_keys->data()),
          static_cast<uint32_t*>(next_from->data()));
      MICA_CUDA(cudaGetLastError());
      keys = std::move(next_keys);
      from = std::move(next_from);
      n = parts * k;
      if (parts == 1) break;
    }
    auto* found = static_cast<K*>(keys->data());
    for_each(device, rows.rows * k, Turn<K>{found});
    write(sort_keys(found, static_cast<const uint32_t*>(from->data()), rows.rows, k, device), k);
  });
}

}  // namespace mica::cuda
