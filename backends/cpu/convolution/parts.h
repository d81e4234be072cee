// Cutting work into parts, and handing them to threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "mica/parallel.h"

namespace mica::cpu::convolution {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }
// The least equal part when `total` is cut in parts of at most `limit`.
inline int64_t equal_part(int64_t total, int64_t limit) { return divide_up(total, divide_up(total, limit)); }

inline size_t bytes_of_floats(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

// Runs body(tasks) once in every thread. tasks(f) calls f(i) for numbers below `count`, each of which one thread gets.
// A thread that has ended one task takes the next, so that a slow thread does not delay the others.
template <class Body>
void share_tasks(int64_t count, const Body& body) {
  std::atomic<int64_t> next{0};
  parallel_for(0, std::min<int64_t>(get_num_threads(), count), 1, [&](int64_t, int64_t) {
    body([&](const auto& task) {
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) task(i);
    });
  });
}

}  // namespace mica::cpu::convolution
