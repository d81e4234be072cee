#include "backends/cpu/gemm/workspace.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "backends/cpu/gemm/gemm.h"
#include "mica/error.h"
#include "mica/core/fork.h"
#include "mica/core/work_space.h"

namespace mica::cpu {
namespace gemm_impl {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLeastHuge = kHugePage / 16;  // small pages lie scattered, and share few sets of the second cache
constexpr size_t kLine = 64;

struct Buffer {
  std::atomic<bool> busy{false};
  char* data = nullptr;
  size_t bytes = 0;

  void release() {
    std::free(data);
    data = nullptr;
    bytes = 0;
  }
  void grow(size_t wanted) {
    if (wanted <= bytes) return;
    release();
    const size_t unit = wanted >= kLeastHuge ? kHugePage : kLine;
    wanted = (wanted + unit - 1) / unit * unit;
    data = static_cast<char*>(std::aligned_alloc(unit, wanted));
    MICA_CHECK_KIND(data != nullptr, OutOfMemory, "matmul: cannot allocate ", wanted, " bytes of work space");
#if defined(__linux__)
    if (unit == kHugePage) madvise(data, wanted, MADV_HUGEPAGE);
#endif
    bytes = wanted;
  }
};

class ThreadBuffers;
std::mutex registry_mutex;
HeldOverFork registry_held(registry_mutex, LockOrder::Workspaces);
ThreadBuffers* registry = nullptr;

class ThreadBuffers {
 public:
  ThreadBuffers() {
    std::lock_guard lock(registry_mutex);
    next_ = registry;
    if (next_) next_->previous_ = this;
    registry = this;
  }
  ~ThreadBuffers() {
    std::lock_guard lock(registry_mutex);
    (previous_ ? previous_->next_ : registry) = next_;
    if (next_) next_->previous_ = previous_;
    for (Buffer& buffer : buffers) buffer.release();
  }
  ThreadBuffers* next() const { return next_; }

  Buffer buffers[static_cast<int>(Slot::Count)];

 private:
  ThreadBuffers* next_ = nullptr;
  ThreadBuffers* previous_ = nullptr;
};

Buffer& thread_buffer(Slot slot) {
  thread_local ThreadBuffers mine;
  return mine.buffers[static_cast<int>(slot)];
}

}  // namespace

WorkBuffer::WorkBuffer(Slot slot, size_t bytes) : buffer_(nullptr) {
  Buffer& buffer = thread_buffer(slot);
  // Only gemm_trim() in another thread can hold the lock, for the time of a free().
  while (buffer.busy.exchange(true, std::memory_order_acquire)) {
  }
  buffer_ = &buffer;
  try {
    buffer.grow(bytes);
  } catch (...) {
    buffer.busy.store(false, std::memory_order_release);
    throw;
  }
  data_ = buffer.data;
}

WorkBuffer::~WorkBuffer() { static_cast<Buffer*>(buffer_)->busy.store(false, std::memory_order_release); }

}  // namespace gemm_impl

static const bool told = (on_trim([] { return static_cast<size_t>(gemm_trim()); }), true);

int64_t gemm_trim() {
  using namespace gemm_impl;
  int64_t freed = 0;
  std::lock_guard lock(registry_mutex);
  for (ThreadBuffers* thread = registry; thread; thread = thread->next()) {
    for (Buffer& buffer : thread->buffers) {
      if (buffer.busy.exchange(true, std::memory_order_acquire)) continue;
      freed += static_cast<int64_t>(buffer.bytes);
      buffer.release();
      buffer.busy.store(false, std::memory_order_release);
    }
  }
  return freed;
}

}  // namespace mica::cpu
