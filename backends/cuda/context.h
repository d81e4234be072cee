// The CUDA runtime as kernels use it: errors as exceptions, the current device and stream, memory of a kernel's own.
// Every file of kernels reads this, so it includes little.
#pragma once

#include <cuda_runtime.h>

#include "mica/error.h"

namespace mica::cuda {

[[noreturn]] void fail_cuda(cudaError_t status, const char* call);

inline void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    fail_cuda(status, call);
}
#define MICA_CUDA(call) ::mica::cuda::check(call, #call)

int device_count();
int current_device();
void set_device(int index);

// Makes a device current for a scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int index) : before_(current_device()), changed_(index != before_) {
    if (changed_) set_device(index);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  ~DeviceGuard() {
    if (changed_) restore(before_);
  }

 private:
  static void restore(int index) noexcept;
  int before_;
  bool changed_;
};

cudaStream_t current_stream(int index);  // of the calling thread
bool is_capturing(cudaStream_t stream);

// What torch.cuda.set_sync_debug_mode does about calls that wait for the device: nothing, a warning or an error.
enum class WaitingIs : int { Fine, Warned, Refused };
void set_waiting(WaitingIs mode);
WaitingIs waiting_is();
void about_to_wait();
// Reads a few bytes of the device's memory, after the work that was queued before, through pinned memory. It waits.
void read_back(void* to, const void* from, size_t nbytes, int device);
inline constexpr size_t kReadBackBytes = 4096;  // at most
const cudaDeviceProp& properties(int index);

void* allocate(size_t nbytes, int index);
void release(void* data, size_t nbytes, int index) noexcept;

// Memory of a kernel's own, in the order of the current stream.
class Workspace {
 public:
  Workspace(size_t nbytes, int index) : data_(allocate(nbytes, index)), nbytes_(nbytes), index_(index) {}
  Workspace(const Workspace&) = delete;
  ~Workspace() { release(data_, nbytes_, index_); }
  void* data() const { return data_; }

 private:
  void* data_;
  size_t nbytes_;
  int index_;
};

}  // namespace mica::cuda
