// Blocks of memory that are worth a mapping of their own, kept when freed for the next request of about their size.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "mica/core/fork.h"

namespace mica::detail {

class LargeBlocks {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::nanoseconds kLeastPatience = std::chrono::seconds(1);
  static constexpr std::chrono::nanoseconds kMostPatience = std::chrono::seconds(64);

  struct Allocation {
    void* memory;  // null when the system has none
    bool reused;
  };
  Allocation allocate(size_t nbytes);
  void free(void* memory);

  // Unmaps every cached block and returns their bytes.
  size_t trim();

  // Unmaps the blocks that nobody has wanted for a while before `now`. Returns the time at which to call it again, or
  // nothing where nothing is cached.
  std::optional<Time> return_unused(Time now);

 private:
  struct Block {
    void* pages;
    size_t mapped;
    uint64_t freed_at;  // a count of frees: the smaller, the longer unused
    Time freed_time;
  };
  struct Returned {
    size_t mapped;
    Time time;
  };

  static size_t mapping_for(size_t nbytes);
  bool take_best_fit(size_t wanted, Block& found);
  std::vector<Block> evict_beyond_limit();
  std::vector<Block> evict_before(Time freed);
  void regret(size_t wanted, Time now);
  bool needs_room(size_t mapped);
  static size_t unmap(const std::vector<Block>& blocks);

  std::mutex mutex_;
  HeldOverFork held_{mutex_, LockOrder::MemoryBlocks};
  std::vector<Block> cached_;  // by size, and within a size by age
  size_t cached_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t peak_used_bytes_ = 0;  // brought up to date before used_bytes_ falls
  uint64_t frees_ = 0;
  std::chrono::nanoseconds patience_ = kLeastPatience;  // how long a block stays cached
  std::vector<Returned> returned_;                      // blocks that return_unused has unmapped lately
  Time last_regret_{};
  std::atomic<size_t> mapped_unchecked_{0};  // bytes mapped since the system was last asked what it has left
};

}  // namespace mica::detail
