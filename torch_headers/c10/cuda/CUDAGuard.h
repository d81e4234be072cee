// Guards of the current device and stream of CUDA.
#pragma once

#include "c10/cuda/CUDAStream.h"

namespace c10::cuda {

class CUDAGuard : public DeviceGuard {
 public:
  explicit CUDAGuard(int index) : DeviceGuard(Device(DeviceType::CUDA, index)) {}
  explicit CUDAGuard(Device device) : DeviceGuard(device) {}
};

// A guard that may hold none: for a tensor that may be undefined.
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<Device> device) {
    if (device && device->is_cuda()) guard_.emplace(*device);
  }

 private:
  std::optional<CUDAGuard> guard_;
};

// For a scope, work is queued on `stream`.
class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(CUDAStream stream)
      : device_(Device(DeviceType::CUDA, stream.device_index())),
        previous_(getCurrentCUDAStream(stream.device_index())) {
    setCurrentCUDAStream(stream);
  }
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;
  ~CUDAStreamGuard() { setCurrentCUDAStream(previous_); }

 private:
  CUDAGuard device_;
  CUDAStream previous_;
};

}  // namespace c10::cuda

namespace at::cuda {
using namespace c10::cuda;  // NOLINT
}
