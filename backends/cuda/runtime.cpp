#include "backends/cuda/runtime.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "mica/core/fork.h"
#include "mica/warning.h"

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

// A child process cannot use the driver of its parent: where CUDA was in use before a fork, the child gets an error.
static std::atomic<bool> forked{false};

static void watch_forks() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
  static_cast<void>(watched);
}

static void check_not_forked() {
  if (forked.load(std::memory_order_relaxed)) [[unlikely]]
    fail(
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
        "start method");
}

// The runtime keeps the thread's device; a copy here saves a call into it.
static thread_local int thread_device = -1;

int current_device() {
  check_not_forked();
  if (thread_device < 0) {
    int index = 0;
    MICA_CUDA(cudaGetDevice(&index));
    MICA_CUDA(cudaSetDevice(index));  // a new thread has no context yet, without which the driver takes no call
    watch_forks();
    thread_device = index;
  }
  return thread_device;
}

void set_device(int index) {
  check_not_forked();
  MICA_CUDA(cudaSetDevice(index));
  watch_forks();
  thread_device = index;
}

void DeviceGuard::restore(int index) noexcept {
  if (cudaSetDevice(index) == cudaSuccess) thread_device = index;
}

static std::atomic<int> waiting_mode{0};

void set_waiting(WaitingIs mode) { waiting_mode = static_cast<int>(mode); }
WaitingIs waiting_is() { return static_cast<WaitingIs>(waiting_mode.load(std::memory_order_relaxed)); }

void about_to_wait() {
  const WaitingIs mode = waiting_is();
  if (mode == WaitingIs::Fine) [[likely]]
    return;
  MICA_CHECK(mode != WaitingIs::Refused, "called a synchronizing CUDA operation");
  warn("called a synchronizing CUDA operation");
}

namespace {

// Pinned memory of a thread, handed on to another when it ends: giving it back could meet a driver that is gone.
class Staging {
 public:
  Staging() {
    {
      std::lock_guard lock(mutex());
      if (!left().empty()) {
        data = left().back();
        left().pop_back();
        return;
      }
    }
    MICA_CUDA(cudaHostAlloc(&data, kReadBackBytes, cudaHostAllocPortable));
  }
  Staging(const Staging&) = delete;
  ~Staging() {
    std::lock_guard lock(mutex());
    left().push_back(data);
  }
  void* data = nullptr;

 private:
  static std::mutex& mutex() {
    struct Lock {
      std::mutex mutex;
      HeldOverFork held{mutex, LockOrder::Devices};
    };
    static auto* made = new Lock;
    return made->mutex;
  }
  static std::vector<void*>& left() {
    static auto* made = new std::vector<void*>;
    return *made;
  }
};

}  // namespace

void read_back(void* to, const void* from, size_t nbytes, int device) {
  about_to_wait();
  thread_local const Staging staging;
  const cudaStream_t stream = current_stream(device);
  MICA_CUDA(cudaMemcpyAsync(staging.data, from, nbytes, cudaMemcpyDeviceToHost, stream));
  MICA_CUDA(cudaStreamSynchronize(stream));
  std::memcpy(to, staging.data, nbytes);
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
