#include "autograd/accumulation.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <vector>

#include "autograd/metadata.h"

namespace mica {

namespace {

struct Left {
  Tensor gradient;
  bool with_history;
};

// A call under way. It lies on the stack of its thread.
struct Accumulation {
  const AutogradMeta* leaf;
  const void* thread;
  bool runs_kernels_alone;
  Accumulation* next = nullptr;
  std::vector<Left> left{};  // gradients left by calls that must not wait
};

// The calls under way for all leaves that share a lock. Guarded by that lock.
struct Calls {
  Accumulation* first = nullptr;
  uint32_t waiting = 0;
  std::atomic<uint32_t> ended{0};  // counts calls that have ended; a thread that waits sleeps on it
};
constinit Calls all_calls[LockSet::kLocks];

const void* this_thread() {
  static constinit thread_local char mark = 0;
  return &mark;
}

// A child of fork has only the calls of the thread that forked, which go on in both processes.
[[maybe_unused]] const bool children_forget_other_threads = [] {
  in_child_of_fork([] {
    for (Calls& calls : all_calls) {
      calls.waiting = 0;
      for (Accumulation** place = &calls.first; *place;) {
        if ((*place)->thread == this_thread()) {
          place = &(*place)->next;
        } else {
          *place = (*place)->next;
        }
      }
    }
  });
  return true;
}();

bool runs_kernels_alone(const Tensor& gradient) {
  constexpr uint32_t kPlain = mode_bit::kNoGrad | mode_bit::kInference | mode_bit::kAnomaly | mode_bit::kAnomalySkipNan;
  return !(thread_modes & ~kPlain) && !(gradient.impl()->bits & tensor_bit::kSpecial);
}

// Returns false when it left the gradient with another call that is under way.
bool begin(Accumulation& mine, std::mutex& mutex, Calls& calls, Tensor& gradient) {
  std::unique_lock lock(mutex);
  for (;;) {
    Accumulation* other = calls.first;
    while (other && other->leaf != mine.leaf) other = other->next;
    if (!other) break;
    if (other->thread == mine.thread || !other->runs_kernels_alone) {
      other->left.push_back({gradient, grad_enabled()});
      return false;
    }
    const uint32_t seen = calls.ended.load(std::memory_order_relaxed);
    ++calls.waiting;
    lock.unlock();
    calls.ended.wait(seen, std::memory_order_relaxed);
    lock.lock();
    --calls.waiting;
  }
  mine.next = calls.first;
  // GCC 13 warns that the address of a caller's object is kept. end() removes it before the object goes.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdangling-pointer"
#endif
  calls.first = &mine;
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic pop
#endif
  return true;
}

// Returns the gradients that others have left meanwhile. When there are none, the call is no longer under way.
std::vector<Left> end(Accumulation& mine, std::mutex& mutex, Calls& calls) {
  std::vector<Left> left;
  std::unique_lock lock(mutex);
  left.swap(mine.left);
  if (!left.empty()) return left;
  Accumulation** place = &calls.first;
  while (*place != &mine) place = &(*place)->next;
  *place = mine.next;
  if (calls.waiting == 0) return left;
  calls.ended.fetch_add(1, std::memory_order_relaxed);
  lock.unlock();
  calls.ended.notify_all();
  return left;
}

}  // namespace

void accumulate(const AutogradMeta& leaf, Tensor& gradient, FunctionRef<void(Tensor&)> add) {
  const size_t index = LockSet::index_of(&leaf);
  std::mutex& mutex = gradient_locks.of(&leaf);
  Calls& calls = all_calls[index];
  Accumulation mine{&leaf, this_thread(), runs_kernels_alone(gradient)};
  if (!begin(mine, mutex, calls, gradient)) return;
  std::exception_ptr error;
  const auto attempt = [&](Tensor& one) {
    try {
      add(one);
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  };
  attempt(gradient);
  for (std::vector<Left> left; !(left = end(mine, mutex, calls)).empty();) {
    for (Left& one : left) {
      ModeGuard history(mode_bit::kNoGrad, !one.with_history);
      attempt(one.gradient);
    }
  }
  if (error) std::rethrow_exception(error);
}

bool place_first(AutogradMeta& leaf, Tensor& gradient) {
  const std::lock_guard lock(gradient_locks.of(&leaf));
  if (leaf.grad.defined()) return false;
  for (const Accumulation* other = all_calls[LockSet::index_of(&leaf)].first; other; other = other->next)
    if (other->leaf == &leaf) return false;
  std::swap(leaf.grad, gradient);
  return true;
}

}  // namespace mica
