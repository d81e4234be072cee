// Blocks of memory that are worth a mapping of their own, kept when freed for the next request of about their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace mica::detail {

class LargeBlocks {
 public:
  struct Allocation {
    void* memory;  // null when the system has none
    bool reused;
  };
  Allocation allocate(size_t nbytes);
  void free(void* memory);

  // Unmaps every cached block and returns their bytes.
  size_t trim();

  std::mutex& mutex() { return mutex_; }

 private:
  struct Block {
    void* pages;
    size_t mapped;
    uint64_t freed_at;  // a count of frees: the smaller, the longer unused
  };

  static size_t mapping_for(size_t nbytes);
  bool take_best_fit(size_t wanted, Block& found);
  std::vector<Block> evict_beyond_limit();
  static size_t unmap(const std::vector<Block>& blocks);

  std::mutex mutex_;
  std::vector<Block> cached_;  // by size, and within a size by age
  size_t cached_bytes_ = 0;
  size_t used_bytes_ = 0;
  size_t peak_used_bytes_ = 0;  // brought up to date before used_bytes_ falls
  uint64_t frees_ = 0;
};

}  // namespace mica::detail
