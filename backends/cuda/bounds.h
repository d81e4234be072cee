// Indices outside of their range. A kernel that meets one stays inside the tensor, notes the index in memory of the
// host and continues. The next call that waits for the device, or the next one that takes indices, throws the error.
#pragma once

#include <cstdint>

#include "backends/cuda/context.h"

namespace mica::cuda {

struct BoundsReport {
  volatile int raised;
  volatile int op;
  volatile int64_t index, dim, size;
};

// Names an operation for a report. The string must live as long as the process.
int bounds_op(const char* name);
BoundsReport* bounds_report(int device);
// Throws the error that a kernel has noted, and forgets it.
void check_bounds(int device);

// The part that a kernel gets as an argument.
struct Bounds {
  BoundsReport* report;
  int op;

  // Throws an error that an earlier kernel has reported, then makes the object.
  static Bounds of(const char* name, int device) {
    check_bounds(device);
    return {bounds_report(device), bounds_op(name)};
  }
#if defined(__CUDACC__)
  // The name is the whole message here.
  __device__ void complain() const {
    if (report->raised) return;
    report->op = op;
    __threadfence_system();
    report->raised = 2;
  }
  // The index counted from the front; 0 where it is outside.
  __device__ int64_t checked(int64_t index, int64_t size, int dim, bool from_end) const {
    const int64_t at = from_end && index < 0 ? index + size : index;
    if (static_cast<uint64_t>(at) < static_cast<uint64_t>(size)) return at;
    if (!report->raised) {
      report->index = index;
      report->dim = dim;
      report->size = size;
      report->op = op;
      __threadfence_system();
      report->raised = 1;
    }
    return 0;
  }
#endif
};

}  // namespace mica::cuda
