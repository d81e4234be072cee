#include "backends/cuda/allocator.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

namespace mica::cuda {

namespace {

// Small requests share segments of 2 MiB, larger ones segments of at least 20 MiB; from 10 MiB on a request has its
// own, in whole 2 MiB. A segment is cut into blocks, and neighbouring free blocks of one segment are joined again.
constexpr size_t kUnit = 512;
constexpr size_t kSmall = size_t{1} << 20;
constexpr size_t kSmallSegment = size_t{2} << 20;
constexpr size_t kLarge = size_t{10} << 20;
constexpr size_t kLargeSegment = size_t{20} << 20;
constexpr size_t kSegmentUnit = size_t{2} << 20;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

struct Block {
  char* data;
  size_t size;
  const void* owner;  // the stream whose order protects it, or the graph that was captured
  bool small;
  bool free = false;
  Block* before = nullptr;  // neighbours in the segment
  Block* after = nullptr;
  std::vector<cudaStream_t> other_streams = {};  // that use it as well
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    if (a->owner != b->owner) return a->owner < b->owner;
    if (a->size != b->size) return a->size < b->size;
    return a->data < b->data;
  }
};

// A released block that other streams may still read: free once the events have passed.
struct Waiting {
  Block* block;
  std::vector<cudaEvent_t> events;
};

class DeviceAllocator {
 public:
  explicit DeviceAllocator(int index) : index_(index) {}

  void* allocate(size_t nbytes, cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    const void* owner = stream;
    if (captures_.empty()) [[likely]] {
      collect(false);
    } else if (const auto found = captures_.find(stream); found != captures_.end()) {
      owner = found->second;
    }
    const size_t size = round_up(nbytes, kUnit);
    Block* block = take(size, owner);
    if (!block) block = grow(size, owner);
    split(block, size);
    block->free = false;
    in_use_.emplace(block->data, block);
    stats_.allocated += static_cast<int64_t>(block->size);
    stats_.peak_allocated = std::max(stats_.peak_allocated, stats_.allocated);
    ++stats_.allocations;
    return block->data;
  }

  void release(void* data) {
    std::lock_guard lock(mutex_);
    const auto found = in_use_.find(data);
    if (found == in_use_.end()) return;
    Block* block = found->second;
    in_use_.erase(found);
    stats_.allocated -= static_cast<int64_t>(block->size);
    if (block->other_streams.empty()) return put_back(block);
    DeviceGuard guard(index_);
    Waiting waiting{block, {}};
    for (cudaStream_t stream : block->other_streams) {
      cudaEvent_t event;
      if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess) continue;
      cudaEventRecord(event, stream);
      waiting.events.push_back(event);
    }
    block->other_streams.clear();
    waiting_.push_back(std::move(waiting));
  }

  void use_on_stream(void* data, cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    const auto found = in_use_.find(data);
    if (found == in_use_.end() || found->second->owner == stream) return;
    auto& others = found->second->other_streams;
    if (std::find(others.begin(), others.end(), stream) == others.end()) others.push_back(stream);
  }

  void empty() {
    std::lock_guard lock(mutex_);
    collect(true);
    return_segments();
  }

  MemoryStats stats() {
    std::lock_guard lock(mutex_);
    MemoryStats s = stats_;
    size_t free_bytes = 0, total_bytes = 0;
    MICA_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    s.free_memory = static_cast<int64_t>(free_bytes);
    s.total_memory = static_cast<int64_t>(total_bytes);
    return s;
  }

  void begin_capture(cudaStream_t stream, const void* owner) {
    std::lock_guard lock(mutex_);
    captures_[stream] = owner;
    kept_.insert(owner);
  }
  void end_capture(cudaStream_t stream) {
    std::lock_guard lock(mutex_);
    captures_.erase(stream);
  }
  void forget_capture(const void* owner) {
    std::lock_guard lock(mutex_);
    kept_.erase(owner);
  }
  void set_limit(int64_t bytes) {
    std::lock_guard lock(mutex_);
    limit_ = bytes;
  }

  void reset_peaks() {
    std::lock_guard lock(mutex_);
    stats_.peak_allocated = stats_.allocated;
    stats_.peak_reserved = stats_.reserved;
  }

 private:
  std::set<Block*, BySize>& pool(bool small) { return small ? small_ : large_; }

  Block* take(size_t size, const void* owner) {
    auto& blocks = pool(size <= kSmall);
    Block wanted{nullptr, size, owner, false};
    const auto found = blocks.lower_bound(&wanted);
    if (found == blocks.end() || (*found)->owner != owner) return nullptr;
    // A large block is not spent on a request that would leave most of it idle and could not be cut.
    if (size > kLarge && (*found)->size > size + kLargeSegment) return nullptr;
    Block* block = *found;
    blocks.erase(found);
    return block;
  }

  Block* grow(size_t size, const void* owner) {
    const size_t segment = size <= kSmall  ? kSmallSegment
                           : size < kLarge ? kLargeSegment
                                           : round_up(size, kSegmentUnit);
    // A capture goes on over this: what is asked for here is not part of the graph.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (!captures_.empty()) cudaThreadExchangeStreamCaptureMode(&mode);
    void* data = nullptr;
    cudaError_t status = limit_ > 0 && stats_.reserved + static_cast<int64_t>(segment) > limit_
                             ? cudaErrorMemoryAllocation
                             : cudaMalloc(&data, segment);
    if (!captures_.empty()) cudaThreadExchangeStreamCaptureMode(&mode);
    if (status == cudaErrorMemoryAllocation && captures_.empty()) {
      // What is kept for reuse may be what is missing.
      cudaGetLastError();
      collect(true);
      return_segments();
      if (limit_ == 0 || stats_.reserved + static_cast<int64_t>(segment) <= limit_) status = cudaMalloc(&data, segment);
    }
    if (status == cudaErrorMemoryAllocation) fail_full(segment);
    check(status, "cudaMalloc");
    stats_.reserved += static_cast<int64_t>(segment);
    stats_.peak_reserved = std::max(stats_.peak_reserved, stats_.reserved);
    ++stats_.device_allocations;
    return new Block{static_cast<char*>(data), segment, owner, size <= kSmall};
  }

  // Leaves a remainder in the pool where it is large enough to be of use.
  void split(Block* block, size_t size) {
    const size_t rest = block->size - size;
    if (rest < (block->small ? kUnit : kSmall) || rest == 0) return;
    auto* remainder = new Block{block->data + size, rest, block->owner, block->small, true, block, block->after, {}};
    if (block->after) block->after->before = remainder;
    block->after = remainder;
    block->size = size;
    pool(block->small).insert(remainder);
  }

  void put_back(Block* block) {
    block->free = true;
    if (Block* next = block->after; next && next->free) {
      pool(block->small).erase(next);
      block->size += next->size;
      block->after = next->after;
      if (next->after) next->after->before = block;
      delete next;
    }
    if (Block* previous = block->before; previous && previous->free) {
      pool(block->small).erase(previous);
      previous->size += block->size;
      previous->after = block->after;
      if (block->after) block->after->before = previous;
      delete block;
      block = previous;
    }
    pool(block->small).insert(block);
  }

  // Blocks whose other streams have passed; all of them, waiting for those streams, if `wait`.
  void collect(bool wait) {
    for (size_t i = 0; i < waiting_.size();) {
      Waiting& w = waiting_[i];
      while (!w.events.empty()) {
        if (wait) {
          cudaEventSynchronize(w.events.back());
        } else if (cudaEventQuery(w.events.back()) == cudaErrorNotReady) {
          cudaGetLastError();
          break;
        }
        cudaEventDestroy(w.events.back());
        w.events.pop_back();
      }
      if (!w.events.empty()) {
        ++i;
        continue;
      }
      put_back(w.block);
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void return_segments() {
    for (auto* blocks : {&small_, &large_}) {
      for (auto at = blocks->begin(); at != blocks->end();) {
        Block* block = *at;
        if (block->before || block->after || kept_.contains(block->owner)) {
          ++at;
          continue;
        }
        at = blocks->erase(at);
        cudaFree(block->data);  // waits for what is queued
        stats_.reserved -= static_cast<int64_t>(block->size);
        delete block;
      }
    }
  }

  [[noreturn]] void fail_full(size_t wanted) {
    cudaGetLastError();
    size_t free_bytes = 0, total_bytes = 0;
    cudaMemGetInfo(&free_bytes, &total_bytes);
    auto mib = [](auto bytes) { return static_cast<int64_t>(bytes) >> 20; };
    fail(ErrorKind::OutOfMemory,
         cat("CUDA out of memory. Tried to allocate ", mib(wanted), " MiB. GPU ", index_, " has a total capacity of ",
             mib(total_bytes), " MiB of which ", mib(free_bytes), " MiB is free. Tensors hold ", mib(stats_.allocated),
             " MiB, and ", mib(stats_.reserved - stats_.allocated), " MiB is reserved but unused."));
  }

  const int index_;
  std::mutex mutex_;
  std::set<Block*, BySize> small_, large_;
  std::unordered_map<void*, Block*> in_use_;
  std::vector<Waiting> waiting_;
  std::unordered_map<cudaStream_t, const void*> captures_;  // streams that are being captured, and for which graph
  std::set<const void*> kept_;                              // graphs whose memory stays
  int64_t limit_ = 0;                                       // bytes that may be reserved; 0 for all there are
  MemoryStats stats_;
};

// Never destroyed: tensors of static storage duration outlive the library's own statics.
DeviceAllocator& allocator(int index) {
  static auto* all = [] {
    auto* made = new std::vector<std::unique_ptr<DeviceAllocator>>;
    for (int i = 0; i < device_count(); ++i) made->push_back(std::make_unique<DeviceAllocator>(i));
    return made;
  }();
  return *(*all)[static_cast<size_t>(index)];
}

}  // namespace

void* allocate(size_t nbytes, int index) {
  DeviceGuard guard(index);
  return allocator(index).allocate(nbytes, current_stream(index));
}

void release(void* data, size_t, int index) noexcept { allocator(index).release(data); }

void use_on_stream(void* data, Stream stream) {
  allocator(stream.device.index()).use_on_stream(data, static_cast<cudaStream_t>(stream.handle));
}

void begin_capture(cudaStream_t stream, const void* owner, int index) { allocator(index).begin_capture(stream, owner); }
void end_capture(cudaStream_t stream, int index) { allocator(index).end_capture(stream); }
void forget_capture(const void* owner, int index) { allocator(index).forget_capture(owner); }
void set_memory_limit(int64_t bytes, int index) { allocator(index).set_limit(bytes); }

MemoryStats memory_stats(int index) {
  DeviceGuard guard(index);
  return allocator(index).stats();
}

static void empty_pinned();

void reset_peak_memory_stats(int index) { allocator(index).reset_peaks(); }

void empty_cache() {
  empty_pinned();
  for (int i = 0; i < device_count(); ++i) {
    DeviceGuard guard(i);
    allocator(i).empty();
  }
}

// Pinned blocks are kept by size, since making one takes as long as copying many megabytes. A block is used again only
// after the copies that were queued from or to it: free_pinned marks the point on the current stream.
namespace {

class PinnedCache {
 public:
  void* allocate(size_t nbytes) {
    const size_t size = bucket(nbytes);
    std::lock_guard lock(mutex_);
    auto& blocks = free_[size];
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].event && cudaEventQuery(blocks[i].event) == cudaErrorNotReady) {
        cudaGetLastError();
        continue;
      }
      if (blocks[i].event) cudaEventDestroy(blocks[i].event);
      void* data = blocks[i].data;
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
      return data;
    }
    void* data = nullptr;
    MICA_CUDA(cudaHostAlloc(&data, size, cudaHostAllocPortable));
    return data;
  }
  void release(void* data, size_t nbytes) {
    std::lock_guard lock(mutex_);
    cudaEvent_t event = nullptr;
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess)
      cudaEventRecord(event, current_stream(current_device()));
    free_[bucket(nbytes)].push_back({data, event});
  }
  void empty() {
    std::lock_guard lock(mutex_);
    for (auto& [size, blocks] : free_)
      for (const Held& held : blocks) {
        if (held.event) cudaEventSynchronize(held.event), cudaEventDestroy(held.event);
        cudaFreeHost(held.data);
      }
    free_.clear();
  }

 private:
  struct Held {
    void* data;
    cudaEvent_t event;
  };
  static size_t bucket(size_t nbytes) {
    size_t size = 512;
    while (size < nbytes) size *= 2;
    return size;
  }
  std::mutex mutex_;
  std::map<size_t, std::vector<Held>> free_;
};

PinnedCache& pinned() {
  static auto* cache = new PinnedCache;
  return *cache;
}

}  // namespace

static void empty_pinned() { pinned().empty(); }

void* allocate_pinned(size_t nbytes) { return pinned().allocate(nbytes); }

void free_pinned(void* data, size_t nbytes) { pinned().release(data, nbytes); }

bool is_pinned(const void* data) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeHost;
}

}  // namespace mica::cuda
