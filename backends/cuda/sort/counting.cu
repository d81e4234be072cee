// Counting of integers: bincount, and unique where all of them lie within a small range. Every block counts in a table
// of its own, which it adds to the table of all blocks.
#include "backends/cuda/sort/counting.h"

#include <algorithm>

#include "backends/cuda/block.cuh"
#include "backends/cuda/context.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/pieces.cuh"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

using Count = unsigned long long;  // what atomics take

constexpr int kCountThreads = 512;
constexpr int kResident = 3;                // blocks whose registers fit a multiprocessor
constexpr int kUnderWay = 4;                // pieces of a thread that are asked for at a time
constexpr int64_t kTableBytes = 48 * 1024;  // of shared memory
constexpr int64_t kTableBins = kTableBytes / 4;
constexpr int64_t kMostTables = 6;  // which the elements are read for so many times; more bins are counted in place
constexpr int64_t kPerBlock = kCountThreads * 8;  // bytes that a block should have at least

// Calls f with every integer once, by all threads of the grid together.
template <class U, class F>
__device__ void visit_integers(const U* values, int64_t n, const F& f) {
  constexpr int V = Piece<U>::kCount;
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(values) % 16);
  const int64_t begin = (16 - past) % 16 / static_cast<int64_t>(sizeof(U)), head = begin < n ? begin : n;
  const int64_t pieces = (n - head) / V, step = static_cast<int64_t>(gridDim.x) * kCountThreads;
  const auto* from = reinterpret_cast<const int4*>(values + head);
#pragma unroll 1
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kCountThreads + threadIdx.x; i < pieces; i += kUnderWay * step) {
    int4 bits[kUnderWay];
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j)
      if (i + j * step < pieces) bits[j] = from[i + j * step];
#pragma unroll
    for (int j = 0; j < kUnderWay; ++j) {
      if (i + j * step >= pieces) break;
      const Piece<U> piece = as_piece<U>(bits[j]);
#pragma unroll
      for (int k = 0; k < V; ++k) f(piece.item[k]);
    }
  }
  if (blockIdx.x) return;
  const int64_t others = n - pieces * V;  // before the first piece and behind the last
  for (int64_t i = threadIdx.x; i < others; i += kCountThreads) f(values[i < head ? i : i + pieces * V]);
}

// The number of an integer in the table.
template <class U>
struct Bin {
  U flip, lowest;
  explicit Bin(const IntegerRange& range) : flip(static_cast<U>(range.flip)), lowest(static_cast<U>(range.lowest)) {}
  __device__ U operator()(U bits) const { return static_cast<U>(static_cast<U>(bits ^ flip) - lowest); }
};

// `shares`: a block counts in shared memory, and the blocks along y each take a part of the table. Values outside of
// the table are not counted.
template <class U>
__global__ void __launch_bounds__(kCountThreads)
    count_integers(const U* values, int64_t n, Bin<U> bin, Count* counts, int64_t bins, bool shares) {
  using Place = std::conditional_t<sizeof(U) == 8, uint64_t, uint32_t>;
  extern __shared__ unsigned int table[];
  wait_for_predecessors();
  if (!shares)
    return visit_integers(values, n, [&](U bits) {
      const U at = bin(bits);
      if (static_cast<uint64_t>(at) < static_cast<uint64_t>(bins)) atomicAdd(counts + at, Count(1));
    });
  const auto first = static_cast<Place>(blockIdx.y * kTableBins);
  const auto few =
      static_cast<unsigned>(bins - blockIdx.y * kTableBins < kTableBins ? bins - blockIdx.y * kTableBins : kTableBins);
  for (unsigned b = threadIdx.x; b < few; b += kCountThreads) table[b] = 0;
  __syncthreads();
  visit_integers(values, n, [&](U bits) {
    const Place at = static_cast<Place>(bin(bits)) - first;
    if (at < few) atomicAdd(table + at, 1u);
  });
  __syncthreads();
  counts += blockIdx.y * kTableBins;
  for (unsigned b = threadIdx.x; b < few; b += kCountThreads)
    if (table[b]) atomicAdd(counts + b, Count(table[b]));
}

// The largest number goes to range[1] and the smallest, all its bits turned, to range[0]; both begin as zero.
template <class U>
__global__ void __launch_bounds__(kCountThreads) find_range(const U* values, int64_t n, U flip, Count* range) {
  wait_for_predecessors();
  U low = static_cast<U>(~U(0)), high = 0;
  visit_integers(values, n, [&](U bits) {
    const U number = static_cast<U>(bits ^ flip);
    low = number < low ? number : low;
    high = number > high ? number : high;
  });
  const auto larger = [](Count a, Count b) { return a > b ? a : b; };
  const Count turned = all_reduce<kCountThreads>(~static_cast<Count>(low), larger);
  const Count largest = all_reduce<kCountThreads>(static_cast<Count>(high), larger);
  if (threadIdx.x) return;
  atomicMax(range, turned);
  atomicMax(range + 1, largest);
}

int blocks_to_count(int64_t bytes, int64_t bins, int device) {
  const int64_t in_table = std::min(bins, kTableBins);
  // A block's share is larger than the table that it clears and adds.
  const int64_t wanted = (bytes + kPerBlock - 1) / std::max(kPerBlock, in_table * 16);
  const int64_t resident = std::clamp<int64_t>(192 * 1024 / (in_table * 4 + 1024), 1, kResident);
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, properties(device).multiProcessorCount * resident));
}

template <class F>
void visit_unsigned(const TensorView& self, const F& f) {
  switch (element_size(self.dtype)) {
    case 1:
      return f(self.ptr<const uint8_t>());
    case 2:
      return f(self.ptr<const uint16_t>());
    case 4:
      return f(self.ptr<const uint32_t>());
    default:
      return f(self.ptr<const uint64_t>());
  }
}

void count_all(int64_t* counts, int64_t bins, const TensorView& self, const IntegerRange& range) {
  const int device = self.device.index();
  const cudaStream_t stream = current_stream(device);
  MICA_CUDA(cudaMemsetAsync(counts, 0, static_cast<size_t>(bins) * sizeof(int64_t), stream));
  if (self.numel == 0) return;
  const bool shares = bins <= kTableBins * kMostTables;
  const dim3 blocks(static_cast<unsigned>(blocks_to_count(self.numel * element_size(self.dtype), bins, device)),
                    shares ? blocks_for(bins, kTableBins) : 1);
  const size_t shared = shares ? static_cast<size_t>(std::min(bins, kTableBins)) * 4 : 0;
  visit_unsigned(self, [&]<class U>(const U* values) {
    count_integers<U><<<blocks, kCountThreads, shared, stream>>>(values, self.numel, Bin<U>(range),
                                                                 reinterpret_cast<Count*>(counts), bins, shares);
  });
  MICA_CUDA(cudaGetLastError());
}

constexpr int kCollectThreads = 1024;

// One block goes over the table: what occurs becomes a distinct value, and ranks[b] says the how manieth.
__global__ void __launch_bounds__(kCollectThreads)
    collect_counted(const int64_t* table, int bins, IntegerRange range, int size, Distinct to, unsigned* ranks,
                    int64_t* number) {
  wait_for_predecessors();
  int place = 0;
  int64_t next = static_cast<int>(threadIdx.x) < bins ? table[threadIdx.x] : 0;
#pragma unroll 1
  for (int first = 0; first < bins; first += kCollectThreads) {
    const int b = first + static_cast<int>(threadIdx.x);
    const int64_t count = next;
    next = b + kCollectThreads < bins ? table[b + kCollectThreads] : 0;  // on its way while this one is placed
    int occurring;
    const int at = place + sum_before<kCollectThreads>(count ? 1 : 0, occurring);
    place += occurring;
    if (b < bins && ranks) ranks[b] = static_cast<unsigned>(at);
    if (!count) continue;
    if (to.counts) to.counts[at] = count;
    const uint64_t bits = (static_cast<uint64_t>(b) + range.lowest) ^ range.flip;
    if (size == 1) {
      static_cast<uint8_t*>(to.values)[at] = static_cast<uint8_t>(bits);
    } else if (size == 2) {
      static_cast<uint16_t*>(to.values)[at] = static_cast<uint16_t>(bits);
    } else if (size == 4) {
      static_cast<uint32_t*>(to.values)[at] = static_cast<uint32_t>(bits);
    } else {
      static_cast<uint64_t*>(to.values)[at] = bits;
    }
  }
  if (threadIdx.x == 0) *number = place;
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    look_up_ranks(const U* values, int64_t n, Bin<U> bin, const unsigned* ranks, int64_t* inverse) {
  wait_for_predecessors();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kUnderWay) + threadIdx.x;
  U bits[kUnderWay];
#pragma unroll
  for (int j = 0; j < kUnderWay; ++j) bits[j] = first + j * kThreads < n ? values[first + j * kThreads] : values[0];
  unsigned rank[kUnderWay];
#pragma unroll
  for (int j = 0; j < kUnderWay; ++j) rank[j] = ranks[bin(bits[j])];
#pragma unroll
  for (int j = 0; j < kUnderWay; ++j)
    if (first + j * kThreads < n) inverse[first + j * kThreads] = rank[j];
}

uint64_t sign_bit(DType dtype) {
  const bool is_signed =
      dtype == DType::Int8 || dtype == DType::Int16 || dtype == DType::Int32 || dtype == DType::Int64;
  return is_signed ? uint64_t{1} << (element_size(dtype) * 8 - 1) : 0;
}

}  // namespace

IntegerRange range_of(const TensorView& self) {
  const int64_t size = element_size(self.dtype);
  IntegerRange range{sign_bit(self.dtype), 0, size < 8 ? (uint64_t{1} << size * 8) - 1 : ~uint64_t{0}};
  if (size <= 2) return range;  // few numbers whatever they are
  const int device = self.device.index();
  const cudaStream_t stream = current_stream(device);
  Count found[2];
  const Workspace workspace(sizeof found, device);
  auto* at = static_cast<Count*>(workspace.data());
  MICA_CUDA(cudaMemsetAsync(at, 0, sizeof found, stream));
  const int blocks = blocks_to_count(self.numel * size, 1, device);
  visit_unsigned(self, [&]<class U>(const U* values) {
    if constexpr (sizeof(U) >= 4)
      find_range<U><<<blocks, kCountThreads, 0, stream>>>(values, self.numel, static_cast<U>(range.flip), at);
  });
  MICA_CUDA(cudaGetLastError());
  read_back(found, at, sizeof found, device);
  range.lowest = ~found[0];
  range.highest = found[1];
  return range;
}

bool counts_range(const TensorView& self, const IntegerRange& range) {
  return element_size(self.dtype) <= 2 || range.highest - range.lowest < static_cast<uint64_t>(kTableBins);
}

int64_t unique_by_counting(const Distinct& to, const TensorView& self, const IntegerRange& range) {
  const int device = self.device.index();
  const auto bins = static_cast<int64_t>(range.highest - range.lowest) + 1;
  // The number of distinct values, the table, and the ranks.
  const Workspace workspace(static_cast<size_t>(bins + 1) * 8 + static_cast<size_t>(bins) * 4, device);
  auto* number = static_cast<int64_t*>(workspace.data());
  int64_t* table = number + 1;
  auto* ranks = reinterpret_cast<unsigned*>(table + bins);
  count_all(table, bins, self, range);
  launch<collect_counted>(device, 1, kCollectThreads, static_cast<const int64_t*>(table), static_cast<int>(bins), range,
                          static_cast<int>(element_size(self.dtype)), to, to.inverse ? ranks : nullptr, number);
  if (to.inverse)
    visit_unsigned(self, [&]<class U>(const U* values) {
      launch<look_up_ranks<U>>(device, blocks_for(self.numel, kThreads * kUnderWay), kThreads, values, self.numel,
                               Bin<U>(range), static_cast<const unsigned*>(ranks), to.inverse);
    });
  int64_t distinct;
  read_back(&distinct, number, sizeof distinct, device);
  return distinct;
}

void bincount(const TensorView& counts, const TensorView& values) {
  if (counts.numel == 0) return;
  DeviceGuard guard(counts.device.index());
  count_all(counts.ptr<int64_t>(), counts.numel, values, {0, 0, static_cast<uint64_t>(counts.numel) - 1});
}

}  // namespace mica::cuda
