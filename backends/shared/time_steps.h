// The order in which the time steps of packed sequences are run.
#pragma once

#include <algorithm>
#include <vector>

#include "mica/core/array_ref.h"

namespace mica {

enum class CellKind : int64_t { Relu, Tanh, Lstm, Gru };

inline int64_t gates_of(CellKind kind) { return kind == CellKind::Lstm ? 4 : kind == CellKind::Gru ? 3 : 1; }

// One step of a run: `count` rows from `offset`. The state before row i is row i of the step run before, which has
// `before_count` rows from `before_offset`; rows beyond them begin here, from the initial state.
struct TimeStep {
  int64_t offset, count;
  int64_t before_offset, before_count;
};

inline std::vector<TimeStep> time_steps(IntArrayRef batch_sizes, bool reverse) {
  const int64_t steps = static_cast<int64_t>(batch_sizes.size());
  std::vector<int64_t> offsets(batch_sizes.size() + 1, 0);
  for (int64_t t = 0; t < steps; ++t) offsets[t + 1] = offsets[t] + batch_sizes[t];
  std::vector<TimeStep> run;
  run.reserve(batch_sizes.size());
  TimeStep last{0, 0, 0, 0};
  for (int64_t i = 0; i < steps; ++i) {
    const int64_t t = reverse ? steps - 1 - i : i;
    const int64_t count = batch_sizes[t];
    last = {offsets[t], count, last.offset, std::min(count, last.count)};
    run.push_back(last);
  }
  return run;
}

}  // namespace mica
