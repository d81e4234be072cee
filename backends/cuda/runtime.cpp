#include "backends/cuda/runtime.h"

#include <memory>
#include <mutex>

namespace mica::cuda {

void fail_cuda(cudaError_t status, const char* call) {
  cudaGetLastError();  // a sticky error stays; one of this call alone is taken off the thread
  const ErrorKind kind = status == cudaErrorMemoryAllocation ? ErrorKind::OutOfMemory : ErrorKind::Runtime;
  fail(kind, cat("CUDA error: ", cudaGetErrorString(status), " (", cudaGetErrorName(status), " from ", call, ")"));
}

int device_count() {
  static const int count = [] {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
      cudaGetLastError();
      return 0;
    }
    return n;
  }();
  return count;
}

// The runtime keeps the thread's device; a copy here saves a call into it.
static thread_local int thread_device = -1;

int current_device() {
  if (thread_device < 0) MICA_CUDA(cudaGetDevice(&thread_device));
  return thread_device;
}

void set_device(int index) {
  MICA_CUDA(cudaSetDevice(index));
  thread_device = index;
}

void DeviceGuard::restore(int index) noexcept {
  if (cudaSetDevice(index) == cudaSuccess) thread_device = index;
}

const cudaDeviceProp& properties(int index) {
  static std::once_flag once;
  static std::unique_ptr<cudaDeviceProp[]> all;
  std::call_once(once, [] {
    all = std::make_unique<cudaDeviceProp[]>(static_cast<size_t>(device_count()));
    for (int i = 0; i < device_count(); ++i) MICA_CUDA(cudaGetDeviceProperties(&all[static_cast<size_t>(i)], i));
  });
  return all[static_cast<size_t>(index)];
}

}  // namespace mica::cuda
