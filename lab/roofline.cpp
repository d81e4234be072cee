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

struct Sampled {
  double best, middle;
  // A machine that does nothing else takes as long every time, or nearly.
  bool disturbed() const { return middle > 1.3 * best; }
};

// Several runs after a warm-up, within a budget.
template <class Body>
Sampled sampled(Body body, double budget) {
  body();
  std::vector<double> times;
  const auto started = SteadyClock::now();
  do {
    const auto begin = SteadyClock::now();
    body();
    times.push_back(std::chrono::duration<double>(SteadyClock::now() - begin).count());
  } while (std::chrono::duration<double>(SteadyClock::now() - started).count() < budget);
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

struct Roof {
  std::string name = "this machine";
  double bandwidth = 0, cached = 0;  // bytes per second read or written: of memory, and of what lies in a cache
  double cache_bytes = 0;            // up to which an operation that is repeated finds its numbers there
  double overhead = INFINITY;        // seconds of a call that does next to nothing
  std::map<std::string, double> flops;
  int rounds = 0;          // how often it was measured; the best of all rounds counts
  bool disturbed = false;  // the last round was
  double speed_of(double bytes) const { return bytes <= cache_bytes ? cached : bandwidth; }
};

// In a page nothing is measured: a roof computed from what makers state, as an example.
Roof modelled_roof() {
  Roof roof;
  roof.name = "a model of eight cores at 4 GHz with AVX2 and two channels of DDR5-5200";
  roof.flops = {{"float32", 8 * 4e9 * 32}, {"float64", 8 * 4e9 * 16}};  // two fused products of a vector a cycle
  roof.bandwidth = 2 * 8 * 5.2e9;
  roof.cached = 1e12;
  roof.cache_bytes = 16e6;
  roof.overhead = 1e-6;
  return roof;
}

double cache_size() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (const long size = sysconf(_SC_LEVEL3_CACHE_SIZE); size > 0) return static_cast<double>(size) / 2;
#endif
  return 2e6;  // what is not told is small
}

// One round for a number of threads. A copy of 64 MB lies in no cache; a product of 768 rows is all arithmetic.
void measure(Roof& roof) {
  roof.disturbed = false;
  const auto seconds = [&](auto body, double budget) {
    const Sampled s = sampled(body, budget);
    roof.disturbed |= s.disturbed();
    return s.best;
  };
  const auto raise = [](double& known, double found) { known = std::max(known, found); };
  const Tensor from = mica::zeros({int64_t{1} << 24}), to = mica::empty_like(from);
  raise(roof.bandwidth, 2 * static_cast<double>(from.nbytes()) / seconds([&] { to.copy_(from); }, 0.06));
  roof.cache_bytes = cache_size();
  const Tensor near = from.narrow(0, 0, int64_t{1} << 17), beside = to.narrow(0, 0, int64_t{1} << 17);
  const double size = static_cast<double>(near.nbytes());
  raise(roof.cached, std::max({roof.bandwidth, 2 * size / seconds([&] { beside.copy_(near); }, 0.005),
                               size / seconds([&] { near.sum(); }, 0.005)}));
  for (const DType dtype : {DType::Float32, DType::Float64, DType::BFloat16}) {
    const int64_t n = 768;
    const Tensor a = mica::ones({n, n}, TensorOptions(dtype)), c = mica::empty_like(a);
    raise(roof.flops[name(dtype)],
          2 * std::pow(static_cast<double>(n), 3) / seconds([&] { mica::matmul_out(c, a, a); }, 0.04));
  }
  const Tensor one = mica::ones({1});
  const double calls = seconds(
      [&] {
        for (int i = 0; i < 100; ++i) one.add(one);
      },
      0.003);
  roof.overhead = std::min(roof.overhead, calls / 100);
  ++roof.rounds;
}

// Measured twice at first, and up to twice more where something else took the machine's time; once more when asked for.
const Roof& roof_of_this_machine(bool again = false) {
  static std::map<int, Roof> known;
  if constexpr (!kMeasures) {
    static const Roof model = modelled_roof();
    return model;
  }
  Roof& roof = known[static_cast<int>(get_num_threads())];
  if (roof.rounds > 0 && !again) return roof;
  const int least = roof.rounds + (roof.rounds > 0 ? 1 : 2), most = least + 2;
  while (roof.rounds < least || (roof.disturbed && roof.rounds < most)) measure(roof);
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

Json machine(const Json& question) {
  NoGradGuard below;
  std::lock_guard lock(measuring);
  const Roof& roof = roof_of_this_machine(question.value("again", false));
  Json flops = Json::object();
  for (const auto& [dtype, speed] : roof.flops) flops[dtype] = speed;
  return {{"name", roof.name},
          {"measured", kMeasures},
          {"bandwidth", roof.bandwidth},
          {"cache_bandwidth", roof.cached},
          {"cache_bytes", roof.cache_bytes},
          {"overhead", roof.overhead},
          {"flops", flops},
          {"rounds", roof.rounds},
          {"disturbed", roof.disturbed},
          {"threads", get_num_threads()},
          {"ridge", roof.flops.at("float32") / roof.bandwidth}};
}

namespace {

// Where an operation stands under the roof; the time that it took, or where nothing is measured the least it could.
Json under_the_roof(const Kernel& k, int64_t n, const Roof& roof) {
  const DimVector shape = k.square ? DimVector{n, n} : DimVector{n};
  const double size = static_cast<double>(n), operations = k.operations(size), bytes = k.bytes(size);
  // The longest of three times is what the operation cannot do without.
  const double moving = bytes / roof.speed_of(bytes), computing = operations / roof.flops.at("float32");
  const double least = std::max({moving, computing, roof.overhead});
  double seconds = least;
  if constexpr (kMeasures) {
    const Tensor a = mica::rand(shape, Generator(0)), b = mica::rand(shape, Generator(1));
    seconds = sampled([&] { k.run(a, b); }, 0.004).best;
  }
  return {{"name", k.name},
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
          {"reached", least / seconds}};
}

}  // namespace

Json roofline(const Json& question) {
  NoGradGuard below;
  const auto elements = question.at("elements").get<int64_t>();
  MICA_CHECK(elements >= 64 && elements <= (int64_t{1} << 22), "64 to 4194304 numbers are computed with here, not ",
             elements);
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(elements)));
  std::lock_guard lock(measuring);
  bool again = question.value("again", false);
  Json rows;
  for (int turn = 0; turn < 2; ++turn) {
    const Roof& roof = roof_of_this_machine(again);
    rows = Json::array();
    again = false;
    for (const Kernel& k : kKernels) {
      const bool large = k.square && std::string_view(k.name) == "matrix product";
      rows.push_back(under_the_roof(k, k.square ? (large ? std::min<int64_t>(side, 1024) : side) : elements, roof));
      // Above the roof: it was measured while the machine had other work, and is too low.
      again |= rows.back()["reached"].get<double>() > 1.1;
    }
    if (!again || roof.rounds >= 8) break;
  }
  const Roof& roof = roof_of_this_machine();
  const double peak = roof.flops.at("float32");
  return {{"rows", rows},
          {"machine",
           {{"name", roof.name},
            {"measured", kMeasures},
            {"rounds", roof.rounds},
            {"disturbed", roof.disturbed || again},  // what is above the roof still says that the roof is too low
            {"bandwidth", roof.bandwidth},
            {"cache_bandwidth", roof.cached},
            {"cache_bytes", roof.cache_bytes},
            {"flops", peak},
            {"overhead", roof.overhead},
            {"ridge", peak / roof.bandwidth}}}};
}

}  // namespace mica::lab
