#include "mica/parallel.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/expected_work.h"
#include "mica/core/fork.h"
#include "mica/error.h"

namespace mica {
namespace {

constexpr int kMaxThreads = 1024;
// Long enough to bridge the gap between two kernels of one model and the wait for a slower thread of the same kernel,
// short enough that an idle process takes no CPU time.
constexpr auto kSpin = std::chrono::microseconds(100);
// The same while work is expected: a compiled function computes small layers between two kernels that need threads.
constexpr auto kExpectantSpin = std::chrono::milliseconds(1);
constinit std::atomic<int> expecting{0};
// Waking a sleeper costs the one who wakes it some microseconds, so nobody wakes all: each wakes a few, who do the
// same.
constexpr int kWakes = 2;

thread_local int t_index = 0;
thread_local bool t_in_region = false;

// ---- how many threads -----------------------------------------------------------------------------------------

// CPUs that the scheduler grants to this process's control group, or `limit` where it grants all.
int cgroup_cpus(int limit) {
  const auto granted = [](double quota, double period) {
    return quota > 0 && period > 0 ? static_cast<int>(std::ceil(quota / period)) : kMaxThreads;
  };
  double quota = 0, period = 0;
  // Version 2: a group's limit also binds the groups below it.
  std::string group;
  std::ifstream membership("/proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    if (line.starts_with("0::")) group = line.substr(3);
  }
  for (;; group.resize(group.rfind('/'))) {
    std::ifstream file("/sys/fs/cgroup" + group + "/cpu.max");
    if (file >> quota >> period) limit = std::min(limit, granted(quota, period));  // "max 100000" fails to parse
    if (group.rfind('/') == std::string::npos) break;
  }
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period) limit = std::min(limit, granted(quota, period));
  return std::max(limit, 1);
}

// The values below are found at their first use, perhaps by several threads at once: all find the same.
int usable_cpus() {
  static constinit std::atomic<int> known{0};
  int cpus = known.load(std::memory_order_relaxed);
  if (cpus > 0) return cpus;
  cpus = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t affinity;
  if (sched_getaffinity(0, sizeof affinity, &affinity) == 0) cpus = CPU_COUNT(&affinity);
  cpus = cgroup_cpus(std::clamp(cpus, 1, kMaxThreads));
  known.store(cpus, std::memory_order_relaxed);
  return cpus;
}

int initial_threads() {
  for (const char* variable : {"MICA_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* text = std::getenv(variable);
    const long n = text ? std::strtol(text, nullptr, 10) : 0;
    if (n > 0) return static_cast<int>(std::min<long>(n, kMaxThreads));
  }
  return usable_cpus();
}

constinit std::atomic<int> wanted_threads{0};  // 0: as many as the process has at first

// ---- waiting --------------------------------------------------------------------------------------------------

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Ready>
bool spin_until(Ready ready, std::chrono::nanoseconds limit) {
  if (ready()) return true;
  const auto deadline = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 16; ++i) {
      relax();
      if (ready()) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

// ---- the pool -------------------------------------------------------------------------------------------------

struct Range {
  int64_t begin, end;
};

// How a range is cut: chunk i of `count`, sizes equal to within `align`.
struct Chunks {
  int64_t begin, end;
  int count;
  int64_t align;

  int64_t boundary(int i) const {
    if (i == count) return end;
    const int64_t base = (end - begin) / count, extra = (end - begin) % count;
    const int64_t offset = base * i + std::min<int64_t>(i, extra);
    return begin + offset - offset % align;
  }
  Range operator[](int i) const { return {boundary(i), boundary(i + 1)}; }
};

using Body = FunctionRef<void(int64_t, int64_t)>;

// Runs one job at a time. A job is a set of chunks that any thread may claim, each worker its own first (so that a
// repeated job finds its data in the same cache) and the caller whatever is left, so that a worker slow to wake never
// holds it up.
//
// A claimed chunk keeps its job alive until it is counted as done, so job_ may be read by whoever holds a claim. A
// worker that comes too late finds no claim, or one of the next job: both are right.
class Pool {
 public:
  // False when another thread's job is under way; then nothing has run.
  bool try_run(const Chunks& chunks, const Body& body, int threads) {
    if (busy_.exchange(true, std::memory_order_acquire)) return false;
    if (threads != threads_) resize(threads);
    publish(chunks, body);
    work();
    wait_for_workers();
    std::exception_ptr error = std::exchange(error_, nullptr);
    busy_.store(false, std::memory_order_release);
    if (error) std::rethrow_exception(error);
    return true;
  }

 private:
  void publish(const Chunks& chunks, const Body& body) {
    job_ = {chunks, &body};
    note_place();
    pending_.store(static_cast<uint32_t>(chunks.count), std::memory_order_relaxed);
    for (int word = 0; word * 64 < chunks.count; ++word) {
      const int bits = std::min(chunks.count - word * 64, 64);
      unclaimed_[word].store(~uint64_t{0} >> (64 - bits), std::memory_order_release);
    }
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    wake_some(chunks.count - 1);
  }

  void wake_some(int most) {
    if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake(epoch_, std::min(most, kWakes));
  }

  bool has_unclaimed() const {
    for (int word = 0; word * 64 < threads_; ++word)
      if (unclaimed_[word].load(std::memory_order_relaxed)) return true;
    return false;
  }

  bool claim_chunk(int chunk) {
    const uint64_t bit = uint64_t{1} << (chunk % 64);
    return unclaimed_[chunk / 64].fetch_and(~bit, std::memory_order_acquire) & bit;
  }

  // The index of a chunk that now belongs to this thread, or -1.
  int claim() {
    if (unclaimed_[t_index / 64].load(std::memory_order_relaxed) >> (t_index % 64) & 1 && claim_chunk(t_index)) {
      return t_index;
    }
    for (int word = 0; word * 64 < threads_; ++word) {
      while (const uint64_t left = unclaimed_[word].load(std::memory_order_relaxed)) {
        const int chunk = word * 64 + __builtin_ctzll(left);
        if (claim_chunk(chunk)) return chunk;
      }
    }
    return -1;
  }

  void work() {
    for (int chunk; (chunk = claim()) >= 0;) {
      if (t_index > 0) keep_apart();
      t_in_region = true;
      try {
        const Range range = job_.chunks[chunk];
        (*job_.body)(range.begin, range.end);
      } catch (...) {
        std::lock_guard lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
      }
      t_in_region = false;
      if (pending_.fetch_sub(1, std::memory_order_seq_cst) == 1 && caller_sleeps_.load(std::memory_order_seq_cst)) {
        futex_wake(pending_, 1);
      }
    }
  }

  // The scheduler may put two threads on one CPU, where they take turns for milliseconds while another CPU is idle or
  // serves other processes: a job then takes twice as long. Each remembers where it last worked; the one that finds
  // another there moves to a CPU that is nobody's, and may go on from there as the scheduler likes.
  void keep_apart() {
    if (threads_ > usable_cpus()) return;
    const int here = note_place();
    bool shared = false;
    for (int i = 0; i < threads_; ++i) shared |= i != t_index && place_[i].load(std::memory_order_relaxed) == here;
    cpu_set_t usual;
    if (!shared || sched_getaffinity(0, sizeof usual, &usual) != 0) return;
    cpu_set_t others = usual;
    for (int i = 0; i < threads_; ++i) {
      const int taken = place_[i].load(std::memory_order_relaxed);
      if (taken >= 0 && taken < CPU_SETSIZE) CPU_CLR(taken, &others);
    }
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
    sched_setaffinity(0, sizeof usual, &usual);
    note_place();
  }

  // Written only when it changes, so that all threads can read the places of all from their own caches.
  int note_place() {
    const int here = sched_getcpu();
    if (place_[t_index].load(std::memory_order_relaxed) != here) place_[t_index].store(here, std::memory_order_relaxed);
    return here;
  }

  void wait_for_workers() {
    const auto done = [this] { return pending_.load(std::memory_order_acquire) == 0; };
    if (spin_until(done, spin_)) return;
    caller_sleeps_.store(true, std::memory_order_seq_cst);
    for (uint32_t left; (left = pending_.load(std::memory_order_seq_cst)) != 0;) futex_wait(pending_, left);
    caller_sleeps_.store(false, std::memory_order_relaxed);
  }

  // Whether there is another job, after waiting without sleep for a while.
  bool wait_for_job(uint32_t seen) const {
    const auto ready = [&] { return epoch_.load(std::memory_order_acquire) != seen; };
    std::chrono::nanoseconds waited(0);
    do {
      if (spin_until(ready, spin_)) return true;
      waited += spin_;
    } while (spin_.count() > 0 && expecting.load(std::memory_order_relaxed) > 0 && waited < kExpectantSpin);
    return false;
  }

  void serve(int index) {
    t_index = index;
    uint32_t seen = epoch_.load(std::memory_order_acquire);
    while (!stopping_.load(std::memory_order_acquire)) {
      work();
      if (!wait_for_job(seen)) {
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        futex_wait(epoch_, seen);
        sleepers_.fetch_sub(1, std::memory_order_seq_cst);
        if (has_unclaimed()) wake_some(kWakes);
      }
      seen = epoch_.load(std::memory_order_acquire);
    }
  }

  // Called by the thread that has claimed the pool, while no job runs.
  void resize(int threads) {
    stopping_.store(true, std::memory_order_release);
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(epoch_, kMaxThreads);
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stopping_.store(false, std::memory_order_release);

    threads_ = threads;
    for (int i = 0; i < threads; ++i) place_[i].store(-1, std::memory_order_relaxed);
    // With more threads than CPUs a spinning thread holds up the one that it waits for.
    spin_ = threads <= usable_cpus() ? std::chrono::nanoseconds(kSpin) : std::chrono::nanoseconds(0);
    start_workers();
  }

  void start_workers() {
    // Signals belong to the threads of the program.
    sigset_t all, previous;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    try {
      for (int i = 1; i < threads_; ++i) {
        workers_.emplace_back([this, i] { serve(i); });
        pthread_setname_np(workers_.back().native_handle(), ("mica-" + std::to_string(i)).c_str());
      }
    } catch (const std::system_error&) {
      // The system grants no more threads: those that run, and the caller, claim the chunks of the missing ones.
    }
    pthread_sigmask(SIG_SETMASK, &previous, nullptr);
  }

  struct Job {
    Chunks chunks;
    const Body* body;
  };

  alignas(64) std::atomic<uint32_t> epoch_{0};  // changes with every job; workers sleep on it
  Job job_{};
  alignas(64) std::atomic<uint64_t> unclaimed_[kMaxThreads / 64] = {};
  alignas(64) std::atomic<uint32_t> pending_{0};  // chunks not yet done; the caller sleeps on it
  std::atomic<bool> caller_sleeps_{false};
  // The CPU on which each thread last worked, -1 before that; thread 0 is the caller.
  alignas(64) std::atomic<int> place_[kMaxThreads] = {};
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> busy_{false};
  std::atomic<bool> stopping_{false};
  std::chrono::nanoseconds spin_{0};
  int threads_ = 1;
  std::vector<std::thread> workers_;
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

// The pool is never destroyed: its workers outlive static destruction, asleep on memory that stays.
std::atomic<Pool*> g_pool{nullptr};

// fork copies only the calling thread: the child forgets the parent's pool and starts its own when it needs one.
[[maybe_unused]] const bool children_forget_the_pool = [] {
  in_child_of_fork([] { g_pool.store(nullptr); });
  return true;
}();

Pool& pool() {
  Pool* existing = g_pool.load(std::memory_order_acquire);
  if (existing) return *existing;
  auto created = std::make_unique<Pool>();
  if (g_pool.compare_exchange_strong(existing, created.get(), std::memory_order_acq_rel)) return *created.release();
  return *existing;
}

Chunks cut(int64_t begin, int64_t end, int64_t grain, int threads) {
  const int64_t n = end - begin;
  const int count = static_cast<int>(std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, threads));
  // Long chunks start at a multiple of 64 elements: no two threads then write to one cache line of an aligned tensor.
  const int64_t size = n / count;
  return {begin, end, count, size >= 4096 && size - 64 >= grain ? 64 : 1};
}

}  // namespace

int get_num_threads() {
  int threads = wanted_threads.load(std::memory_order_relaxed);
  if (threads > 0) [[likely]]
    return threads;
  int unset = 0;
  threads = initial_threads();
  return wanted_threads.compare_exchange_strong(unset, threads) ? threads : unset;
}

void set_num_threads(int n) {
  MICA_CHECK(n > 0, "set_num_threads expects a positive integer, got ", n);
  wanted_threads.store(std::min(n, kMaxThreads), std::memory_order_relaxed);
}

void expect_work(bool on) { expecting.fetch_add(on ? 1 : -1, std::memory_order_relaxed); }

bool in_parallel_region() { return t_in_region; }

int thread_index() { return t_index; }

void parallel_for(int64_t begin, int64_t end, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (begin >= end) return;
  const int threads = get_num_threads();
  if (threads == 1 || end - begin <= grain || t_in_region) {
    body(begin, end);
    return;
  }
  const Chunks chunks = cut(begin, end, grain, threads);
  if (chunks.count > 1 && pool().try_run(chunks, body, threads)) return;
  // The pool is at work for another thread. The same chunks one by one give the same result as in parallel.
  for (int i = 0; i < chunks.count; ++i) body(chunks[i].begin, chunks[i].end);
}

}  // namespace mica
