// What moving a matrix costs, and what computing with it costs: measured here, modelled for machines that are not.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "instruments.h"
#include "mica/backend.h"
#include "mica/parallel.h"

namespace mica::lab {

namespace {

using Clock = std::chrono::steady_clock;

struct Timing {
  double seconds;  // the median
  int samples;
};

// A warm-up, then samples within a budget: one at least, eleven at most.
template <class Work>
Timing measure(Work work, double budget) {
  work();
  std::vector<double> times;
  const auto started = Clock::now();
  do {
    const auto begin = Clock::now();
    work();
    times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  } while (times.size() < 11 && std::chrono::duration<double>(Clock::now() - started).count() < budget);
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return {times[times.size() / 2], static_cast<int>(times.size())};
}

// Named figures of machines, as their makers state them: host to device bandwidth in one direction from pinned memory,
// the device's own memory, and its matrix units. Pageable memory is copied into a pinned buffer first: half the speed.
struct Machine {
  const char* name;
  const char* bus;
  double pinned, pageable, memory, flops16, flops32;
};
constexpr Machine kMachines[] = {{"T4", "PCIe 3.0 x16", 12e9, 6e9, 320e9, 65e12, 8.1e12},
                                 {"RTX 4090", "PCIe 4.0 x16", 25e9, 12.5e9, 1008e9, 165e12, 82.6e12},
                                 {"A100", "PCIe 4.0 x16", 25e9, 12.5e9, 2039e9, 312e12, 19.5e12},
                                 {"H100", "PCIe 5.0 x16", 50e9, 25e9, 3350e9, 989e12, 67e12},
                                 {"GH200", "NVLink-C2C", 450e9, 225e9, 4000e9, 989e12, 67e12}};

// One matrix operand of n rows, and what is computed with it.
struct Task {
  bool product;  // a matrix product, or else an elementwise addition
  double bytes, operations;
};

// Batches that arrive and are computed with. From pageable memory one thing happens at a time; from pinned memory the
// next batch arrives while the last one is computed with, in the second of two buffers.
Json timeline(double transfer, double compute, bool overlapped, int batches) {
  Json lanes = Json::array();
  double arrived = 0, computed = 0, before = 0;
  for (int i = 0; i < batches; ++i) {
    const double begin = overlapped ? std::max(arrived, before) : computed;
    const double there = begin + transfer, start = std::max(there, computed);
    before = computed;  // its buffer is free when the batch before the last one is done
    arrived = there;
    computed = start + compute;
    lanes.push_back({{"batch", i}, {"transfer", {begin, there}}, {"compute", {start, computed}}});
  }
  return {{"batches", lanes}, {"seconds", computed}};
}

Json row_of(const std::string& name, const char* kind, const std::string& what, const Task& work, double pageable,
            double pinned, double compute) {
  const double best = pinned > 0 ? pinned : pageable;
  Json row = {{"name", name},
              {"kind", kind},
              {"what", what},
              {"transfer", pageable},
              {"bandwidth", work.bytes / pageable},
              {"pinned", pinned > 0 ? Json(pinned) : Json(nullptr)},
              {"pinned_bandwidth", pinned > 0 ? Json(work.bytes / pinned) : Json(nullptr)},
              {"compute", compute},
              {"flops", work.operations / compute},
              {"one_by_one", timeline(pageable, compute, false, 6)}};
  if (pinned > 0) row["overlapped"] = timeline(pinned, compute, true, 6);
  // A product grows with the cube of the rows, the transfer with the square: from one size on the product takes longer.
  // An addition grows like the transfer, which stays the longer of the two for every size.
  row["ratio"] = best / compute;
  row["crossover"] = work.product ? Json(best / compute) : Json(nullptr);
  return row;
}

Json on_the_host(int64_t n, DType dtype, const Task& work) {
  const Tensor a = mica::randn({n, n}, Generator(0)).to(dtype), b = mica::randn({n, n}, Generator(1)).to(dtype);
  Tensor c = mica::empty({n, n}, TensorOptions(dtype));
  const Timing copy = measure([&] { c.copy_(a); }, 0.1);
  const Timing compute = work.product ? measure([&] { mica::matmul_out(c, a, b); }, 0.4)
                                      : measure([&] { mica::add_out(c, a, b, 1); }, 0.1);
  Json row = row_of("this machine", "measured", cat("memory to memory, ", get_num_threads(), " threads"), work,
                    copy.seconds, 0, compute.seconds);
  row["samples"] = compute.samples;
  return row;
}

// From pageable and from pinned memory, each by itself.
Json on_the_device(int64_t n, DType dtype, const Task& work) {
  const Device gpu{DeviceType::CUDA, 0};
  const Backend& g = backend(DeviceType::CUDA);
  const Tensor host = mica::randn({n, n}, Generator(0)).to(dtype);
  Tensor there = host.to(gpu, dtype), other = there.clone(), result = mica::empty_like(there);
  Tensor pinned = mica::empty({n, n}, TensorOptions(dtype).pinned_memory(true));
  pinned.copy_(host);
  const auto timed = [&](auto body) {
    return measure(
        [&] {
          body();
          g.synchronize(0);
        },
        0.1);
  };
  const Timing pageable = timed([&] { there.copy_(host); }), fast = timed([&] { there.copy_(pinned, true); });
  const Timing compute = timed([&] {
    if (work.product) {
      mica::matmul_out(result, there, other);
    } else {
      mica::add_out(result, there, other, 1);
    }
  });
  Json row = row_of(g.device_name ? g.device_name(0) : "CUDA", "measured", "host to device", work, pageable.seconds,
                    fast.seconds, compute.seconds);
  row["samples"] = compute.samples;
  return row;
}

}  // namespace

Json transfer(const Json& question) {
  NoGradGuard below;
  const auto n = question.at("n").get<int64_t>();
  MICA_CHECK(n >= 16 && n <= 4096, "the matrix has 16 to 4096 rows here, not ", n);
  const DType dtype = dtype_named(question.value("dtype", "float32"));
  MICA_CHECK(dtype == DType::Float32 || dtype == DType::BFloat16 || dtype == DType::Float16,
             "the matrix is of float32, float16 or bfloat16 here, not of ", dtype);
  const std::string operation = question.value("operation", "matmul");
  MICA_CHECK(operation == "matmul" || operation == "add", "the operation is matmul or add here, not ", operation);
  const double rows_of = static_cast<double>(n), numbers = rows_of * rows_of;
  Task work{operation == "matmul", numbers * static_cast<double>(element_size(dtype)), numbers};
  if (work.product) work.operations = 2 * numbers * rows_of;
  Json rows = Json::array();
  // What is modelled is known at once: the page asks for it first.
  if (kMeasures && question.value("measure", true)) {
    std::lock_guard lock(measuring);
    rows.push_back(on_the_host(n, dtype, work));
    if (device_count(DeviceType::CUDA) > 0) rows.push_back(on_the_device(n, dtype, work));
  }
  for (const Machine& m : kMachines) {
    // An addition reads two matrices and writes one: the device's memory decides.
    const double speed = dtype == DType::Float32 ? m.flops32 : m.flops16;
    const double compute = work.product ? work.operations / speed : 3 * work.bytes / m.memory;
    rows.push_back(row_of(m.name, "modelled", m.bus, work, work.bytes / m.pageable, work.bytes / m.pinned, compute));
  }
  // The size from which on the product takes longer than the transfer of one operand.
  for (Json& row : rows)
    if (!row["crossover"].is_null()) row["crossover"] = rows_of * row["crossover"].get<double>();
  return {{"n", n},       {"operation", operation}, {"bytes", work.bytes}, {"operations", work.operations},
          {"rows", rows}, {"measures", kMeasures}};
}

}  // namespace mica::lab
