// Locks and fork. A child of fork has only the thread that forked: a lock that another thread held stays held there for
// ever. So a fork waits until it holds every lock of the library itself, and releases them in both processes. A lock is
// told of by a HeldOverFork beside it.
//
// Two rules keep this free of deadlocks. No operation, hook, mode or Python code runs while a lock is held, so that a
// lock is never held by the thread that forks, nor by one that waits for Python's lock. And a thread that holds a lock
// waits only for locks that come later in LockOrder.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace mica {

// The order in which a fork takes the locks.
enum class LockOrder : uint8_t {
  Opening,        // a library or a table is opened or made once
  Registry,       // device types and backends
  Hooks,          // hooks of all modules
  Distributions,  // values that distributions and transforms remember
  RetainedGrads,  // whether the owner of a retained gradient lives
  Gradients,      // gradients and accumulators of leaves
  Views,          // histories of views
  Generators,     // streams of random numbers
  LapackThreads,  // the thread count of the LAPACK library
  Lapack,         // calls of the LAPACK library
  Files,          // calls of the HDF5 library
  Plans,          // plans of transforms, code of compiled chains
  Workspaces,     // work space of products
  Segments,       // memory shared with other processes
  Devices,        // what a device's backend keeps
  DeviceMemory,   // its allocators
  Blocks,         // who holds memory
  Places,         // lines of programs
  Settings,       // options of printing
  Storages,       // memory that storages have moved away from
  MemorySpans,    // the allocator: small blocks
  MemoryBlocks,   // the allocator: large blocks
  Count
};

namespace detail {

// A lock or a gate that a fork takes before it copies the process, and gives back after.
class ForkParticipant {
 public:
  ForkParticipant(const ForkParticipant&) = delete;
  ForkParticipant& operator=(const ForkParticipant&) = delete;
  virtual void take() = 0;
  virtual bool try_to_take() = 0;
  virtual void give_back(bool in_child) = 0;

 protected:
  explicit ForkParticipant(LockOrder order) : order_(order) {}
  ~ForkParticipant() = default;
  void enrol();
  void withdraw();  // waits for a fork that is under way; the caller holds no lock of the library

 private:
  friend struct ForkList;
  ForkParticipant* next_ = nullptr;
  ForkParticipant* previous_ = nullptr;
  LockOrder order_;
  bool taken_ = false;  // or a fork that is under way is about to take it
};

}  // namespace detail

// Enrols a mutex for as long as it lives. Declare it after the mutex.
class HeldOverFork final : detail::ForkParticipant {
 public:
  HeldOverFork(std::mutex& mutex, LockOrder order) : ForkParticipant(order), mutex_(mutex) { enrol(); }
  ~HeldOverFork() { withdraw(); }

 private:
  void take() override { mutex_.lock(); }
  bool try_to_take() override { return mutex_.try_lock(); }
  void give_back(bool) override { mutex_.unlock(); }
  std::mutex& mutex_;
};

// A fixed set of locks, for objects too small and too many to have one each: an object uses the one that its address
// chooses. Two objects may share a lock, so that a thread takes only one of a set at a time.
class LockSet final : detail::ForkParticipant {
 public:
  static constexpr size_t kLocks = 64;
  explicit LockSet(LockOrder order) : ForkParticipant(order) { enrol(); }
  ~LockSet() { withdraw(); }

  static size_t index_of(const void* object) { return (reinterpret_cast<uintptr_t>(object) >> 6) % kLocks; }
  std::mutex& of(const void* object) { return locks_[index_of(object)].mutex; }

 private:
  struct alignas(64) Lock {
    std::mutex mutex;
  };
  void take() override {
    for (Lock& lock : locks_) lock.mutex.lock();
  }
  bool try_to_take() override {
    for (size_t i = 0; i < kLocks; ++i) {
      if (locks_[i].mutex.try_lock()) continue;
      while (i-- > 0) locks_[i].mutex.unlock();
      return false;
    }
    return true;
  }
  void give_back(bool) override {
    for (Lock& lock : locks_) lock.mutex.unlock();
  }
  Lock locks_[kLocks];
};

// Lets any number of threads into code that is not ours, and a fork only when none is in it. A thread enters at the
// outermost level of its call, so that nobody inside waits for another to enter.
class ForkGate final : detail::ForkParticipant {
 public:
  explicit ForkGate(LockOrder order) : ForkParticipant(order) { enrol(); }
  ~ForkGate() { withdraw(); }

  class Pass {
   public:
    explicit Pass(ForkGate& gate) : gate_(gate) { gate_.enter(); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { gate_.leave(); }

   private:
    ForkGate& gate_;
  };

 private:
  void enter();
  void leave();
  void take() override;
  bool try_to_take() override;
  void give_back(bool in_child) override;

  static constexpr uint32_t kClosed = uint32_t{1} << 31;
  std::atomic<uint32_t> inside_{0};
};

// Makes a value once, at its first use, and keeps it for the life of the process. A function's own static would leave a
// child of fork waiting for a thread that it does not have. For objects at namespace scope.
template <class T>
class MadeOnce {
 public:
  T* known() const { return made_.load(std::memory_order_acquire); }  // null before it is made
  template <class Make>
  T& get(const Make& make) {
    if (T* made = known()) return *made;
    std::lock_guard lock(mutex_);
    T* made = made_.load(std::memory_order_relaxed);
    if (!made) made_.store(made = make(), std::memory_order_release);
    return *made;
  }

 private:
  std::atomic<T*> made_{nullptr};
  std::mutex mutex_;
  HeldOverFork held_{mutex_, LockOrder::Opening};
};

// Has every fork from now on take the locks before it calls the fork handlers that are registered already. Called after
// a library was opened that has such handlers.
void take_locks_before_known_fork_handlers();

// Calls `f` in every child of fork, while all locks are held.
void in_child_of_fork(void (*f)());

}  // namespace mica
