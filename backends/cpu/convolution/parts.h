// Cutting work into parts, and handing them to threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backends/cpu/share_runs.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }
// The least equal part when `total` is cut in parts of at most `limit`.
inline int64_t equal_part(int64_t total, int64_t limit) { return divide_up(total, divide_up(total, limit)); }

inline size_t bytes_of_floats(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

// Runs body(tasks) once in every thread. tasks(f) calls f(i) for numbers below `count`, each of which one thread gets.
// A thread begins with a share of its own: layers that follow each other divide their images alike, so that it finds
// much of what it reads in its own cache.
template <class Body>
void share_tasks(int64_t count, const Body& body) {
  share_among(get_num_threads(), count, 1, 1, 1,
              [&](const auto& take) { body([&](const auto& task) { take([&](int64_t i, int64_t) { task(i); }); }); });
}

}  // namespace mica::cpu::convolution
