#include "backends/cuda/bounds.h"

#include <mutex>
#include <vector>

#include "mica/core/fork.h"

namespace mica::cuda {

namespace {

std::mutex mutex;
HeldOverFork held(mutex, LockOrder::Devices);
std::vector<const char*>& names() {
  static auto* all = new std::vector<const char*>;
  return *all;
}
std::vector<BoundsReport*>& reports() {
  static auto* all = new std::vector<BoundsReport*>(static_cast<size_t>(device_count()), nullptr);
  return *all;
}

}  // namespace

int bounds_op(const char* name) {
  std::lock_guard lock(mutex);
  auto& all = names();
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] == name) return static_cast<int>(i);
  all.push_back(name);
  return static_cast<int>(all.size()) - 1;
}

BoundsReport* bounds_report(int device) {
  std::lock_guard lock(mutex);
  BoundsReport*& report = reports()[static_cast<size_t>(device)];
  if (!report) {
    void* memory = nullptr;
    MICA_CUDA(cudaHostAlloc(&memory, sizeof(BoundsReport), cudaHostAllocMapped | cudaHostAllocPortable));
    report = static_cast<BoundsReport*>(memory);
    report->raised = 0;
  }
  return report;
}

void check_bounds(int device) {
  BoundsReport* report = reports()[static_cast<size_t>(device)];
  if (!report || !report->raised) return;
  std::lock_guard lock(mutex);
  const int64_t index = report->index, dim = report->dim, size = report->size;
  const char* op = names()[static_cast<size_t>(report->op)];
  const bool is_index = report->raised == 1;
  report->raised = 0;
  if (!is_index) fail(cat(op, " (found by an earlier call on cuda:", device, ")"));
  fail(ErrorKind::Index,
       cat("index ", index, " is out of bounds for dimension ", dim, " with size ", size, " (in ", op,
           ", which ran on cuda:", device, " before this call; its result holds elements of index 0 in these places)"));
}

}  // namespace mica::cuda
