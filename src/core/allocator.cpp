#include "mica/allocator.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "large_blocks.h"
#include "mica/error.h"
#include "mica/core/fork.h"
#include "mica/core/work_space.h"
#include "size_classes.h"
#include "system_memory.h"

namespace mica {
namespace {

using namespace detail;

// AddressSanitizer sees an overflow only at the ends of blocks of its own.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCaching = false;
#else
constexpr bool kCaching = true;
#endif

constexpr size_t kListBytes = size_t{512} << 10;  // the most bytes that one thread keeps of one size
constexpr int64_t kUncountedBytes = int64_t{256} << 10;

// How many blocks of a class a thread keeps.
constexpr auto kListLimit = [] {
  std::array<uint32_t, kClasses> limits{};
  for (int c = 0; c < kClasses; ++c) {
    limits[c] = static_cast<uint32_t>(std::clamp<size_t>(kListBytes / class_size(c), 2, 256));
  }
  return limits;
}();

// ---- counting -------------------------------------------------------------------------------------------------

// Written by one thread, read by any.
class Counter {
 public:
  int64_t get() const { return value_.load(std::memory_order_relaxed); }
  void set(int64_t value) { value_.store(value, std::memory_order_relaxed); }
  void add(int64_t amount) { set(get() + amount); }

 private:
  std::atomic<int64_t> value_{0};
};

// What a thread has counted and not yet added to the totals of all threads.
struct Tally {
  Counter allocations, frees, fresh;
  Counter bytes;       // the change of allocated_bytes
  Counter most_bytes;  // the highest value of `bytes`

  // True when the tally is due to be added to the totals.
  bool grow(size_t nbytes) {
    allocations.add(1);
    const int64_t now = bytes.get() + static_cast<int64_t>(nbytes);
    bytes.set(now);
    if (now <= most_bytes.get()) [[likely]]
      return false;
    most_bytes.set(now);
    return now > kUncountedBytes;
  }
  bool shrink(size_t nbytes) {
    frees.add(1);
    const int64_t now = bytes.get() - static_cast<int64_t>(nbytes);
    bytes.set(now);
    return now < -kUncountedBytes;
  }
};

struct Totals {
  int64_t allocations = 0, frees = 0, fresh = 0, bytes = 0, peak = 0;

  void absorb(Tally& tally) {
    peak = std::max(peak, bytes + tally.most_bytes.get());
    bytes += tally.bytes.get();
    allocations += tally.allocations.get();
    frees += tally.frees.get();
    fresh += tally.fresh.get();
    for (Counter* counter : {&tally.allocations, &tally.frees, &tally.fresh, &tally.bytes, &tally.most_bytes}) {
      counter->set(0);
    }
  }
};

// ---- threads --------------------------------------------------------------------------------------------------

struct ThreadCache {
  FreeList lists[kClasses];
  Tally tally;
};

// Never destroyed: tensors may be freed by destructors of statics.
struct Heap {
  SpanHeap spans;
  LargeBlocks large;
  // Under the mutex of `spans`:
  Totals totals;
  std::vector<ThreadCache*> caches;  // of all threads
};

// Its own word of static TLS, so that the fast paths reach it without a call.
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadCache* t_cache = nullptr;
constinit thread_local bool t_thread_ended = false;

Heap& heap() {
  static Heap* const instance = new Heap;
  return *instance;
}
[[maybe_unused]] Heap& made_at_load = heap();  // a fork must not come while it is made

void return_blocks(ThreadCache& cache) {
  for (int c = 0; c < kClasses; ++c) heap().spans.take_back(c, cache.lists[c], cache.lists[c].count);
}

struct ThreadEnd {
  ~ThreadEnd() {
    ThreadCache* cache = t_cache;
    t_cache = nullptr;
    t_thread_ended = true;
    Heap& h = heap();
    std::lock_guard lock(h.spans.mutex());
    return_blocks(*cache);
    h.totals.absorb(cache->tally);
    std::erase(h.caches, cache);
    delete cache;
  }
};

// The calling thread's cache. Null after the thread's destructors have run: its last blocks go straight to the heap.
ThreadCache* thread_cache() {
  if (t_cache || t_thread_ended) return t_cache;
  auto* cache = new ThreadCache;
  {
    std::lock_guard lock(heap().spans.mutex());
    heap().caches.push_back(cache);
  }
  t_cache = cache;
  thread_local ThreadEnd at_end;
  static_cast<void>(at_end);
  return cache;
}

[[gnu::noinline]] void settle(Tally& tally) {
  std::lock_guard lock(heap().spans.mutex());
  heap().totals.absorb(tally);
}

// Calls f with the tally of this thread, or with one for this call alone where the thread has none. Adds it to the
// totals if `now`, or if f says that it is due.
template <class F>
void count(bool now, F f) {
  ThreadCache* cache = thread_cache();
  Tally single;
  Tally& tally = cache ? cache->tally : single;
  const bool due = f(tally);
  if (!cache || now || due) settle(tally);
}

// ---- memory that stays unused ---------------------------------------------------------------------------------

// A thread of the allocator's own returns cached memory that nobody wants, so that a program that stays idle holds
// none. It lives only while something is cached.
constinit std::atomic<bool> g_watching{false};

[[maybe_unused]] const bool children_start_their_own_watch = [] {
  in_child_of_fork([] { g_watching.store(false); });
  return true;
}();

// Returns when to look again, or nothing where too little is cached to be worth it.
std::optional<LargeBlocks::Time> return_unused_memory() {
  Heap& h = heap();
  const auto now = std::chrono::steady_clock::now();
  std::optional<LargeBlocks::Time> next = h.large.return_unused(now);
  bool has_spans = false;
  for (int c = 0; c < kClasses; ++c) {  // one class at a time, so that nobody waits for all of them
    std::lock_guard lock(h.spans.mutex());
    if (!h.spans.may_have_unused(c)) continue;
    h.spans.return_unused(c);
    has_spans = true;
  }
  if (has_spans && (!next || now + LargeBlocks::kLeastPatience < *next)) next = now + LargeBlocks::kLeastPatience;
  return next;
}

void watch() {
  for (;;) {
    while (const auto next = return_unused_memory())
      std::this_thread::sleep_until(*next + std::chrono::milliseconds(50));
    g_watching.store(false);
    // A thread that freed memory after the last look, and before the flag was cleared, saw a watch and started none. So
    // this one looks once more.
    if (!return_unused_memory() || g_watching.exchange(true)) return;
  }
}

void watch_unused_memory() {
  if (g_watching.load(std::memory_order_relaxed) || g_watching.exchange(true)) return;
  // Signals belong to the threads of the program.
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  try {
    std::thread thread(watch);
    pthread_setname_np(thread.native_handle(), "mica-memory");
    thread.detach();
  } catch (const std::system_error&) {
    g_watching.store(false);
    return_unused_memory();  // the system grants no thread, so the thread that frees looks itself
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

// ---- allocation off the fast path -----------------------------------------------------------------------------

[[noreturn, gnu::cold]] void fail_out_of_memory(size_t nbytes) {
  const AllocatorStats stats = cpu_allocator_stats();
  fail(ErrorKind::OutOfMemory,
       cat("DefaultCPUAllocator: can't allocate memory: you tried to allocate ", nbytes,
           " bytes. Error code 12 (Cannot allocate memory). Tensors hold ", stats.allocated_bytes, " bytes, ",
           stats.reserved_bytes - std::min(stats.allocated_bytes, stats.reserved_bytes),
           " more are cached, and this machine has ", total_memory(),
           " bytes of RAM and swap. Free tensors that are no longer needed, use a smaller batch, a smaller dtype or "
           "torch.no_grad(), or work on the data in parts."));
}

void* allocate_from_class(size_t nbytes, bool& fresh) {
  const int c = class_of(nbytes);
  ThreadCache* cache = thread_cache();
  FreeList single;
  FreeList& list = cache ? cache->lists[c] : single;
  std::lock_guard lock(heap().spans.mutex());
  if (!heap().spans.refill(c, cache ? kListLimit[c] / 2 : 1, list, fresh)) return nullptr;
  void* block = list.pop();
  if (!cache) heap().spans.take_back(c, single, single.count);
  return block;
}

[[gnu::noinline]] void* allocate_slow(size_t nbytes) {
  if (nbytes == 0) return nullptr;
  if (nbytes > total_memory()) fail_out_of_memory(nbytes);
  void* memory;
  bool fresh = true;
  if constexpr (!kCaching) {
    if (posix_memalign(&memory, kCpuAlignment, nbytes) != 0) memory = nullptr;
  } else if (nbytes <= kClassLimit) {
    memory = allocate_from_class(nbytes, fresh);
    if (!memory && heap().large.trim() > 0) memory = allocate_from_class(nbytes, fresh);
  } else {
    const LargeBlocks::Allocation allocation = heap().large.allocate(nbytes);
    memory = allocation.memory;
    fresh = !allocation.reused;
  }
  if (!memory) fail_out_of_memory(nbytes);
  count(nbytes > kClassLimit, [&](Tally& tally) {
    tally.fresh.add(fresh);
    return tally.grow(nbytes);
  });
  return memory;
}

[[gnu::noinline]] void free_slow(void* memory, size_t nbytes) {
  if (!memory) return;
  if constexpr (!kCaching) {
    std::free(memory);
  } else if (nbytes <= kClassLimit) {
    const int c = class_of(nbytes);
    ThreadCache* cache = thread_cache();
    FreeList single;
    FreeList& list = cache ? cache->lists[c] : single;
    list.push(memory);
    if (!cache || list.count > kListLimit[c]) {
      std::lock_guard lock(heap().spans.mutex());
      heap().spans.take_back(c, list, cache ? list.count / 2 : 1);
      if (heap().spans.may_have_unused(c)) watch_unused_memory();
    }
  } else {
    heap().large.free(memory);
    watch_unused_memory();
  }
  count(nbytes > kClassLimit, [&](Tally& tally) { return tally.shrink(nbytes); });
}

}  // namespace

void* cpu_allocate(size_t nbytes) {
  ThreadCache* cache = t_cache;
  // A size of 0 wraps around and goes the slow way too.
  if (kCaching && nbytes - 1 < kClassLimit && cache) [[likely]] {
    FreeList& list = cache->lists[class_of(nbytes)];
    if (list.head) [[likely]] {
      if (cache->tally.grow(nbytes)) [[unlikely]]
        settle(cache->tally);
      return list.pop();
    }
  }
  return allocate_slow(nbytes);
}

void cpu_free(void* memory, size_t nbytes) {
  ThreadCache* cache = t_cache;
  if (kCaching && nbytes - 1 < kClassLimit && cache) [[likely]] {
    const int c = class_of(nbytes);
    FreeList& list = cache->lists[c];
    if (list.count < kListLimit[c]) [[likely]] {
      list.push(memory);
      if (cache->tally.shrink(nbytes)) [[unlikely]]
        settle(cache->tally);
      return;
    }
  }
  free_slow(memory, nbytes);
}

static std::atomic<size_t (*)()> give_work_space_back{nullptr};
void on_trim(size_t (*give_back)()) { give_work_space_back = give_back; }

size_t cpu_trim() {
  Heap& h = heap();
  size_t (*const give_back)() = give_work_space_back;
  size_t nbytes = give_back ? give_back() : 0;
  nbytes += h.large.trim();
  std::lock_guard lock(h.spans.mutex());
  if (t_cache) return_blocks(*t_cache);
  return nbytes + h.spans.trim();
}

AllocatorStats cpu_allocator_stats() {
  Heap& h = heap();
  AllocatorStats stats;
  std::lock_guard lock(h.spans.mutex());
  stats.allocated_bytes = h.totals.bytes;
  stats.allocations = h.totals.allocations;
  stats.frees = h.totals.frees;
  stats.page_faulting_allocs = h.totals.fresh;
  int64_t most_uncounted = 0;
  for (const ThreadCache* cache : h.caches) {
    const Tally& tally = cache->tally;
    most_uncounted += tally.most_bytes.get();
    stats.allocated_bytes += tally.bytes.get();
    stats.allocations += tally.allocations.get();
    stats.frees += tally.frees.get();
    stats.page_faulting_allocs += tally.fresh.get();
  }
  stats.peak_allocated = std::max(h.totals.peak, h.totals.bytes + most_uncounted);
  stats.cache_hits = stats.allocations - stats.page_faulting_allocs;
  const MappedBytes mapped = mapped_bytes();
  stats.reserved_bytes = kCaching ? mapped.now : stats.allocated_bytes;
  stats.peak_reserved = kCaching ? mapped.peak : stats.peak_allocated;
  return stats;
}

void cpu_reset_peak_stats() {
  Heap& h = heap();
  std::lock_guard lock(h.spans.mutex());
  int64_t uncounted = 0;
  for (ThreadCache* cache : h.caches) {
    cache->tally.most_bytes.set(cache->tally.bytes.get());
    uncounted += cache->tally.bytes.get();
  }
  h.totals.peak = h.totals.bytes + uncounted;
  reset_mapped_peak();
}

}  // namespace mica
