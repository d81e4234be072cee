#include "mica/allocator.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "mica/error.h"

namespace mica {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kCaching = false;
#else
constexpr bool kCaching = true;
#endif

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

struct Block {
  unsigned char* memory;
  size_t nbytes;
  unsigned char fill;
};

Block make_block(size_t nbytes, unsigned char fill) {
  auto* memory = static_cast<unsigned char*>(cpu_allocate(nbytes));
  std::memset(memory, fill, nbytes);
  return {memory, nbytes, fill};
}

bool is_intact(const Block& block) {
  return std::all_of(block.memory, block.memory + block.nbytes, [&](unsigned char c) { return c == block.fill; });
}

long page_faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(Allocator, EverySizeIsAlignedAndWritable) {
  for (size_t nbytes = 1; nbytes < 20 * kMiB; nbytes += 1 + nbytes / 7) {
    for (size_t n : {nbytes, nbytes + 1, (nbytes + 63) / 64 * 64}) {
      void* memory = cpu_allocate(n);
      ASSERT_NE(memory, nullptr);
      ASSERT_EQ(reinterpret_cast<uintptr_t>(memory) % kCpuAlignment, 0u) << n;
      static_cast<char*>(memory)[0] = static_cast<char*>(memory)[n - 1] = 1;
      cpu_free(memory, n);
    }
  }
}

TEST(Allocator, NothingIsANullPointer) {
  EXPECT_EQ(cpu_allocate(0), nullptr);
  cpu_free(nullptr, 0);
}

TEST(Allocator, LiveBlocksNeverOverlap) {
  std::mt19937 random(7);
  std::vector<Block> live;
  for (int step = 0; step < 20000; ++step) {
    if (live.size() < 300 && random() % 100 < 55) {
      const size_t nbytes = 1 + random() % (size_t{1} << (6 + random() % 13));
      live.push_back(make_block(nbytes, static_cast<unsigned char>(random())));
    } else if (!live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      ASSERT_TRUE(is_intact(live.back())) << live.back().nbytes;
      cpu_free(live.back().memory, live.back().nbytes);
      live.pop_back();
    }
  }
  for (const Block& block : live) {
    ASSERT_TRUE(is_intact(block));
    cpu_free(block.memory, block.nbytes);
  }
}

TEST(Allocator, CountsBytesAndCalls) {
  const AllocatorStats before = cpu_allocator_stats();
  cpu_reset_peak_stats();
  void* a = cpu_allocate(100);
  void* b = cpu_allocate(3 * kMiB);
  AllocatorStats stats = cpu_allocator_stats();
  EXPECT_EQ(stats.allocated_bytes - before.allocated_bytes, static_cast<int64_t>(100 + 3 * kMiB));
  EXPECT_EQ(stats.allocations - before.allocations, 2);
  EXPECT_GE(stats.reserved_bytes, stats.allocated_bytes);
  cpu_free(a, 100);
  cpu_free(b, 3 * kMiB);
  stats = cpu_allocator_stats();
  EXPECT_EQ(stats.allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(stats.frees - before.frees, 2);
  EXPECT_EQ(stats.peak_allocated - before.allocated_bytes, static_cast<int64_t>(100 + 3 * kMiB));
  EXPECT_EQ(stats.cache_hits + stats.page_faulting_allocs, stats.allocations);
  cpu_reset_peak_stats();
  EXPECT_EQ(cpu_allocator_stats().peak_allocated, before.allocated_bytes);
}

TEST(Allocator, ThePeakIsExactForSmallBlocks) {
  const int64_t base = cpu_allocator_stats().allocated_bytes;
  cpu_reset_peak_stats();
  std::vector<void*> blocks;
  for (int i = 0; i < 5000; ++i) blocks.push_back(cpu_allocate(200));
  for (void* block : blocks) cpu_free(block, 200);
  for (int i = 0; i < 5000; ++i) cpu_free(cpu_allocate(200), 200);
  EXPECT_EQ(cpu_allocator_stats().peak_allocated - base, 5000 * 200);
}

TEST(Allocator, ASteadyStateFaultsNoPages) {
  if (!kCaching) GTEST_SKIP() << "no caching under AddressSanitizer";
  const std::vector<size_t> sizes = {64, 1000, 5000, 70 * kKiB, 300 * kKiB, 2 * kMiB, 9 * kMiB, 40 * kMiB};
  const auto step = [&] {
    std::vector<Block> blocks;
    for (size_t nbytes : sizes) blocks.push_back(make_block(nbytes, 1));
    for (const Block& block : blocks) cpu_free(block.memory, block.nbytes);
  };
  for (int i = 0; i < 3; ++i) step();
  const int64_t fresh = cpu_allocator_stats().page_faulting_allocs;
  const long faults = page_faults();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_EQ(cpu_allocator_stats().page_faulting_allocs, fresh);
  EXPECT_LE(page_faults() - faults, 20);  // those of the test itself; one step touches 13,000 pages
}

TEST(Allocator, ALargeBlockServesOnlyRequestsOfAboutItsSize) {
  if (!kCaching) GTEST_SKIP() << "no caching under AddressSanitizer";
  cpu_trim();
  cpu_free(cpu_allocate(20 * kMiB), 20 * kMiB);
  const int64_t fresh = cpu_allocator_stats().page_faulting_allocs;
  cpu_free(cpu_allocate(18 * kMiB), 18 * kMiB);
  EXPECT_EQ(cpu_allocator_stats().page_faulting_allocs, fresh);
  cpu_free(cpu_allocate(10 * kMiB), 10 * kMiB);
  EXPECT_EQ(cpu_allocator_stats().page_faulting_allocs, fresh + 1);
}

TEST(Allocator, WhatIsCachedIsBounded) {
  if (!kCaching) GTEST_SKIP() << "no caching under AddressSanitizer";
  cpu_trim();
  // Untouched, so that the test costs no memory; no two sizes fit each other.
  for (size_t mib = 64; mib < 1024; mib += mib / 3) cpu_free(cpu_allocate(mib * kMiB), mib * kMiB);
  EXPECT_LE(cpu_allocator_stats().reserved_bytes, static_cast<int64_t>(1100 * kMiB));
  cpu_trim();
}

TEST(Allocator, TrimGivesEverythingUnusedBack) {
  if (!kCaching) GTEST_SKIP() << "no caching under AddressSanitizer";
  cpu_trim();
  const int64_t before = cpu_allocator_stats().reserved_bytes;
  std::vector<Block> blocks;
  for (int i = 0; i < 200; ++i) {
    for (size_t nbytes : {64 * kKiB, size_t{512}, 1 * kMiB}) blocks.push_back(make_block(nbytes, 3));
  }
  const Block kept = make_block(512, 9);
  for (const Block& block : blocks) cpu_free(block.memory, block.nbytes);
  const int64_t cached = cpu_allocator_stats().reserved_bytes;
  const int64_t returned = static_cast<int64_t>(cpu_trim());
  EXPECT_EQ(cached - returned, cpu_allocator_stats().reserved_bytes);
  EXPECT_LE(cpu_allocator_stats().reserved_bytes - before, static_cast<int64_t>(2 * kMiB));
  EXPECT_TRUE(is_intact(kept));
  const Block again = make_block(512, 5);
  EXPECT_TRUE(is_intact(kept));
  cpu_free(again.memory, again.nbytes);
  cpu_free(kept.memory, kept.nbytes);
}

TEST(Allocator, BlocksMayBeFreedByAnotherThread) {
  const int64_t before = cpu_allocator_stats().allocated_bytes;
  for (int round = 0; round < 5; ++round) {
    std::vector<Block> blocks;
    std::thread producer([&] {
      for (int i = 0; i < 2000; ++i) blocks.push_back(make_block(1 + i % 3000, static_cast<unsigned char>(i)));
      blocks.push_back(make_block(2 * kMiB, 7));
    });
    producer.join();
    for (const Block& block : blocks) {
      ASSERT_TRUE(is_intact(block));
      cpu_free(block.memory, block.nbytes);
    }
  }
  EXPECT_EQ(cpu_allocator_stats().allocated_bytes, before);
}

TEST(Allocator, ManyThreadsAtOnce) {
  const int64_t before = cpu_allocator_stats().allocated_bytes;
  std::atomic<int> broken{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      std::vector<Block> live;
      for (int step = 0; step < 4000; ++step) {
        if (live.size() < 50) live.push_back(make_block(1 + random() % 9000, static_cast<unsigned char>(t)));
        if (random() % 2) {
          broken += !is_intact(live.back());
          cpu_free(live.back().memory, live.back().nbytes);
          live.pop_back();
        }
        if (step % 1000 == 0) cpu_trim();
      }
      for (const Block& block : live) cpu_free(block.memory, block.nbytes);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(broken, 0);
  EXPECT_EQ(cpu_allocator_stats().allocated_bytes, before);
}

// Runs after the thread's cache is gone, since it was made before the first allocation.
struct FreesLate {
  void* memory = nullptr;
  ~FreesLate() {
    cpu_free(memory, 500);
    cpu_free(cpu_allocate(500), 500);
  }
};

TEST(Allocator, AThreadMayFreeWhileItEnds) {
  const int64_t before = cpu_allocator_stats().allocated_bytes;
  std::thread([] {
    thread_local FreesLate late;
    late.memory = cpu_allocate(500);
  }).join();
  EXPECT_EQ(cpu_allocator_stats().allocated_bytes, before);
}

TEST(Allocator, AnImpossibleSizeIsAnError) {
  for (size_t nbytes : {static_cast<size_t>(-8), size_t{1} << 62, size_t{1} << 46}) {
    try {
      cpu_allocate(nbytes);
      ADD_FAILURE() << "allocated " << nbytes;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::OutOfMemory);
      const std::string start =
          cat("DefaultCPUAllocator: can't allocate memory: you tried to allocate ", nbytes, " bytes.");
      EXPECT_EQ(std::string(e.what()).substr(0, start.size()), start);
    }
  }
}

TEST(Allocator, AFailureOfTheSystemIsAnErrorAndLeavesTheHeapUsable) {
  if (!kCaching) GTEST_SKIP() << "AddressSanitizer needs its address space";
  constexpr int kNoLimit = 77;
  const pid_t child = fork();
  if (child == 0) {
    // One GiB more than the address space that the test program already has.
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const size_t most = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (size_t{1} << 30);
    const rlimit limit{most, most};
    setrlimit(RLIMIT_AS, &limit);
    if (mmap(nullptr, size_t{2} << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) _exit(kNoLimit);
    try {
      cpu_allocate(size_t{2} << 30);
      _exit(1);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::OutOfMemory) _exit(2);
    }
    const Block block = make_block(4 * kMiB, 1);
    _exit(is_intact(block) ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoLimit) GTEST_SKIP() << "an emulator does not limit address space";
  EXPECT_EQ(status, 0);
}

TEST(Allocator, AForkedChildAllocatesWhileItsParentDoes) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer's own allocator may hold its lock in the child";
#endif
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      cpu_free(cpu_allocate(2 * kMiB), 2 * kMiB);
      std::vector<void*> blocks;
      for (int i = 0; i < 600; ++i) blocks.push_back(cpu_allocate(300));
      for (void* block : blocks) cpu_free(block, 300);
    }
  });
  int failures = 0;
  for (int i = 0; i < 20; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      for (int k = 0; k < 100; ++k) cpu_free(cpu_allocate(100 + 400 * kKiB * (k % 2)), 100 + 400 * kKiB * (k % 2));
      cpu_trim();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    failures += status != 0;
  }
  stop = true;
  busy.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace mica
