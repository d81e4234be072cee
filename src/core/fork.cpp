#include "mica/core/fork.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

namespace mica {
namespace detail {

// All participants, by order. A thread may hold locks while it enrols one, so a fork does not hold the list's own lock
// while it waits for a participant.
struct ForkList {
  static constexpr int kOrders = static_cast<int>(LockOrder::Count);
  static constexpr int kMostChildCalls = 16;

  std::mutex forking;  // held over a fork
  std::mutex mutex;    // guards what follows; the last one that a fork takes
  struct Queue {
    ForkParticipant* first = nullptr;
    ForkParticipant* last = nullptr;
    ForkParticipant* untaken =
        nullptr;  // the first participant that the fork under way has not taken, nor any after it
  } queues[kOrders];
  void (*child_calls[kMostChildCalls])() = {};
  int child_call_count = 0;
  bool is_watching = false;

  void add(ForkParticipant* p) {
    std::lock_guard lock(mutex);
    watch();
    Queue& queue = queues[static_cast<int>(p->order_)];
    p->previous_ = queue.last;
    (queue.last ? queue.last->next_ : queue.first) = p;
    queue.last = p;
    if (!queue.untaken) queue.untaken = p;
  }

  void remove(ForkParticipant* p) {
    std::unique_lock lock(mutex);
    while (p->taken_) {
      lock.unlock();
      forking.lock();
      forking.unlock();
      lock.lock();
    }
    Queue& queue = queues[static_cast<int>(p->order_)];
    if (queue.untaken == p) queue.untaken = p->next_;
    (p->previous_ ? p->previous_->next_ : queue.first) = p->next_;
    (p->next_ ? p->next_->previous_ : queue.last) = p->previous_;
  }

  // The caller holds the mutex.
  ForkParticipant* take_next_from_list() {
    for (Queue& queue : queues) {
      ForkParticipant* p = queue.untaken;
      if (!p) continue;
      queue.untaken = p->next_;
      p->taken_ = true;
      return p;
    }
    return nullptr;
  }

  // When it returns, this thread holds both mutexes as well.
  void take_all() {
    forking.lock();
    LockOrder reached{};
    mutex.lock();
    while (ForkParticipant* p = take_next_from_list()) {
      mutex.unlock();
      // A participant that was enrolled meanwhile may come before some that are held already. The fork must not wait
      // for it, and only tries.
      const bool taken = p->order_ >= reached ? (p->take(), true) : p->try_to_take();
      mutex.lock();
      if (taken) {
        reached = std::max(reached, p->order_);
        continue;
      }
      p->taken_ = false;
      give_back_taken(false);
      reached = LockOrder{};
      mutex.unlock();
      std::this_thread::yield();
      mutex.lock();
    }
  }

  // The caller holds the mutex.
  void give_back_taken(bool in_child) {
    for (int i = kOrders; i-- > 0;) {
      for (ForkParticipant* p = queues[i].first; p; p = p->next_)
        if (std::exchange(p->taken_, false)) p->give_back(in_child);
      queues[i].untaken = queues[i].first;
    }
  }

  void give_all_back(bool in_child) {
    give_back_taken(in_child);
    mutex.unlock();
    forking.unlock();
  }

  void watch();
};

namespace {

// Initialised at compile time, so that it exists before any other static object and after all of them.
constinit ForkList list;

// How many of our handlers have run in the fork that this thread makes: only the first takes the locks.
constinit thread_local int handlers_run = 0;

void before_fork() {
  if (handlers_run++ == 0) list.take_all();
}
void after_fork_in_parent() {
  if (--handlers_run == 0) list.give_all_back(false);
}
void after_fork_in_child() {
  if (--handlers_run > 0) return;
  for (int i = 0; i < list.child_call_count; ++i) list.child_calls[i]();
  list.give_all_back(true);
}

}  // namespace

void ForkList::watch() {
  if (is_watching) return;
  is_watching = true;
  pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void ForkParticipant::enrol() { list.add(this); }
void ForkParticipant::withdraw() { list.remove(this); }

}  // namespace detail

void ForkGate::enter() {
  while (inside_.fetch_add(1, std::memory_order_acquire) & kClosed) {
    leave();
    while (inside_.load(std::memory_order_relaxed) & kClosed) std::this_thread::yield();
  }
}

void ForkGate::leave() { inside_.fetch_sub(1, std::memory_order_release); }

void ForkGate::take() {
  inside_.fetch_or(kClosed, std::memory_order_relaxed);
  while (inside_.load(std::memory_order_acquire) != kClosed) std::this_thread::yield();
}

bool ForkGate::try_to_take() {
  uint32_t nobody = 0;
  return inside_.compare_exchange_strong(nobody, kClosed, std::memory_order_acquire);
}

// A thread that tries to enter counts itself for a moment. A child has no such thread: its count starts anew.
void ForkGate::give_back(bool in_child) {
  if (in_child) {
    inside_.store(0, std::memory_order_relaxed);
  } else {
    inside_.fetch_and(~kClosed, std::memory_order_release);
  }
}

void take_locks_before_known_fork_handlers() {
  pthread_atfork(detail::before_fork, detail::after_fork_in_parent, detail::after_fork_in_child);
}

void in_child_of_fork(void (*f)()) {
  std::lock_guard lock(detail::list.mutex);
  detail::list.watch();
  if (detail::list.child_call_count == detail::ForkList::kMostChildCalls) std::abort();
  detail::list.child_calls[detail::list.child_call_count++] = f;
}

}  // namespace mica
