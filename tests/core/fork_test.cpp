#include "mica/core/fork.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace mica {
namespace {

// Whether a child that calls `f` ends within a time limit, with success.
bool child_ends(const std::function<void()>& f) {
  const pid_t pid = fork();
  if (pid == 0) {
    f();
    _exit(0);
  }
  int status = 0;
  for (int i = 0; i < 10000; ++i) {
    if (waitpid(pid, &status, WNOHANG) == pid) return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  kill(pid, SIGKILL);
  waitpid(pid, &status, 0);
  return false;
}

// Threads that repeat f until this dies.
class Busy {
 public:
  explicit Busy(std::function<void()> f, int count = 2) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, f] {
        while (!stopping_) f();
      });
  }
  ~Busy() {
    stopping_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

TEST(Fork, AChildFindsNoLockHeld) {
  std::mutex mutex;
  HeldOverFork held(mutex, LockOrder::Plans);
  Busy busy([&] { std::lock_guard lock(mutex); });
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(child_ends([&] { std::lock_guard lock(mutex); }));
}

TEST(Fork, LocksAreTakenInOrder) {
  std::mutex outer, inner;
  // Enrolled the other way round: what counts is the order that they are given.
  HeldOverFork inner_held(inner, LockOrder::Settings), outer_held(outer, LockOrder::Registry);
  Busy busy([&] {
    std::lock_guard first(outer);
    std::lock_guard second(inner);
  });
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(child_ends([&] {
      std::lock_guard first(outer);
      std::lock_guard second(inner);
    }));
}

TEST(Fork, LocksComeAndGoMeanwhile) {
  struct Locked {
    std::mutex mutex;
    HeldOverFork held{mutex, LockOrder::Registry};
  };
  std::mutex late;
  HeldOverFork late_held(late, LockOrder::MemoryBlocks);
  Busy busy([&] {
    Locked mine;  // its order is before that of `late`, which a fork may have reached
    std::unique_ptr<Locked> another;
    std::lock_guard first(mine.mutex);
    std::lock_guard second(late);
    another = std::make_unique<Locked>();  // enrolled while locks are held, and withdrawn after
  });
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(child_ends([&] {
      Locked mine;
      std::lock_guard lock(late);
    }));
}

TEST(Fork, NobodyIsBehindTheGateInAChild) {
  ForkGate gate(LockOrder::Lapack);
  std::atomic<int> inside{0};
  Busy busy([&] {
    const ForkGate::Pass pass(gate);
    ++inside;
    std::this_thread::yield();
    --inside;
  });
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(child_ends([&] {
      if (inside != 0) _exit(3);
      { const ForkGate::Pass pass(gate); }
      if (!child_ends([&] { const ForkGate::Pass again(gate); })) _exit(4);
    }));
}

TEST(Fork, AValueIsMadeOnce) {
  MadeOnce<int> value;
  std::atomic<int> made{0};
  EXPECT_EQ(value.known(), nullptr);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { EXPECT_EQ(value.get([&] { return new int(++made); }), 1); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made, 1);
  delete value.known();
}

TEST(Fork, HandlersOfLaterLibrariesRunWhileLocksAreHeld) {
  take_locks_before_known_fork_handlers();
  std::mutex mutex;
  HeldOverFork held(mutex, LockOrder::Plans);
  EXPECT_TRUE(child_ends([&] { std::lock_guard lock(mutex); }));
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace mica
