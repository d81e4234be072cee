// unique: integers in a small range are counted; other elements are sorted, and where a new value begins, a group does.
#include "backends/cuda/block.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/sort/counting.h"
#include "backends/cuda/sort/sorted_index.cuh"

namespace mica::cuda {

namespace {

constexpr int kPerThread = 8;
constexpr int kTile = kThreads * kPerThread;
constexpr int64_t kMostChunks = 2047;  // whose totals one block adds up

// Elements in an order; a NaN equals nothing.
template <class T>
struct Ordered {
  const T* in;
  const uint32_t* order;  // null: as they stand
  __device__ int64_t from(int64_t i) const { return order ? order[i] : i; }
  __device__ static bool differ(T before, T here) { return order_key(before) != order_key(here) || is_nan(before); }
};

// A thread's part of a tile: which of its elements begin a group.
template <class T>
struct Part {
  T values[kPerThread];
  int64_t from[kPerThread];
  uint32_t begins = 0;

  __device__ Part(const Ordered<T>& elements, int64_t first, int64_t end) {
    if (first >= end) return;
    const T before = first ? elements.in[elements.from(first - 1)] : T{};
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) from[j] = elements.from(first + j < end ? first + j : end - 1);
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) values[j] = elements.in[from[j]];
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const bool begin = first + j == 0 || elements.differ(j ? values[j ? j - 1 : 0] : before, values[j]);
      if (first + j < end && begin) begins |= 1u << j;
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    count_groups(int64_t n, int64_t chunk, Ordered<T> elements, int64_t* counts) {
  wait_for_predecessors();
  const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
  int64_t count = 0;
#pragma unroll 1
  for (int64_t tile = begin; tile < end; tile += kTile)
    count += __popc(Part<T>(elements, tile + threadIdx.x * kPerThread, end).begins);
  const int64_t total = all_reduce<kThreads>(count, AddOp<int64_t>{});
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}

// `upto`: how many groups begin in each chunk and those before it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    collect_groups(int64_t n, int64_t chunk, Ordered<T> elements, const int64_t* upto, T* values, int64_t* inverse,
                   int64_t* first_of) {
  wait_for_predecessors();
  const int64_t begin = blockIdx.x * chunk, end = begin + chunk < n ? begin + chunk : n;
  int64_t group = blockIdx.x ? upto[blockIdx.x - 1] : 0;
#pragma unroll 1
  for (int64_t tile = begin; tile < end; tile += kTile) {
    const int64_t first = tile + threadIdx.x * kPerThread;
    const Part<T> part(elements, first, end);
    int total;
    int64_t here = group + sum_before<kThreads>(__popc(part.begins), total) - 1;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (part.begins >> j & 1) {
        ++here;
        values[here] = part.values[j];
        if (first_of) first_of[here] = first + j;
      }
      if (inverse && first + j < end) inverse[part.from[j]] = here;
    }
    group += total;
  }
}

struct Lengths {
  const int64_t* begins;
  int64_t* counts;
  int64_t groups, n;
  __device__ void operator()(int64_t g) const { counts[g] = (g + 1 < groups ? begins[g + 1] : n) - begins[g]; }
};

template <class T>
int64_t group(const TensorView& values, const TensorView& inverse, const TensorView& counts, const Ordered<T>& elements,
              int64_t n, int device) {
  const int64_t tiles = (n + kTile - 1) / kTile;
  const int64_t chunk = (tiles + kMostChunks - 1) / kMostChunks * kTile, chunks = (n + chunk - 1) / chunk;
  const Buffer table = buffer(chunks * 8, device), begins = counts.defined() ? buffer(n * 8, device) : nullptr;
  auto* upto = static_cast<int64_t*>(table->data());
  auto* first_of = begins ? static_cast<int64_t*>(begins->data()) : nullptr;
  const auto blocks = static_cast<unsigned>(chunks);
  launch<count_groups<T>>(device, blocks, kThreads, n, chunk, elements, upto);
  sum_up(upto, chunks, device);
  launch<collect_groups<T>>(device, blocks, kThreads, n, chunk, elements, static_cast<const int64_t*>(upto),
                            values.ptr<T>(), inverse.defined() ? inverse.ptr<int64_t>() : nullptr, first_of);
  int64_t groups;
  read_back(&groups, upto + chunks - 1, sizeof groups, device);
  if (first_of) for_each(device, groups, Lengths{first_of, counts.ptr<int64_t>(), groups, n});
  return groups;
}

// Integers that no index follows are sorted alone.
template <class U>
struct Turn {
  U* to;
  const U* from;
  U flip;
  __device__ void operator()(int64_t i) const { to[i] = static_cast<U>(from[i] ^ flip); }
};
template <class U>
int64_t unique_by_sorting(const TensorView& values, const TensorView& counts, const TensorView& self,
                          const IntegerRange& range, int device) {
  const int64_t n = self.numel;
  const auto* in = self.ptr<const U>();
  // Bits above the highest one in which the ends of the range differ are the same in all elements.
  const int bits = 64 - __builtin_clzll(range.lowest ^ range.highest);
  // A sign that differs is turned before, and back afterwards.
  const U flip = bits == static_cast<int>(sizeof(U)) * 8 ? static_cast<U>(range.flip) : U(0);
  const Buffer sorted = buffer(n * static_cast<int64_t>(sizeof(U)), device);
  auto* to = static_cast<U*>(sorted->data());
  if (flip) {
    const Buffer turned = buffer(n * static_cast<int64_t>(sizeof(U)), device);
    auto* keys = static_cast<U*>(turned->data());
    for_each(device, n, Turn<U>{keys, in, flip});
    sort_numbers(keys, to, n, bits, device);
    for_each(device, n, Turn<U>{to, to, flip});
  } else {
    sort_numbers(in, to, n, bits, device);
  }
  using Signed = std::make_signed_t<U>;  // which makes no difference to what is equal
  return group<Signed>(values, {}, counts, {reinterpret_cast<const Signed*>(to), nullptr}, n, device);
}

}  // namespace

void unique(const TensorView& values, const TensorView& inverse, const TensorView& counts, const TensorView& self,
            bool consecutive, int64_t* count) {
  *count = 0;
  if (self.numel == 0) return;
  const int device = self.device.index();
  DeviceGuard guard(device);
  if (is_integral(self.dtype) && !consecutive) {
    const IntegerRange range = range_of(self);
    if (counts_range(self, range)) {
      const Distinct to{values.data, counts.defined() ? counts.ptr<int64_t>() : nullptr,
                        inverse.defined() ? inverse.ptr<int64_t>() : nullptr};
      *count = unique_by_counting(to, self, range);
      return;
    }
    if (!inverse.defined()) {
      *count = element_size(self.dtype) == 4 ? unique_by_sorting<uint32_t>(values, counts, self, range, device)
                                             : unique_by_sorting<uint64_t>(values, counts, self, range, device);
      return;
    }
  }
  const int64_t flat_size[1] = {self.numel}, flat_stride[1] = {1};
  TensorView flat = self;
  flat.ndim = 1;
  flat.sizes = flat_size;
  flat.strides = flat_stride;
  const Buffer order = consecutive ? nullptr : order_of("unique", SortRows(flat, {}, {}, 0), flat, false);
  const auto* places = order ? static_cast<const uint32_t*>(order->data()) : nullptr;
  auto run = [&]<class T>(Tag<T>) {
    *count = group<T>(values, inverse, counts, {self.ptr<const T>(), places}, self.numel, device);
  };
  // Integers are told apart by their bits; any byte but zero is a true one.
  if (self.dtype == DType::Bool) return run(Tag<bool>{});
  if (is_floating(self.dtype)) return visit_floating("unique", self.dtype, run);
  visit_width("unique", self.dtype, run);
}

}  // namespace mica::cuda
