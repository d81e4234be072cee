#include "backends/cuda/allocator.h"

#include <sys/types.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "backends/cuda/memory/device_allocator.h"
#include "backends/cuda/memory/pinned.h"

namespace mica::cuda {

// Never destroyed: tensors of static storage duration outlive the library's own statics.
DeviceAllocator& allocator(int index) {
  static auto* all = [] {
    auto* made = new std::vector<std::unique_ptr<DeviceAllocator>>;
    for (int i = 0; i < device_count(); ++i) made->push_back(std::make_unique<DeviceAllocator>(i));
    return made;
  }();
  return *(*all)[static_cast<size_t>(index)];
}

namespace {

// An allocator of a program that replaces ours.
struct Foreign {
  void* (*take)(ssize_t size, int device, cudaStream_t stream);
  void (*give_back)(void* data, ssize_t size, int device, cudaStream_t stream);
  std::mutex mutex;
  HeldOverFork over_fork{mutex, LockOrder::Devices};
  std::unordered_map<void*, std::pair<ssize_t, cudaStream_t>> held;

  void* allocate(size_t nbytes, int index) {
    // The other's calls of the driver need the device's context, which any call of the runtime makes current.
    thread_local bool started = false;
    if (!started) {
      MICA_CUDA(cudaFree(nullptr));
      started = true;
    }
    const cudaStream_t stream = current_stream(index);
    const auto size = static_cast<ssize_t>(nbytes);
    void* data = take(size, index, stream);
    MICA_CHECK_KIND(data, OutOfMemory, "CUDA out of memory. The allocator that was set has no ", nbytes, " bytes");
    std::lock_guard lock(mutex);
    held[data] = {size, stream};
    return data;
  }
  void release(void* data, int index) {
    std::pair<ssize_t, cudaStream_t> was;
    {
      std::lock_guard lock(mutex);
      const auto found = held.find(data);
      if (found == held.end()) return;
      was = found->second;
      held.erase(found);
    }
    give_back(data, was.first, index, was.second);
  }
};
std::atomic<Foreign*> foreign{nullptr};

}  // namespace

void use_foreign_allocator(void* take, void* give_back) {
  bool used = foreign.load() != nullptr;
  for (int i = 0; i < device_count(); ++i) used = used || allocator(i).was_used();
  MICA_CHECK(!used, "Can't swap an already initialized allocator");
  auto* made = new Foreign;
  made->take = reinterpret_cast<decltype(made->take)>(take);
  made->give_back = reinterpret_cast<decltype(made->give_back)>(give_back);
  foreign = made;
}

void* allocate(size_t nbytes, int index) {
  DeviceGuard guard(index);
  if (Foreign* other = foreign.load(std::memory_order_relaxed)) [[unlikely]]
    return other->allocate(nbytes, index);
  return allocator(index).allocate(nbytes, current_stream(index));
}

void release(void* data, size_t, int index) noexcept {
  if (Foreign* other = foreign.load(std::memory_order_relaxed)) [[unlikely]]
    return other->release(data, index);
  allocator(index).release(data);
}

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

void reset_peak_memory_stats(int index) { allocator(index).reset_peaks(); }

void empty_cache() {
  pinned_cache().empty();
  for (int i = 0; i < device_count(); ++i) {
    DeviceGuard guard(i);
    allocator(i).empty();
  }
}

void* allocate_pinned(size_t nbytes) { return pinned_cache().allocate(nbytes); }

void free_pinned(void* data, size_t nbytes) { pinned_cache().release(data, nbytes); }

bool is_pinned(const void* data) {
  cudaPointerAttributes attributes;
  if (cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.type == cudaMemoryTypeHost;
}

}  // namespace mica::cuda
