// The caching allocator of one device. Segments, taken from the device, are cut into blocks; neighbouring free blocks
// of a segment are joined again. A block belongs to the stream whose order protects it, or to the graph that was
// captured.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backends/cuda/memory/address_range.h"
#include "backends/cuda/runtime.h"
#include "mica/core/fork.h"

namespace mica::cuda {

struct Segment;

enum class BlockState : uint8_t {
  InUse,
  Free,     // in a pool
  Quick,    // free, and kept as it is for the next request of its size
  Waiting,  // released, while other streams may still use it
  Hole,     // addresses without memory, in a segment that can grow
};

struct Block {
  char* data;
  size_t size;
  Segment* segment;
  BlockState state;
  Block* before = nullptr;  // neighbours in the segment
  Block* after = nullptr;
  size_t wanted = 0, requested = 0;              // what it was last taken for: in whole units, and in bytes
  std::vector<cudaStream_t> other_streams = {};  // that use it as well
};

struct Segment {
  const void* owner;
  bool small;
  bool of_graph;
  size_t size = 0;  // bytes that blocks and holes cover
  Block* first = nullptr;
  std::unique_ptr<AddressRange> range;  // null for memory of one piece
};

struct Count {
  int64_t current = 0, peak = 0, added = 0, taken = 0;
  void add(int64_t n) {
    current += n;
    added += n;
    if (current > peak) peak = current;
  }
  void take(int64_t n) {
    current -= n;
    taken += n;
  }
};
// For small requests, for large ones, and for all.
struct Counts {
  Count of[3];
  void add(bool small, int64_t n) { of[small ? 0 : 1].add(n), of[2].add(n); }
  void take(bool small, int64_t n) { of[small ? 0 : 1].take(n), of[2].take(n); }
};

class DeviceAllocator {
 public:
  explicit DeviceAllocator(int index) : index_(index) {}

  void* allocate(size_t nbytes, cudaStream_t stream);
  void release(void* data);
  void use_on_stream(void* data, cudaStream_t stream);
  void empty();

  void begin_capture(cudaStream_t stream, const void* owner);
  void end_capture(cudaStream_t stream);
  void forget_capture(const void* owner);
  void set_limit(int64_t bytes);
  bool was_used();
  // What the calling thread allocates between begin_pool and end_pool belongs to the pool alone, until free_pool.
  uintptr_t new_pool();
  void begin_pool(uintptr_t pool);
  void end_pool(uintptr_t pool);
  void free_pool(uintptr_t pool);

  MemoryStats stats();
  void reset_peaks();
  void reset_accumulated();
  std::string statistics();  // JSON under torch's names
  std::string snapshot();    // JSON: a list of segments in torch's form

 private:
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  // A released block that other streams may still read: free once the events have passed.
  struct Pending {
    Block* block;
    std::vector<cudaEvent_t> events;
  };
  // The blocks that were released last, for requests of the same size: neither joined nor cut.
  struct QuickList {
    const void* owner = nullptr;
    size_t wanted = 0;
    unsigned count = 0;
    Block* blocks[8];
  };

  std::set<Block*, BySize>& pool(bool small) { return small ? small_ : large_; }
  QuickList& quick_list(size_t wanted, const void* owner);
  Block* take(size_t size, const void* owner);
  void split(Block* block, size_t size);
  void put_back(Block* block);
  Block* join(Block* first, Block* second);
  void collect(bool wait);
  void flush_quick();

  // segments.cpp
  Block* grow(size_t size, const void* owner);
  Block* new_segment(size_t size, const void* owner);
  Block* expand_segment(size_t size, const void* owner);
  bool may_reserve(size_t bytes) const;
  void trim();
  void trim_range(Segment& segment);
  void note_reserved(bool small, int64_t bytes);

  // report.cpp
  [[noreturn]] void fail_full(size_t wanted);

  const int index_;
  std::mutex mutex_;
  HeldOverFork held_{mutex_, LockOrder::DeviceMemory};
  std::vector<std::unique_ptr<Segment>> segments_;
  std::set<Block*, BySize> small_, large_;
  std::unordered_map<void*, Block*> known_;  // blocks that are in use, wait, or are in quick lists
  std::array<QuickList, 128> quick_{};
  std::vector<Pending> pending_;
  std::unordered_map<cudaStream_t, const void*> captures_;  // streams that are being captured, and for which graph
  std::set<const void*> kept_;                              // graphs and pools whose memory stays
  std::vector<std::pair<std::thread::id, const void*>> pools_in_use_;
  int64_t limit_ = 0;  // bytes that may be reserved; 0 for all there are
  Counts allocations_, allocated_, requested_, active_blocks_, active_, reserved_, segment_count_;
  int64_t device_allocations_ = 0, device_frees_ = 0, retries_ = 0, failures_ = 0;
  Count idle_;  // bytes of free blocks in segments that are in use; its peak is over the times when somebody asked
};

DeviceAllocator& allocator(int index);
// Memory comes from these two functions from now on; an error where ours has been used already.
void use_foreign_allocator(void* take, void* give_back);

}  // namespace mica::cuda
