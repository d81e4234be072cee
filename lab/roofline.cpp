// The roofline of this machine: what its memory and its arithmetic allow, and where operations stand under it.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include <unistd.h>

#include "instruments.h"
#include "mica/layers.h"
#include "mica/parallel.h"

namespace mica::lab {

namespace {

using SteadyClock = std::chrono::steady_clock;

// The best of several runs, after a warm-up, within a budget: a roof is what can be reached.
template <class Body>
double best_seconds(Body body, double budget) {
  body();
  double best = INFINITY;
  const auto started = SteadyClock::now();
  do {
    const auto begin = SteadyClock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(SteadyClock::now() - begin).count());
  } while (std::chrono::duration<double>(SteadyClock::now() - started).count() < budget);
  return best;
}

struct Roof {
  double bandwidth = 0, cached = 0;  // bytes per second read or written: of memory, and of what lies in a cache
  double cache_bytes = 0;            // up to which an operation that is repeated finds its numbers there
  double overhead = 0;               // seconds of a call that does next to nothing
  std::map<std::string, double> flops;
  double speed_of(double bytes) const { return bytes <= cache_bytes ? cached : bandwidth; }
};

double cache_size() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (const long size = sysconf(_SC_LEVEL3_CACHE_SIZE); size > 0) return static_cast<double>(size) / 2;
#endif
  return 2e6;  // what is not told is small
}

// Measured once for a number of threads. A copy of 64 MB lies in no cache; a product of 768 rows is all arithmetic.
const Roof& roof_of_this_machine() {
  static std::map<int, Roof> known;
  Roof& roof = known[static_cast<int>(get_num_threads())];
  if (roof.bandwidth > 0) return roof;
  const Tensor from = mica::zeros({int64_t{1} << 24}), to = mica::empty_like(from);
  roof.bandwidth = 2 * static_cast<double>(from.nbytes()) / best_seconds([&] { to.copy_(from); }, 0.1);
  roof.cache_bytes = cache_size();
  const Tensor near = from.narrow(0, 0, int64_t{1} << 17), beside = to.narrow(0, 0, int64_t{1} << 17);
  const double size = static_cast<double>(near.nbytes());
  roof.cached = std::max({roof.bandwidth, 2 * size / best_seconds([&] { beside.copy_(near); }, 0.01),
                          size / best_seconds([&] { near.sum(); }, 0.01)});
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
    const int64_t n = 768;
    const Tensor a = mica::ones({n, n}, TensorOptions(dtype)), c = mica::empty_like(a);
    roof.flops[name(dtype)] =
        2 * std::pow(static_cast<double>(n), 3) / best_seconds([&] { mica::matmul_out(c, a, a); }, 0.08);
  }
  const Tensor one = mica::ones({1});
  roof.overhead = best_seconds(
                      [&] {
                        for (int i = 0; i < 100; ++i) one.add(one);
                      },
                      0.005) /
                  100;
  return roof;
}

// An operation on n x n, or n, numbers: its arithmetic and the bytes that have to move, counted once each.
struct Kernel {
  const char* name;
  const char* python;
  double (*operations)(double n);
  double (*bytes)(double n);
  Tensor (*run)(const Tensor& a, const Tensor& b);
  bool square;
};
const Kernel kKernels[] = {
    {"add", "a + b", [](double n) { return n; }, [](double n) { return 12 * n; },
     [](const Tensor& a, const Tensor& b) { return a.add(b); }, false},
    {"exp", "a.exp()", [](double n) { return n; }, [](double n) { return 8 * n; },
     [](const Tensor& a, const Tensor&) { return a.exp(); }, false},
    {"sum", "a.sum()", [](double n) { return n; }, [](double n) { return 4 * n; },
     [](const Tensor& a, const Tensor&) { return a.sum(); }, false},
    {"softmax", "a.softmax(1)", [](double n) { return 4 * n * n; }, [](double n) { return 8 * n * n; },
     [](const Tensor& a, const Tensor&) { return a.softmax(1); }, true},
    {"transpose", "a.t().contiguous()", [](double) { return 0.0; }, [](double n) { return 8 * n * n; },
     [](const Tensor& a, const Tensor&) { return a.t().contiguous(); }, true},
    {"matrix times vector", "a @ v", [](double n) { return 2 * n * n; }, [](double n) { return 4 * (n * n + 2 * n); },
     [](const Tensor& a, const Tensor& b) { return a.mv(b.select(0, 0)); }, true},
    {"matrix product", "a @ b", [](double n) { return 2 * n * n * n; }, [](double n) { return 12 * n * n; },
     [](const Tensor& a, const Tensor& b) { return a.mm(b); }, true}};

}  // namespace

Json machine(const Json&) {
  NoGradGuard below;
  std::lock_guard lock(measuring);
  const Roof& roof = roof_of_this_machine();
  Json flops = Json::object();
  for (const auto& [dtype, speed] : roof.flops) flops[dtype] = speed;
  return {{"bandwidth", roof.bandwidth},
          {"cache_bandwidth", roof.cached},
          {"cache_bytes", roof.cache_bytes},
          {"overhead", roof.overhead},
          {"flops", flops},
          {"threads", get_num_threads()},
          {"ridge", roof.flops.at("float32") / roof.bandwidth}};
}

Json roofline(const Json& question) {
  NoGradGuard below;
  const auto elements = question.at("elements").get<int64_t>();
  MICA_CHECK(elements >= 64 && elements <= (int64_t{1} << 22), "64 to 4194304 numbers are computed with here, not ",
             elements);
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(elements)));
  std::lock_guard lock(measuring);
  const Roof& roof = roof_of_this_machine();
  const double peak = roof.flops.at("float32");
  Json rows = Json::array();
  for (const Kernel& k : kKernels) {
    const bool large = k.square && std::string_view(k.name) == "matrix product";
    const int64_t n = k.square ? (large ? std::min<int64_t>(side, 1024) : side) : elements;
    const DimVector shape = k.square ? DimVector{n, n} : DimVector{n};
    const Tensor a = mica::rand(shape, Generator(0)), b = mica::rand(shape, Generator(1));
    const double seconds = best_seconds([&] { k.run(a, b); }, 0.004);
    const double size = static_cast<double>(n), operations = k.operations(size), bytes = k.bytes(size);
    // The longest of three times is what the operation cannot do without.
    const double moving = bytes / roof.speed_of(bytes), computing = operations / peak;
    const double least = std::max({moving, computing, roof.overhead});
    rows.push_back({{"name", k.name},
                    {"python", k.python},
                    {"shape", integers(shape)},
                    {"operations", operations},
                    {"bytes", bytes},
                    {"intensity", operations / bytes},
                    {"seconds", seconds},
                    {"speed", operations / seconds},
                    {"moved", bytes / seconds},
                    {"attainable", least},
                    {"bound", least == roof.overhead ? "overhead"
                              : least == moving      ? "memory"
                                                     : "arithmetic"},
                    {"cached", bytes <= roof.cache_bytes},
                    {"reached", least / seconds}});
  }
  return {{"rows", rows},
          {"machine",
           {{"bandwidth", roof.bandwidth},
            {"cache_bandwidth", roof.cached},
            {"cache_bytes", roof.cache_bytes},
            {"flops", peak},
            {"overhead", roof.overhead},
            {"ridge", peak / roof.bandwidth}}}};
}

}  // namespace mica::lab
