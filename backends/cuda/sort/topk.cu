// topk: long rows are cut into parts; the k largest keys of each part are found digit by digit, and then those of all
// parts together. Of equal elements the first ones are taken.
#include "backends/cuda/block.cuh"
#include "backends/cuda/sort/sorted_index.cuh"

namespace mica::cuda {

namespace {

constexpr int kBlock = 512, kItems = 16;
constexpr int64_t kPart = int64_t{kBlock} * kItems;
constexpr int64_t kSorted = 4096;  // candidates of a row that are few enough to be sorted at once

// Keys of the input's elements, for the first round.
template <class T>
struct FromInput {
  using K = key_t<T>;
  SortRows rows;
  const T* in;
  bool turned;
  struct Row {
    const T* in;
    int64_t stride;
    bool turned;
    __device__ K key(int64_t i) const {
      const K k = order_key(in[i * stride]);
      return turned ? static_cast<K>(~k) : k;
    }
    __device__ uint32_t number(int64_t i) const { return static_cast<uint32_t>(i); }
  };
  __device__ Row row(int64_t r) const {
    int64_t at[3];
    rows.places.at(r, at);
    return {in + at[0], rows.strides[0], turned};
  }
};
// Candidates that an earlier round has found.
template <class K_>
struct FromCandidates {
  using K = K_;
  const K* keys;
  const uint32_t* from;
  int64_t n;
  struct Row {
    const K* keys;
    const uint32_t* from;
    __device__ K key(int64_t i) const { return keys[i]; }
    __device__ uint32_t number(int64_t i) const { return from[i]; }
  };
  __device__ Row row(int64_t r) const { return {keys + r * n, from + r * n}; }
};

// Part p of each row of n keys: its k largest, those above the k-th in front, in the order in which they stand. A
// thread holds neighbouring elements. The keys of the last round are turned, so that sorting puts the largest first.
template <class Source, class K = typename Source::K>
__global__ void __launch_bounds__(kBlock)
    select_kernel(Source source, int64_t n, int64_t parts, int k, bool last, K* out_keys, uint32_t* out_from) {
  __shared__ uint32_t histogram[256];
  __shared__ K prefix_of_all;
  __shared__ int wanted_of_all;
  constexpr int kBits = static_cast<int>(sizeof(K)) * 8;
  const int64_t begin = blockIdx.x % parts * kPart;
  const int count = static_cast<int>(n - begin < kPart ? n - begin : kPart);
  const auto row = source.row(blockIdx.x / parts);
  out_keys += static_cast<int64_t>(blockIdx.x) * k;
  out_from += static_cast<int64_t>(blockIdx.x) * k;
  auto put = [&](int place, K key, uint32_t number) {
    out_keys[place] = last ? static_cast<K>(~key) : key;
    out_from[place] = number;
  };
  if (count <= k) {
    // Fewer than wanted: all of them, then keys that come after everything else.
    for (int i = threadIdx.x; i < k; i += kBlock)
      put(i, i < count ? row.key(begin + i) : K(0), i < count ? row.number(begin + i) : 0xffffffffu);
    return;
  }
  const int first = static_cast<int>(threadIdx.x) * kItems;
  K keys[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) keys[j] = first + j < count ? row.key(begin + first + j) : K(0);
  K prefix = 0;
  int wanted = k;  // how many of those that begin with the prefix
  for (int shift = kBits - 8; shift >= 0; shift -= 8) {
    for (int d = threadIdx.x; d < 256; d += kBlock) histogram[d] = 0;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kItems; ++j) {
      const auto key = static_cast<uint64_t>(keys[j]);
      const bool same = first + j < count &&
                        (shift + 8 >= kBits || key >> (shift + 8) == static_cast<uint64_t>(prefix) >> (shift + 8));
      const unsigned members = __ballot_sync(0xffffffffu, same);
      if (!same) continue;
      // Many keys share a digit: one of a warp adds for all that have it.
      const auto digit = static_cast<unsigned>(key >> shift & 255);
      const unsigned peers = __match_any_sync(members, digit);
      if (__ffs(static_cast<int>(peers)) - 1 == static_cast<int>(threadIdx.x % 32))
        atomicAdd(&histogram[digit], static_cast<uint32_t>(__popc(peers)));
    }
    __syncthreads();
    // How many keys have a larger digit, for each of 256 threads; the digit of the k-th is where that passes `wanted`.
    const bool counts = threadIdx.x < 256;
    const int digit = 255 - static_cast<int>(threadIdx.x);
    const uint32_t here = counts ? histogram[digit] : 0;
    uint32_t total;
    const uint32_t before = sum_before<kBlock>(here, total);
    if (counts && before < static_cast<uint32_t>(wanted) && before + here >= static_cast<uint32_t>(wanted)) {
      prefix_of_all = static_cast<K>(prefix | static_cast<K>(static_cast<uint64_t>(digit) << shift));
      wanted_of_all = wanted - static_cast<int>(before);
    }
    __syncthreads();
    prefix = prefix_of_all;
    wanted = wanted_of_all;
  }
  // `prefix` is the k-th largest key; k - wanted keys are above it.
  uint32_t mine = 0;
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    if (first + j >= count) break;
    mine += keys[j] > prefix ? 1u : keys[j] == prefix ? 1u << 16 : 0u;
  }
  uint32_t total;
  const uint32_t before = sum_before<kBlock>(mine, total);
  int above = static_cast<int>(before & 0xffffu), equal = static_cast<int>(before >> 16);
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    if (first + j >= count) break;
    if (keys[j] > prefix) {
      put(above++, keys[j], row.number(begin + first + j));
    } else if (keys[j] == prefix) {
      if (equal < wanted) put(k - wanted + equal, keys[j], row.number(begin + first + j));
      ++equal;
    }
  }
}

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
    Buffer keys, from;
    int64_t n = rows.n;
    do {
      const int64_t parts = (n + kPart - 1) / kPart;
      const bool last = parts * k <= kSorted;
      Buffer next_keys = buffer(rows.rows * parts * k * static_cast<int64_t>(sizeof(K)), device),
             next_from = buffer(rows.rows * parts * k * 4, device);
      auto select = [&](const auto& source) {
        select_kernel<<<static_cast<unsigned>(rows.rows * parts), kBlock, 0, current_stream(device)>>>(
            source, n, parts, static_cast<int>(k), last, static_cast<K*>(next_keys->data()),
            static_cast<uint32_t*>(next_from->data()));
        MICA_CUDA(cudaGetLastError());
      };
      if (keys) {
        select(FromCandidates<K>{static_cast<const K*>(keys->data()), static_cast<const uint32_t*>(from->data()), n});
      } else {
        select(FromInput<T>{rows, self.ptr<const T>(), !largest});
      }
      keys = std::move(next_keys);
      from = std::move(next_from);
      n = parts * k;
    } while (n > kSorted);
    write(sort_keys(static_cast<K*>(keys->data()), static_cast<const uint32_t*>(from->data()), rows.rows, n, device),
          n);
  });
}

}  // namespace mica::cuda
