// Rows of up to 4096 elements, a block for each: it reads a row, sorts the keys of its elements with their numbers, and
// writes the elements and the numbers. Of the keys only the bits count in which those of a row differ.
#include "backends/cuda/sort/sort_rows.h"

#include <cub/block/block_exchange.cuh>
#include <cub/block/block_radix_sort.cuh>

#include "backends/cuda/block.cuh"
#include "backends/cuda/sort/sorted_index.cuh"

namespace mica::cuda {

namespace {

// Elements of `size` bytes in rows; K holds their bits.
template <class K>
struct RowElements {
  int size;
  bool floating, boolean, turned;
  K mask, sign, infinity;  // all bits of an element, its highest one where it means a sign, and those of infinity

  __device__ K load(const char* at, int64_t i) const {
    if constexpr (sizeof(K) == 8) {
      return reinterpret_cast<const K*>(at)[i];
    } else {
      if (size == 4) return reinterpret_cast<const K*>(at)[i];
      return size == 2 ? K{reinterpret_cast<const uint16_t*>(at)[i]} : K{reinterpret_cast<const uint8_t*>(at)[i]};
    }
  }
  __device__ void store(char* at, int64_t i, K bits) const {
    if constexpr (sizeof(K) == 8) {
      reinterpret_cast<K*>(at)[i] = bits;
    } else if (size == 4) {
      reinterpret_cast<K*>(at)[i] = bits;
    } else if (size == 2) {
      reinterpret_cast<uint16_t*>(at)[i] = static_cast<uint16_t>(bits);
    } else {
      reinterpret_cast<uint8_t*>(at)[i] = static_cast<uint8_t>(bits);
    }
  }
  // order_key() of the element, its bits turned where the order is.
  __device__ K key(K bits) const {
    K key;
    if (floating) {
      const K magnitude = bits & (sign - 1);
      key = magnitude > infinity ? mask : magnitude == 0 ? sign : bits & sign ? ~bits & mask : bits | sign;
    } else {
      key = boolean ? K(bits != 0) : bits ^ sign;
    }
    return turned ? ~key & mask : key;
  }
};

template <class K>
RowElements<K> row_elements(DType dtype, bool turned) {
  const auto size = static_cast<int>(element_size(dtype));
  const auto bits = static_cast<unsigned>(size) * 8;
  RowElements<K> e{size, is_floating(dtype), dtype == DType::Bool, turned, static_cast<K>(~K(0)), 0, 0};
  e.mask = static_cast<K>(e.mask >> (sizeof(K) * 8 - bits));
  const bool is_signed =
      e.floating || dtype == DType::Int8 || dtype == DType::Int16 || dtype == DType::Int32 || dtype == DType::Int64;
  if (is_signed) e.sign = static_cast<K>(K(1) << (bits - 1));
  if (dtype == DType::Float16) e.infinity = static_cast<K>(0x7c00);
  if (dtype == DType::BFloat16) e.infinity = static_cast<K>(0x7f80);
  if (dtype == DType::Float32) e.infinity = static_cast<K>(0x7f800000);
  if (dtype == DType::Float64) e.infinity = static_cast<K>(0x7ff0000000000000);
  return e;
}

template <class K>
struct OrOp {
  __device__ K operator()(K a, K b) const { return a | b; }
};

template <class K, int kBlock, int kItems>
__global__ void __launch_bounds__(kBlock, kBlock < 256     ? 1
                                          : sizeof(K) == 8 ? 2
                                                           : 3)
    sort_rows_kernel(SortRows rows, RowElements<K> elements, const char* in, char* values, int64_t* indices) {
  using Sort = cub::BlockRadixSort<K, kBlock, kItems, unsigned>;
  using Exchange = cub::BlockExchange<K, kBlock, kItems>;
  __shared__ union {
    typename Sort::TempStorage sort;
    typename Exchange::TempStorage exchange;
  } storage;
  wait_for_predecessors();
  const int n = static_cast<int>(rows.n);
  int64_t at[3];
  rows.places.at(blockIdx.x, at);
  in += at[0] * elements.size;
  // Neighbouring lanes read neighbouring elements; then every thread gets neighbouring ones, in which order the sort is
  // stable.
  K keys[kItems];
  const int first = static_cast<int>(threadIdx.x) / 32 * (32 * kItems) + static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int j = 0; j < kItems; ++j)
    keys[j] = first + j * 32 < n ? elements.load(in, (first + j * 32) * rows.strides[0]) : K(0);
  const K one = elements.key(elements.load(in, 0));
  K differing = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    if (first + j * 32 < n) {
      keys[j] = elements.key(keys[j]);
      differing |= keys[j] ^ one;
    } else {
      keys[j] = static_cast<K>(~K(0));  // behind all others, and last among equal ones
    }
  }
  Exchange(storage.exchange).WarpStripedToBlocked(keys, keys);
  unsigned number[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) number[j] = threadIdx.x * kItems + j;
  differing = all_reduce<kBlock>(differing, OrOp<K>{});
  const int begin = differing ? __ffsll(static_cast<long long>(differing)) - 1 : 0;
  const int end = differing ? 64 - __clzll(static_cast<long long>(differing)) : 1;
  __syncthreads();
  Sort(storage.sort).SortBlockedToStriped(keys, number, begin, end);
  if (values) {
#pragma unroll
    for (int j = 0; j < kItems; ++j)
      if (j * kBlock + static_cast<int>(threadIdx.x) < n) keys[j] = elements.load(in, number[j] * rows.strides[0]);
    values += at[1] * elements.size;
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int i = j * kBlock + static_cast<int>(threadIdx.x);
      if (i < n) elements.store(values, i * rows.strides[1], keys[j]);
    }
  }
  if (indices) {
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const int i = j * kBlock + static_cast<int>(threadIdx.x);
      if (i < n) indices[at[2] + i * rows.strides[2]] = number[j];
    }
  }
}

template <class K>
void run(const SortRows& rows, const TensorView& values, const TensorView& indices, const TensorView& self,
         bool descending) {
  const RowElements<K> elements = row_elements<K>(self.dtype, descending);
  const auto* in = static_cast<const char*>(self.data);
  auto* to = values.defined() ? static_cast<char*>(values.data) : nullptr;
  auto* numbers = indices.defined() ? indices.ptr<int64_t>() : nullptr;
  const auto blocks = static_cast<unsigned>(rows.rows);
  if (rows.n <= 128)
    return launch<sort_rows_kernel<K, 32, 4>>(rows.device, blocks, 32, rows, elements, in, to, numbers);
  if (rows.n <= 1024)
    return launch<sort_rows_kernel<K, 128, 8>>(rows.device, blocks, 128, rows, elements, in, to, numbers);
  launch<sort_rows_kernel<K, 256, 16>>(rows.device, blocks, 256, rows, elements, in, to, numbers);
}

}  // namespace

bool sort_short_rows(const SortRows& rows, const TensorView& values, const TensorView& indices, const TensorView& self,
                     bool descending) {
  if (rows.n > kBlockSorted || rows.rows >= int64_t{1} << 31) return false;
  if (element_size(self.dtype) == 8) {
    run<uint64_t>(rows, values, indices, self, descending);
  } else {
    run<uint32_t>(rows, values, indices, self, descending);
  }
  return true;
}

}  // namespace mica::cuda
