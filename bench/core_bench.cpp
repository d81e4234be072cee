// The costs that every operation pays: memory for its result and handing work to the pool.
#include <benchmark/benchmark.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "mica/allocator.h"
#include "mica/parallel.h"

namespace {

void allocate_and_free(benchmark::State& state) {
  const size_t nbytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    void* memory = mica::cpu_allocate(nbytes);
    benchmark::DoNotOptimize(memory);
    mica::cpu_free(memory, nbytes);
  }
}
BENCHMARK(allocate_and_free)->Arg(64)->Arg(1024)->Arg(4096)->Arg(64 << 10)->Arg(1 << 20)->Arg(64 << 20);

// Many blocks live at once, as in the forward pass of a model; the time is that of one block.
void allocate_many_then_free(benchmark::State& state) {
  const size_t nbytes = static_cast<size_t>(state.range(0)), count = 100;
  std::vector<void*> blocks(count);
  for (auto _ : state) {
    for (void*& block : blocks) block = mica::cpu_allocate(nbytes);
    for (void* block : blocks) mica::cpu_free(block, nbytes);
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(count));
}
BENCHMARK(allocate_many_then_free)->Arg(64)->Arg(64 << 10)->Arg(1 << 20);

// Allocate, fill and free: what page faults would add to an operation.
void allocate_fill_free(benchmark::State& state) {
  const size_t nbytes = static_cast<size_t>(state.range(0));
  for (auto _ : state) {
    void* memory = mica::cpu_allocate(nbytes);
    std::memset(memory, 1, nbytes);
    mica::cpu_free(memory, nbytes);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(allocate_fill_free)->Arg(1 << 20)->Arg(64 << 20);

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
