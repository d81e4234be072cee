#include "backends/cpu/optim/share_work.h"

#include <algorithm>

namespace mica::cpu {

// Elements for which it pays to wake another thread.
static constexpr int64_t kGrain = 32768;
static constexpr int64_t kUnit = 64;

void share_work(const FusedStep& step, FunctionRef<void(const FusedParameter&, int64_t, int64_t)> run) {
  int64_t total = 0;
  for (int64_t i = 0; i < step.count; ++i) total += step.parameters[i].numel;
  if (total <= kGrain || step.in_order) {
    for (int64_t i = 0; i < step.count; ++i) run(step.parameters[i], 0, step.parameters[i].numel);
    return;
  }
  parallel_for(0, total, kGrain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;  // where the current parameter begins among all elements
    for (int64_t i = 0; i < step.count && first < end; ++i) {
      const FusedParameter& p = step.parameters[i];
      // The end of one thread's part and the beginning of the next are rounded in the same way.
      const auto place = [&](int64_t at) {
        at = std::clamp<int64_t>(at - first, 0, p.numel);
        return at == p.numel ? at : at / kUnit * kUnit;
      };
      const int64_t from = place(begin), to = place(end);
      if (from < to) run(p, from, to);
      first += p.numel;
    }
  });
}

}  // namespace mica::cpu
