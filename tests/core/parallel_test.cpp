#include "mica/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/expected_work.h"
#include "mica/error.h"

namespace mica {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

class Parallel : public ::testing::Test {
 protected:
  void SetUp() override { before_ = get_num_threads(); }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_;
};

Ranges chunks_of(int64_t begin, int64_t end, int64_t grain) {
  Ranges ranges;
  std::mutex mutex;
  parallel_for(begin, end, grain, [&](int64_t b, int64_t e) {
    std::lock_guard lock(mutex);
    ranges.emplace_back(b, e);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

int64_t parallel_sum(const std::vector<int64_t>& values) {
  std::atomic<int64_t> sum{0};
  parallel_for(0, static_cast<int64_t>(values.size()), 16, [&](int64_t b, int64_t e) {
    sum += std::accumulate(values.begin() + b, values.begin() + e, int64_t{0});
  });
  return sum;
}

TEST_F(Parallel, ChunksCoverTheRangeOnceAndAreNoSmallerThanTheGrain) {
  for (int threads : {1, 2, 3, 7, 70}) {
    set_num_threads(threads);
    for (int64_t n : {1, 2, 63, 64, 1000, 8191, 100003}) {
      for (int64_t grain : {-1, 0, 1, 7, 500, 4096, 200000}) {
        const Ranges ranges = chunks_of(-5, n - 5, grain);
        ASSERT_LE(ranges.size(), static_cast<size_t>(threads));
        int64_t at = -5;
        for (auto [b, e] : ranges) {
          ASSERT_EQ(b, at);
          ASSERT_GE(e - b, std::min(n, std::max<int64_t>(grain, 1)));
          at = e;
        }
        ASSERT_EQ(at, n - 5);
        if (grain == 1) {
          ASSERT_EQ(ranges.size(), static_cast<size_t>(std::min<int64_t>(threads, n)));
        }
      }
    }
  }
}

TEST_F(Parallel, AnEmptyRangeRunsNothing) {
  EXPECT_TRUE(chunks_of(0, 0, 1).empty());
  EXPECT_TRUE(chunks_of(5, 3, 1).empty());
}

TEST_F(Parallel, EveryThreadHasAnIndexOfItsOwn) {
  set_num_threads(4);
  std::atomic<int> running[4] = {};
  std::atomic<bool> clash{false};
  for (int round = 0; round < 200; ++round) {
    parallel_for(0, 4, 1, [&](int64_t, int64_t) {
      const int index = thread_index();
      if (index < 0 || index >= 4 || running[index]++ != 0) clash = true;
      std::this_thread::yield();
      running[index]--;
    });
  }
  EXPECT_FALSE(clash);
  EXPECT_EQ(thread_index(), 0);
}

TEST_F(Parallel, NestedCallsRunInline) {
  set_num_threads(3);
  std::atomic<int> inner{0};
  parallel_for(0, 3, 1, [&](int64_t, int64_t) {
    EXPECT_TRUE(in_parallel_region());
    const auto self = std::this_thread::get_id();
    parallel_for(0, 100, 1, [&](int64_t b, int64_t e) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      EXPECT_EQ(e - b, 100);
      inner++;
    });
  });
  EXPECT_EQ(inner, 3);
  EXPECT_FALSE(in_parallel_region());
}

TEST_F(Parallel, AnExceptionArrivesAfterAllChunksHaveEnded) {
  set_num_threads(4);
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> ended{0};
    try {
      parallel_for(0, 4, 1, [&](int64_t b, int64_t) {
        if (b == thrower) throw std::invalid_argument("chunk");
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ended++;
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const std::invalid_argument& e) {
      EXPECT_STREQ(e.what(), "chunk");
    }
    EXPECT_EQ(ended, 3);
    EXPECT_FALSE(in_parallel_region());
  }
  EXPECT_EQ(chunks_of(0, 4, 1).size(), 4u);
}

TEST_F(Parallel, SeveralCallersAtOnce) {
  set_num_threads(3);
  std::vector<int64_t> values(1000);
  std::iota(values.begin(), values.end(), 0);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) wrong += parallel_sum(values) != 499500;
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Parallel, TheNumberOfThreadsMayChangeBetweenCalls) {
  std::vector<int64_t> values(4096, 1);
  for (int round = 0; round < 30; ++round) {
    set_num_threads(1 + round % 5);
    EXPECT_EQ(get_num_threads(), 1 + round % 5);
    EXPECT_EQ(parallel_sum(values), 4096);
  }
}

TEST_F(Parallel, RefusesNoThreads) {
  for (int n : {0, -1}) {
    try {
      set_num_threads(n);
      ADD_FAILURE() << "accepted " << n;
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find("set_num_threads expects a positive integer"), 0u);
    }
  }
}

TEST_F(Parallel, AForkedChildStartsItsOwnPool) {
  set_num_threads(2);
  std::vector<int64_t> values(1000, 1);
  ASSERT_EQ(parallel_sum(values), 1000);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    for (int round = 0; round < 100; ++round) {
      if (parallel_sum(values) != 1000) _exit(1);
    }
    _exit(chunks_of(0, 2, 1).size() == 2 ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(parallel_sum(values), 1000);
}

// The system's facts about a thread of the pool: whether it sleeps, and how often it has been given a processor.
struct WorkerState {
  int sleeping = 0, workers = 0;
  long switches = 0;
};

WorkerState worker_state() {
  WorkerState state;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "status");
    bool is_worker = false;
    for (std::string key, value; file >> key && std::getline(file >> std::ws, value);) {
      if (key == "Name:") is_worker = value.starts_with("mica-") && value != "mica-memory";
      if (!is_worker) continue;
      if (key == "Name:") ++state.workers;
      if (key == "State:") state.sleeping += value.starts_with("S");
      if (key.ends_with("ctxt_switches:")) state.switches += std::stol(value);
    }
  }
  return state;
}

// However busy the machine is, a thread that sleeps and is not woken gets no processor.
TEST_F(Parallel, AnIdlePoolSleeps) {
  set_num_threads(3);
  chunks_of(0, 3, 1);
  WorkerState before = worker_state();
  // The system may list a worker of the last pool for a moment after it has been joined.
  for (int i = 0; i < 1000 && (before.workers != 2 || before.sleeping < before.workers); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    before = worker_state();
  }
  ASSERT_EQ(before.workers, 2);
  ASSERT_EQ(before.sleeping, before.workers) << "a worker without work does not go to sleep";
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(worker_state().switches, before.switches);
}

TEST_F(Parallel, APoolThatExpectsWorkSleepsWhenThereIsNone) {
  set_num_threads(3);
  expect_work(true);
  chunks_of(0, 3, 1);
  WorkerState state = worker_state();
  for (int i = 0; i < 1000 && (state.workers != 2 || state.sleeping < state.workers); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    state = worker_state();
  }
  EXPECT_EQ(state.workers, 2);
  EXPECT_EQ(state.sleeping, state.workers);
  EXPECT_EQ(chunks_of(0, 3, 1).size(), 3U);  // they wake up again
  expect_work(false);
}

}  // namespace
}  // namespace mica
