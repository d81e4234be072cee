#include "backends/cpu/share_runs.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace mica::cpu {
namespace {

TEST(ShareRuns, CoverEveryUnitOnce) {
  for (const int threads : {1, 2, 3, 40}) {
    for (const int64_t count : {0, 1, 2, 7, 64, 1001}) {
      for (const int64_t least : {1, 3, 2000}) {
        std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
        share_runs(threads, count, least, least + 4, [&](int64_t begin, int64_t end) {
          EXPECT_LT(begin, end);
          EXPECT_LE(end - begin, least + 4);
          for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
        });
        for (const std::atomic<int>& visited : visits) ASSERT_EQ(visited, 1) << threads << ' ' << count << ' ' << least;
      }
    }
  }
}

// What a thread keeps belongs to it, however the units are shared.
TEST(ShareRuns, EachThreadKeepsItsState) {
  const int before = get_num_threads();
  set_num_threads(3);
  for (const int64_t spare : {1, 3, 1000}) {
    std::atomic<int> starts{0}, ends{0};
    std::atomic<int64_t> units{0};
    struct Worker {
      std::atomic<int>& ends;
      std::atomic<int64_t>& units;
      int64_t done = 0;
      void operator()(int64_t begin, int64_t end) { done += end - begin; }
      ~Worker() {
        units += done;
        ++ends;
      }
    };
    share_runs_with(3, 100, 1, 7, spare, [&] {
      ++starts;
      return Worker{ends, units};
    });
    EXPECT_EQ(units, 100);
    EXPECT_EQ(starts, 3);
    EXPECT_EQ(ends, 3);
  }
  set_num_threads(before);
}

TEST(ShareRuns, GoOnWithoutAThreadThatIsHeldUp) {
  const int before = get_num_threads();
  set_num_threads(2);
  std::atomic<int> done{0};
  share_runs(2, 100, 1, 1, [&](int64_t begin, int64_t) {
    // The first unit ends when all others have.
    while (begin == 0 && done.load() < 99) {
    }
    ++done;
  });
  EXPECT_EQ(done, 100);
  set_num_threads(before);
}

}  // namespace
}  // namespace mica::cpu
