// Hands work out in runs of adjacent units. Each thread has a share of its own, so that a repeated job finds its data
// in the same cache. A thread that has finished its share takes from the ends of the others', so that one thread that
// is held up by another process does not hold up all.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "mica/parallel.h"

namespace mica::cpu {

// A share of units: its first unit and the one after its last, together in one atomic word.
class UnitShare {
 public:
  void set(int64_t begin, int64_t end) { word_.store(pack(begin, end), std::memory_order_relaxed); }

  // Runs shorten towards the end of a share. False when nothing is left.
  bool take_front(int64_t least, int64_t most, int64_t& begin, int64_t& end) {
    uint64_t seen = word_.load(std::memory_order_relaxed);
    for (;;) {
      begin = first(seen);
      const int64_t last = static_cast<int64_t>(seen & kMask);
      if (begin >= last) return false;
      end = std::min(last, begin + std::clamp((last - begin) / 2, least, most));
      if (word_.compare_exchange_weak(seen, pack(end, last), std::memory_order_relaxed)) return true;
    }
  }
  // Takes nothing from a share of fewer than `spare` units.
  bool take_back(int64_t least, int64_t most, int64_t spare, int64_t& begin, int64_t& end) {
    uint64_t seen = word_.load(std::memory_order_relaxed);
    for (;;) {
      const int64_t start = first(seen);
      end = static_cast<int64_t>(seen & kMask);
      if (end - start < spare) return false;
      begin = std::max(start, end - std::clamp((end - start) / 4, least, most));
      if (word_.compare_exchange_weak(seen, pack(start, begin), std::memory_order_relaxed)) return true;
    }
  }

 private:
  static constexpr uint64_t kMask = 0xffffffff;
  static uint64_t pack(int64_t begin, int64_t end) {
    return static_cast<uint64_t>(begin) << 32 | static_cast<uint64_t>(end);
  }
  static int64_t first(uint64_t word) { return static_cast<int64_t>(word >> 32); }

  alignas(64) std::atomic<uint64_t> word_{0};
};

// Calls worker(take) once in every thread; take(run) calls run(begin, end) for the runs that this thread gets. Together
// the runs cover [0, count) once. A run has at least `least` units (the last of a share may have fewer) and at most
// `most`. `count` is below 2^32. If what a worker keeps from one run to the next makes units of another thread's share
// expensive, `spare` is the number of units from which on they are worth taking.
template <class Worker>
void share_among(int threads, int64_t count, int64_t least, int64_t most, int64_t spare, const Worker& worker) {
  constexpr int kShares = 32;
  threads = static_cast<int>(std::min<int64_t>(threads, count / least));
  if (threads <= 1) {
    return worker([&](auto&& run) {
      for (int64_t begin = 0; begin < count; begin += most) run(begin, std::min(begin + most, count));
    });
  }
  const int shares = std::min(threads, kShares);
  UnitShare share[kShares];
  for (int i = 0; i < shares; ++i) share[i].set(count * i / shares, count * (i + 1) / shares);
  parallel_for(0, threads, 1, [&](int64_t thread, int64_t) {
    worker([&](auto&& run) {
      const int own = static_cast<int>(thread) % shares;
      int64_t begin, end;
      while (share[own].take_front(least, most, begin, end)) run(begin, end);
      for (int i = 1; i < shares; ++i) {
        while (share[(own + i) % shares].take_back(least, most, spare, begin, end)) run(begin, end);
      }
    });
  });
}

// The same where each thread has a `run` of its own, which start() returns.
template <class Start>
void share_runs_with(int threads, int64_t count, int64_t least, int64_t most, int64_t spare, const Start& start) {
  share_among(threads, count, least, most, spare, [&](const auto& take) { take(start()); });
}

template <class F>
void share_runs(int threads, int64_t count, int64_t least, int64_t most, const F& run) {
  share_runs_with(threads, count, least, most, 1, [&]() -> const F& { return run; });
}

}  // namespace mica::cpu
