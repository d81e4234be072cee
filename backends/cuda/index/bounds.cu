// The check of a list of indices.
#include "backends/cuda/context.h"
#include "backends/cuda/places.cuh"

namespace mica::cuda {

namespace {

struct FindOutside {
  const int64_t* index;
  int64_t low;
  uint64_t span;
  unsigned long long* first;
  __device__ void operator()(int64_t i) const {
    if (static_cast<uint64_t>(index[i]) - static_cast<uint64_t>(low) >= span)
      atomicMin(first, static_cast<unsigned long long>(i));
  }
};

}  // namespace

void first_outside(const TensorView& index, int64_t low, int64_t high, int64_t* position) {
  *position = -1;
  if (index.numel == 0) return;
  const int device = index.device.index();
  DeviceGuard guard(device);
  const Workspace flag(sizeof(unsigned long long), device);
  const cudaStream_t stream = current_stream(device);
  MICA_CUDA(cudaMemsetAsync(flag.data(), 0xff, sizeof(unsigned long long), stream));
  for_each(device, index.numel,
           FindOutside{index.ptr<const int64_t>(), low, static_cast<uint64_t>(high) - static_cast<uint64_t>(low),
                       static_cast<unsigned long long*>(flag.data())});
  read_back(position, flag.data(), sizeof *position, device);
}

}  // namespace mica::cuda
