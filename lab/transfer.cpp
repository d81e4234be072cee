// What moving a matrix costs, and what multiplying it costs: measured here, modelled for machines that are not.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "instruments.h"
#include "mica/backend.h"
#include "mica/parallel.h"

namespace mica::lab {

namespace {

using Clock = std::chrono::steady_clock;

// The least time of several runs, within a budget.
template <class Work>
double least_seconds(Work work, double budget) {
  double best = INFINITY;
  const auto started = Clock::now();
  do {
    const auto begin = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  } while (std::chrono::duration<double>(Clock::now() - started).count() < budget);
  return best;
}

// Named figures of machines: host to device bandwidth and the matrix units' peak, as their makers state them.
struct Machine {
  const char* name;
  const char* bus;
  double bytes_per_second, pinned_factor, flops16, flops32;
};
constexpr Machine kMachines[] = {{"A100", "PCIe 4.0 x16", 25e9, 0.5, 312e12, 19.5e12},
                                 {"H100", "PCIe 5.0 x16", 50e9, 0.5, 989e12, 67e12},
                                 {"RTX 4090", "PCIe 4.0 x16", 25e9, 0.5, 165e12, 82.6e12},
                                 {"T4", "PCIe 3.0 x16", 12e9, 0.5, 65e12, 8.1e12}};

// Where the product takes as long as the transfer, from one size at which both were measured: one grows with the square
// of the rows, the other with the cube.
double crossing(int64_t n, double transfer, double compute) { return static_cast<double>(n) * transfer / compute; }

Json on_the_host(int64_t n, DType dtype, double bytes, double flops) {
  const Tensor a = mica::randn({n, n}, Generator(0)).to(dtype), b = mica::randn({n, n}, Generator(1)).to(dtype);
  Tensor c = mica::empty({n, n}, TensorOptions(dtype));
  const double copy = least_seconds([&] { c.copy_(a); }, 0.004);
  // A large product is measured once: it is steady, and an answer should not take long.
  const double product = least_seconds([&] { mica::matmul_out(c, a, b); }, n <= 1024 ? 0.012 : 0.0);
  return {{"name", "this machine"},
          {"kind", "measured"},
          {"what", cat("memory to memory, ", get_num_threads(), " threads")},
          {"transfer", copy},
          {"compute", product},
          {"bandwidth", 2 * bytes / copy},
          {"flops", flops / product},
          {"crossover", crossing(n, copy, product)}};
}

// One after the other from pageable and from pinned memory, and both at once: while one matrix is multiplied on a
// stream, the next one comes on another.
Json on_the_device(int64_t n, DType dtype, double bytes, double flops) {
  const Device gpu{DeviceType::CUDA, 0};
  const Backend& g = backend(DeviceType::CUDA);
  const Tensor host = mica::randn({n, n}, Generator(0)).to(dtype);
  Tensor there = host.to(gpu, dtype), next = there.clone(), other = there.clone(), result = mica::empty_like(there);
  Tensor pinned = mica::empty({n, n}, TensorOptions(dtype).pinned_memory(true));
  pinned.copy_(host);
  const auto timed = [&](auto work) {
    work();  // libraries start, and choose their kernels, at the first call
    return least_seconds(
        [&] {
          work();
          g.synchronize(0);
        },
        0.02);
  };
  const double pageable = timed([&] { there.copy_(host); });
  const double fast = timed([&] { there.copy_(pinned, true); });
  const double product = timed([&] { mica::matmul_out(result, there, other); });
  const Stream usual = g.current_stream(0), beside = g.new_stream(0, 0);
  const double both = timed([&] {
    mica::matmul_out(result, there, other);
    g.set_stream(beside);
    next.copy_(pinned, true);
    g.set_stream(usual);
  });
  return {{"name", g.device_name ? g.device_name(0) : "CUDA"},
          {"kind", "measured"},
          {"what", "host to device"},
          {"transfer", pageable},
          {"pinned", fast},
          {"compute", product},
          {"overlapped", both},
          {"bandwidth", bytes / fast},
          {"flops", flops / product},
          {"crossover", crossing(n, fast, product)}};
}

}  // namespace

Json transfer(const Json& question) {
  NoGradGuard below;
  const auto n = question.at("n").get<int64_t>();
  MICA_CHECK(n >= 16 && n <= 4096, "the matrix has 16 to 4096 rows here, not ", n);
  const DType dtype = dtype_named(question.value("dtype", "float32"));
  MICA_CHECK(dtype == DType::Float32 || dtype == DType::BFloat16 || dtype == DType::Float16,
             "the matrix is of float32, float16 or bfloat16 here, not of ", dtype);
  const double bytes = static_cast<double>(n * n * element_size(dtype));
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n);
  Json rows = Json::array();
  // What is modelled is known at once: the page asks for it first.
  if (question.value("measure", true)) {
    std::lock_guard lock(measuring);
    rows.push_back(on_the_host(n, dtype, bytes, flops));
    if (device_count(DeviceType::CUDA) > 0) rows.push_back(on_the_device(n, dtype, bytes, flops));
  }
  for (const Machine& m : kMachines) {
    const double speed = dtype == DType::Float32 ? m.flops32 : m.flops16;
    const double pinned = bytes / m.bytes_per_second, pageable = pinned / m.pinned_factor, product = flops / speed;
    rows.push_back({{"name", m.name},
                    {"kind", "modelled"},
                    {"what", m.bus},
                    {"transfer", pageable},
                    {"pinned", pinned},
                    {"compute", product},
                    {"overlapped", std::max(pinned, product)},
                    {"bandwidth", m.bytes_per_second},
                    {"flops", speed},
                    // The rows from which on the product takes longer than the transfer of one operand.
                    {"crossover", speed * static_cast<double>(element_size(dtype)) / (2 * m.bytes_per_second)}});
  }
  return {{"n", n}, {"bytes", bytes}, {"operations", flops}, {"rows", rows}};
}

}  // namespace mica::lab
