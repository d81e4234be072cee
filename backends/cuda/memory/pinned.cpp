#include "backends/cuda/memory/pinned.h"

#include <chrono>

namespace mica::cuda {

namespace {

size_t bucket(size_t nbytes) {
  size_t size = 512;
  while (size < nbytes) size *= 2;
  return size;
}

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string json(const Count& c) {
  return cat("{\"current\":", c.current, ",\"peak\":", c.peak, ",\"allocated\":", c.added, ",\"freed\":", c.taken, "}");
}

}  // namespace

PinnedCache& pinned_cache() {
  static auto* cache = new PinnedCache;
  return *cache;
}

void* PinnedCache::allocate(size_t nbytes) {
  const size_t size = bucket(nbytes);
  std::lock_guard lock(mutex_);
  auto took = [&](void* data) {
    allocations_.add(1);
    allocated_.add(static_cast<int64_t>(size));
    return data;
  };
  auto& blocks = free_[size];
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].event && cudaEventQuery(blocks[i].event) == cudaErrorNotReady) {
      cudaGetLastError();
      continue;
    }
    if (blocks[i].event) cudaEventDestroy(blocks[i].event);
    void* data = blocks[i].data;
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
    return took(data);
  }
  void* data = nullptr;
  const int64_t start = now_us();
  MICA_CUDA(cudaHostAlloc(&data, size, cudaHostAllocPortable));
  made_us_ += now_us() - start;
  ++made_;
  segments_.add(1);
  reserved_.add(static_cast<int64_t>(size));
  return took(data);
}

void PinnedCache::release(void* data, size_t nbytes) {
  const size_t size = bucket(nbytes);
  std::lock_guard lock(mutex_);
  allocations_.take(1);
  allocated_.take(static_cast<int64_t>(size));
  cudaEvent_t event = nullptr;
  if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess)
    cudaEventRecord(event, current_stream(current_device()));
  free_[size].push_back({data, event});
}

void PinnedCache::empty() {
  std::lock_guard lock(mutex_);
  const int64_t start = now_us();
  for (auto& [size, blocks] : free_)
    for (const Held& held : blocks) {
      if (held.event) cudaEventSynchronize(held.event), cudaEventDestroy(held.event);
      cudaFreeHost(held.data);
      ++freed_;
      segments_.take(1);
      reserved_.take(static_cast<int64_t>(size));
    }
  free_.clear();
  freed_us_ += now_us() - start;
}

std::string PinnedCache::statistics() {
  std::lock_guard lock(mutex_);
  auto time = [](int64_t count, int64_t total) {
    return cat("{\"count\":", count, ",\"total\":", total, ",\"average\":", count ? total / count : 0, "}");
  };
  return cat("{\"allocation\":", json(allocations_), ",\"segment\":", json(segments_),
             ",\"allocated_bytes\":", json(allocated_), ",\"reserved_bytes\":", json(reserved_),
             ",\"num_host_alloc\":", made_, ",\"num_host_free\":", freed_,
             ",\"host_alloc_time\":", time(made_, made_us_), ",\"host_free_time\":", time(freed_, freed_us_), "}");
}

void PinnedCache::reset_peaks() {
  std::lock_guard lock(mutex_);
  for (Count* c : {&allocations_, &segments_, &allocated_, &reserved_}) c->peak = c->current;
}

void PinnedCache::reset_accumulated() {
  std::lock_guard lock(mutex_);
  for (Count* c : {&allocations_, &segments_, &allocated_, &reserved_}) c->added = c->taken = 0;
  made_ = freed_ = made_us_ = freed_us_ = 0;
}

}  // namespace mica::cuda
