// The costs that every operation pays: handing work to the pool.
#include <benchmark/benchmark.h>

#include <atomic>

#include "mica/parallel.h"

namespace {

void parallel_for_inline(benchmark::State& state) {
  int64_t total = 0;
  for (auto _ : state) {
    mica::parallel_for(0, 100, 1000, [&](int64_t b, int64_t e) { total += e - b; });
    benchmark::DoNotOptimize(total);
  }
}
BENCHMARK(parallel_for_inline);

// Dispatch and join of a trivial body, with workers that have not gone to sleep.
void parallel_for_dispatch(benchmark::State& state) {
  const int before = mica::get_num_threads();
  mica::set_num_threads(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    mica::parallel_for(0, state.range(0), 1, [](int64_t b, int64_t) { benchmark::DoNotOptimize(b); });
  }
  mica::set_num_threads(before);
}
BENCHMARK(parallel_for_dispatch)->Arg(2)->UseRealTime();

// The same where no chunk ends before the other has begun: a true hand-over to another core and back.
void parallel_for_handover(benchmark::State& state) {
  const int before = mica::get_num_threads();
  mica::set_num_threads(2);
  for (auto _ : state) {
    std::atomic<int> arrived{0};
    mica::parallel_for(0, 2, 1, [&](int64_t, int64_t) {
      arrived.fetch_add(1);
      while (arrived.load() < 2) {
      }
    });
  }
  mica::set_num_threads(before);
}
BENCHMARK(parallel_for_handover)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
