// The streams that Mica's CUDA backend queues work on.
#pragma once

#include <cuda_runtime_api.h>

#include "mica/backend.h"
#include "torch/types.h"

namespace c10::cuda {

class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream, int device) : stream_(stream), device_(device) {}
  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }
  int device_index() const { return device_; }
  Device device() const { return Device(DeviceType::CUDA, device_); }
  void synchronize() const { MICA_HOOK(backend(DeviceType::CUDA), synchronize_stream)(Stream{stream_, device()}); }

 private:
  cudaStream_t stream_;
  int device_;
};

inline int current_device() { return with_index(kCUDA).index(); }

inline CUDAStream getCurrentCUDAStream(int device = -1) {
  if (device < 0) device = current_device();
  return {static_cast<cudaStream_t>(MICA_HOOK(backend(DeviceType::CUDA), current_stream)(device).handle), device};
}

inline void setCurrentCUDAStream(CUDAStream stream) {
  MICA_HOOK(backend(DeviceType::CUDA), set_stream)(Stream{stream.stream(), stream.device()});
}

}  // namespace c10::cuda

namespace at::cuda {
using namespace c10::cuda;  // NOLINT
}
