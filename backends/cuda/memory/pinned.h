// Pinned host memory. Blocks are kept by size, since making one takes as long as copying many megabytes. A block is
// used again only after the copies that were queued from or to it: release marks the point on the current stream.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/memory/device_allocator.h"

namespace mica::cuda {

class PinnedCache {
 public:
  void* allocate(size_t nbytes);
  void release(void* data, size_t nbytes);
  void empty();
  std::string statistics();  // JSON under the names of torch.cuda.host_memory_stats
  void reset_peaks();
  void reset_accumulated();

 private:
  struct Held {
    void* data;
    cudaEvent_t event;
  };
  std::mutex mutex_;
  HeldOverFork held_{mutex_, LockOrder::DeviceMemory};
  std::map<size_t, std::vector<Held>> free_;
  Count allocations_, segments_, allocated_, reserved_;
  int64_t made_ = 0, freed_ = 0, made_us_ = 0, freed_us_ = 0;
};

PinnedCache& pinned_cache();

}  // namespace mica::cuda
