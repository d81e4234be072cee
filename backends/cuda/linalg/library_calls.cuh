// Calls of cuSOLVER's interface for any type, with the workspaces that they ask for.
#pragma once

#include <memory>

#include "backends/cuda/context.h"
#include "backends/cuda/linalg/cusolver.h"

namespace mica::cuda::linalg {

// Memory on the device and on the host, of sizes that a function of the library has named.
class Workspaces {
 public:
  Workspaces(size_t on_device, size_t on_host, int device)
      : device_(std::max<size_t>(on_device, 16), device), host_(on_host ? new unsigned char[on_host] : nullptr) {}
  void* device() const { return device_.data(); }
  void* host() const { return host_.get(); }

 private:
  Workspace device_;
  std::unique_ptr<unsigned char[]> host_;
};

inline cusolver::Type real_type(cusolver::Type type) {
  return type == CUDA_C_32F ? CUDA_R_32F : type == CUDA_C_64F ? CUDA_R_64F : type;
}

}  // namespace mica::cuda::linalg
