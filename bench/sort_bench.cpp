// Times the sorting kernels on random data: milliseconds, the least of several runs.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#include "backends/cpu/sort/sort.h"
#include "mica/allocator.h"
#include "mica/parallel.h"

namespace {

using namespace mica;

double cpu_milliseconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// The time of all threads together tells more than the wall's where other programs share the cores.
template <class Run>
void report(const char* name, Run&& run) {
  using Clock = std::chrono::steady_clock;
  double best = INFINITY, best_cpu = INFINITY, total = 0;
  for (int repeat = 0; repeat < 200 && (repeat < 5 || total < 500); ++repeat) {
    const double cpu_start = cpu_milliseconds();
    const auto start = Clock::now();
    run();
    const double elapsed = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    best = std::min(best, elapsed);
    best_cpu = std::min(best_cpu, cpu_milliseconds() - cpu_start);
    total += elapsed;
  }
  std::printf("%-44s %9.3f ms %9.3f ms of all threads\n", name, best, best_cpu);
}

// Memory as tensors have it.
template <class T>
struct TensorAllocator {
  using value_type = T;
  T* allocate(size_t n) { return static_cast<T*>(cpu_allocate(n * sizeof(T))); }
  void deallocate(T* memory, size_t n) { cpu_free(memory, n * sizeof(T)); }
  bool operator==(const TensorAllocator&) const { return true; }
};
template <class T>
using Buffer = std::vector<T, TensorAllocator<T>>;

template <class T>
Buffer<T> normal(int64_t n) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> distribution;
  Buffer<T> data(static_cast<size_t>(n));
  for (T& x : data) x = static_cast<T>(distribution(random));
  return data;
}

Buffer<int64_t> integers(int64_t n, int64_t below) {
  std::mt19937_64 random(1);
  Buffer<int64_t> data(static_cast<size_t>(n));
  for (int64_t& x : data) x = static_cast<int64_t>(random() % static_cast<uint64_t>(below));
  return data;
}

template <class T>
void bench_sort(const char* name, const Buffer<T>& data, int64_t n, bool with_indices = true) {
  const int64_t rows = static_cast<int64_t>(data.size()) / n;
  const int64_t batch[] = {rows}, strides[] = {n};
  Buffer<T> values(data.size());
  Buffer<int64_t> indices(data.size());
  report(name, [&] {
    cpu::sort(dtype_v<T>, {batch, n}, {data.data(), strides}, {values.data(), strides},
              {with_indices ? indices.data() : nullptr, strides}, false);
  });
}

template <class T>
void bench_topk(const char* name, const Buffer<T>& data, int64_t n, int64_t k) {
  const int64_t rows = static_cast<int64_t>(data.size()) / n;
  const int64_t batch[] = {rows}, strides[] = {n}, out_strides[] = {k};
  Buffer<T> values(static_cast<size_t>(rows * k));
  Buffer<int64_t> indices(static_cast<size_t>(rows * k));
  report(name, [&] {
    cpu::topk(dtype_v<T>, {batch, n}, k, {data.data(), strides}, {values.data(), out_strides},
              {indices.data(), out_strides}, true, true);
  });
}

}  // namespace

int main(int argc, char** argv) {
  set_num_threads(argc > 1 ? std::atoi(argv[1]) : 2);
  std::printf("%d threads\n", get_num_threads());
  constexpr int64_t kMillion = 1'000'000;

  const Buffer<float> floats = normal<float>(kMillion);
  const Buffer<double> doubles = normal<double>(kMillion);
  const Buffer<int64_t> small_integers = integers(kMillion, 1000), wide_integers = integers(kMillion, 1ll << 62);
  bench_sort("sort float32 1M", floats, kMillion);
  bench_sort("sort float32 1M, values alone", floats, kMillion, false);
  bench_sort("sort float64 1M", doubles, kMillion);
  bench_sort("sort float64 1M, values alone", doubles, kMillion, false);
  bench_sort("sort bfloat16 1M", normal<BFloat16>(kMillion), kMillion);
  bench_sort("sort int64 below 1000, 1M", small_integers, kMillion);
  bench_sort("sort int64 below 2^62, 1M", wide_integers, kMillion);
  bench_sort("sort float32 1000 x 1000", floats, 1000);
  bench_sort("sort float32 10000 x 100", floats, 100);
  bench_sort("sort float32 31250 x 32", floats, 32);
  bench_sort("sort float32 125000 x 8", floats, 8);

  bench_topk("topk 50 float32 16 x 128000", normal<float>(16 * 128000), 128000, 50);
  bench_topk("topk 50 bfloat16 16 x 128000", normal<BFloat16>(16 * 128000), 128000, 50);
  bench_topk("topk 10 float32 1M", floats, kMillion, 10);
  bench_topk("topk 10000 float32 1M", floats, kMillion, 10000);
  bench_topk("topk 500000 float32 1M", floats, kMillion, 500000);
  bench_topk("topk 5 float32 10000 x 100", floats, 100, 5);

  float value;
  int64_t index;
  report("median float32 1M", [&] {
    cpu::median(DType::Float32, {{}, kMillion}, cpu::NanPolicy::Propagate, {floats.data()}, {&value}, {&index});
  });
  Buffer<int64_t> integer_values(kMillion), inverse(kMillion), counts(kMillion);
  report("unique int64 below 1000, 1M, with inverse", [&] {
    cpu::unique(DType::Int64, small_integers.data(), kMillion, integer_values.data(), inverse.data(), counts.data());
  });
  Buffer<float> boundaries(1000);
  for (int i = 0; i < 1000; ++i) boundaries[i] = -3 + 0.006f * i;
  report("searchsorted float32 1M in 1000", [&] {
    cpu::searchsorted<int64_t>(DType::Float32, {{}, 1000}, {boundaries.data()}, {}, kMillion, {floats.data()},
                               {inverse.data()}, cpu::SearchSide::Left);
  });
}
