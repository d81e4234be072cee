// Radix sorts of keys: a block for each short row; one sort of everything for long rows, and then another by row.
#include <cub/block/block_radix_sort.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "backends/cuda/sort/sorted_index.cuh"

namespace mica::cuda {

namespace {

template <class K, int kBlock, int kItems>
__global__ void __launch_bounds__(kBlock) sort_short_rows(const K* keys, const uint32_t* from, uint32_t* order, int n) {
  using Sort = cub::BlockRadixSort<K, kBlock, kItems, uint32_t>;
  __shared__ typename Sort::TempStorage storage;
  const int64_t base = static_cast<int64_t>(blockIdx.x) * n;
  K key[kItems];
  uint32_t number[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = threadIdx.x * kItems + j;
    // What pads a row is the largest and stands last, and stays last: the sort is stable.
    key[j] = i < n ? keys[base + i] : static_cast<K>(~K(0));
    number[j] = i < n ? (from ? from[base + i] : static_cast<uint32_t>(i)) : 0;
  }
  Sort(storage).Sort(key, number);
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    const int i = threadIdx.x * kItems + j;
    if (i < n) order[base + i] = number[j];
  }
}

struct Iota {
  uint32_t* to;
  __device__ void operator()(int64_t i) const { to[i] = static_cast<uint32_t>(i); }
};
struct RowOf {
  uint32_t* rows;
  const uint32_t* flat;
  uint32_t n;
  __device__ void operator()(int64_t i) const { rows[i] = flat[i] / n; }
};
// A place among all rows becomes one in its row, or what `from` says of it.
struct WithinRow {
  uint32_t* flat;
  const uint32_t* from;
  uint32_t n;
  __device__ void operator()(int64_t i) const { flat[i] = from ? from[flat[i]] : flat[i] % n; }
};

template <class K>
void radix_sort(cub::DoubleBuffer<K>& keys, cub::DoubleBuffer<uint32_t>& values, int64_t count, int bits, int device) {
  const cudaStream_t stream = current_stream(device);
  size_t bytes = 0;
  MICA_CUDA(cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, values, count, 0, bits, stream));
  const Buffer workspace = buffer(static_cast<int64_t>(bytes), device);
  MICA_CUDA(cub::DeviceRadixSort::SortPairs(workspace->data(), bytes, keys, values, count, 0, bits, stream));
}

template <class K>
void sort_alone(const K* from, K* to, int64_t n, int bits, int device) {
  const cudaStream_t stream = current_stream(device);
  size_t bytes = 0;
  MICA_CUDA(cub::DeviceRadixSort::SortKeys(nullptr, bytes, from, to, n, 0, bits, stream));
  const Buffer workspace = buffer(static_cast<int64_t>(bytes), device);
  MICA_CUDA(cub::DeviceRadixSort::SortKeys(workspace->data(), bytes, from, to, n, 0, bits, stream));
}

template <class K>
Buffer sort_any(K* keys, const uint32_t* from, int64_t rows, int64_t n, int device, Buffer counted) {
  const int64_t total = rows * n;
  const bool is_counted = counted != nullptr;
  Buffer order = is_counted ? std::move(counted) : buffer(total * 4, device);
  if (total == 0) return order;
  auto* to = static_cast<uint32_t*>(order->data());
  const cudaStream_t stream = current_stream(device);
  if (n <= kBlockSorted && rows < (int64_t{1} << 31)) {
    const auto blocks = static_cast<unsigned>(rows);
    const auto length = static_cast<int>(n);
    if (n <= 128) {
      sort_short_rows<K, 32, 4><<<blocks, 32, 0, stream>>>(keys, from, to, length);
    } else if (n <= 1024) {
      sort_short_rows<K, 128, 8><<<blocks, 128, 0, stream>>>(keys, from, to, length);
    } else {
      sort_short_rows<K, 256, 16><<<blocks, 256, 0, stream>>>(keys, from, to, length);
    }
    MICA_CUDA(cudaGetLastError());
    return order;
  }
  MICA_CHECK(total < (int64_t{1} << 32), "sort(): 2^32 elements or more in rows of more than 4096 are not supported");
  Buffer other_keys = buffer(total * static_cast<int64_t>(sizeof(K)), device), other_order = buffer(total * 4, device);
  cub::DoubleBuffer<K> key_buffer(keys, static_cast<K*>(other_keys->data()));
  cub::DoubleBuffer<uint32_t> order_buffer(to, static_cast<uint32_t*>(other_order->data()));
  if (!is_counted) for_each(device, total, Iota{to});
  radix_sort(key_buffer, order_buffer, total, static_cast<int>(sizeof(K)) * 8, device);
  if (rows > 1) {
    const Buffer row = buffer(total * 4, device), other_row = buffer(total * 4, device);
    cub::DoubleBuffer<uint32_t> row_buffer(static_cast<uint32_t*>(row->data()),
                                           static_cast<uint32_t*>(other_row->data()));
    for_each(device, total, RowOf{row_buffer.Current(), order_buffer.Current(), static_cast<uint32_t>(n)});
    int bits = 1;
    while (bits < 32 && rows >> bits) ++bits;
    radix_sort(row_buffer, order_buffer, total, bits, device);
  }
  if (rows > 1 || from) for_each(device, total, WithinRow{order_buffer.Current(), from, static_cast<uint32_t>(n)});
  return order_buffer.Current() == to ? std::move(order) : std::move(other_order);
}

}  // namespace

Buffer sort_keys(uint8_t* keys, const uint32_t* from, int64_t rows, int64_t n, int device, Buffer counted) {
  return sort_any(keys, from, rows, n, device, std::move(counted));
}
Buffer sort_keys(uint16_t* keys, const uint32_t* from, int64_t rows, int64_t n, int device, Buffer counted) {
  return sort_any(keys, from, rows, n, device, std::move(counted));
}
Buffer sort_keys(uint32_t* keys, const uint32_t* from, int64_t rows, int64_t n, int device, Buffer counted) {
  return sort_any(keys, from, rows, n, device, std::move(counted));
}
Buffer sort_keys(uint64_t* keys, const uint32_t* from, int64_t rows, int64_t n, int device, Buffer counted) {
  return sort_any(keys, from, rows, n, device, std::move(counted));
}
void sort_numbers(const uint32_t* from, uint32_t* to, int64_t n, int bits, int device) {
  sort_alone(from, to, n, bits, device);
}
void sort_numbers(const uint64_t* from, uint64_t* to, int64_t n, int bits, int device) {
  sort_alone(from, to, n, bits, device);
}

}  // namespace mica::cuda
