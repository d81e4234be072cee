// The order of elements: where the elements of sorted rows stand in the rows that were given.
#pragma once

#include <memory>

#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"
#include "backends/cuda/sort/order_key.cuh"

namespace mica::cuda {

// Rows along one dimension of an input and up to two outputs.
struct SortRows {
  Places<3> places;  // of the rows' beginnings
  int64_t strides[3] = {0, 0, 0};
  int64_t n = 1, rows = 1;
  int device;
  Divider divider;  // by n, where there are few elements

  // Of element i of all rows.
  __device__ int64_t row(int64_t i) const {
    if (rows == 1) return 0;
    return n * rows < int64_t{1} << 31 ? divider.divide(static_cast<uint32_t>(i)) : i / n;
  }

  SortRows(const TensorView& self, const TensorView& values, const TensorView& indices, int64_t dim)
      : device(self.device.index()) {
    auto stride = [](const TensorView& t, int64_t d) { return t.defined() && t.ndim ? t.strides[d] : 0; };
    for (int d = self.ndim - 1; d >= 0; --d)
      if (d != dim) places.add(self.sizes[d], {stride(self, d), stride(values, d), stride(indices, d)});
    places.finish();
    if (self.ndim) {
      n = self.sizes[dim];
      strides[0] = stride(self, dim), strides[1] = stride(values, dim), strides[2] = stride(indices, dim);
    }
    rows = places.numel;
    divider = Divider(static_cast<uint32_t>(std::max<int64_t>(n, 1)));
    MICA_CHECK(n < (int64_t{1} << 31), "sort(): rows of 2^31 elements or more are not supported on ", self.device);
  }
};

using Buffer = std::unique_ptr<Workspace>;
inline Buffer buffer(int64_t bytes, int device) {
  return std::make_unique<Workspace>(static_cast<size_t>(std::max<int64_t>(bytes, 16)), device);
}

// keys[row * n + j] = the key of element j, its bits turned where the order is; numbers[i] = i, where they are wanted.
template <class T>
struct MakeKeys {
  SortRows rows;
  const T* in;
  key_t<T>* keys;
  bool turned;
  uint32_t* numbers = nullptr;
  __device__ void operator()(int64_t i) const {
    const int64_t row = rows.row(i), j = i - row * rows.n;
    int64_t at[3];
    rows.places.at(row, at);
    const auto key = order_key(in[at[0] + j * rows.strides[0]]);
    keys[i] = turned ? static_cast<key_t<T>>(~key) : key;
    if (numbers) numbers[i] = static_cast<uint32_t>(i);
  }
};

inline constexpr int64_t kBlockSorted = 4096;  // rows of up to here are sorted by a block each

// Sorts rows of n keys each, stably, in ascending order. `from` numbers the elements of a row, or is null for 0, 1, ...
// Returns those numbers in the new order; `keys` is spent. `counted`, where it is given, holds 0, 1, ... for all keys.
Buffer sort_keys(uint8_t* keys, const uint32_t* from, int64_t rows, int64_t n, int device, Buffer counted = nullptr);
Buffer sort_keys(uint16_t* keys, const uint32_t* from, int64_t rows, int64_t n, int device, Buffer counted = nullptr);
Buffer sort_keys(uint32_t* keys, const uint32_t* from, int64_t rows, int64_t n, int device, Buffer counted = nullptr);
Buffer sort_keys(uint64_t* keys, const uint32_t* from, int64_t rows, int64_t n, int device, Buffer counted = nullptr);

// Numbers in ascending order, which agree in the bits from `bits` on; `from` stays.
void sort_numbers(const uint32_t* from, uint32_t* to, int64_t n, int bits, int device);
void sort_numbers(const uint64_t* from, uint64_t* to, int64_t n, int bits, int device);

// The order of every row of a tensor.
template <class T>
Buffer sorted_index(const SortRows& rows, const TensorView& self, bool descending) {
  using K = key_t<T>;
  const int64_t total = rows.rows * rows.n;
  const Buffer keys = buffer(total * static_cast<int64_t>(sizeof(K)), rows.device);
  Buffer counted = rows.n > kBlockSorted && total < int64_t{1} << 32 ? buffer(total * 4, rows.device) : nullptr;
  auto* k = static_cast<K*>(keys->data());
  for_each(rows.device, total,
           MakeKeys<T>{rows, self.ptr<const T>(), k, descending,
                       counted ? static_cast<uint32_t*>(counted->data()) : nullptr});
  return sort_keys(k, nullptr, rows.rows, rows.n, rows.device, std::move(counted));
}

// The same for any dtype that has an order.
Buffer order_of(const char* op, const SortRows& rows, const TensorView& self, bool descending);

}  // namespace mica::cuda
