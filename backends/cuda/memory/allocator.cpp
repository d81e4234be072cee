#include "backends/cuda/allocator.h"

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
