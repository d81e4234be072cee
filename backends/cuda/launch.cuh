// Starts a kernel through the driver. Its function is looked up once for each device. Where the GPU can, the kernel's
// blocks are prepared while the last kernel of its stream still ends: both the host's call and the gap between the two
// become shorter. So a kernel that is started here begins with wait_for_predecessors(), in every thread: before that
// returns, earlier work may not be done.
#pragma once

#include "backends/cuda/driver.h"
#include "backends/cuda/context.h"

namespace mica::cuda {

inline constexpr int kMostDevices = 64;

#if defined(__CUDACC__)
__device__ inline void wait_for_predecessors() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The same in the other order, for a kernel whose successor may begin early (FusedProducts::early): when the successor
// starts, all that came before this kernel has ended.
__device__ inline void wait_then_let_follow() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
#endif

template <auto kKernel>
struct Launcher;

template <class... P, void (*kKernel)(P...)>
struct Launcher<kKernel> {
  static CUfunction function(int device) {
    static CUfunction found[kMostDevices];  // read and written as atomics, without a header that every file would read
    CUfunction f = __atomic_load_n(&found[device], __ATOMIC_RELAXED);
    if (!f) [[unlikely]] {
      cudaFunction_t asked = nullptr;
      MICA_CUDA(cudaGetFuncBySymbol(&asked, reinterpret_cast<const void*>(kKernel)));
      f = asked;
      __atomic_store_n(&found[device], f, __ATOMIC_RELAXED);
    }
    return f;
  }
  // `clustered`, where the device has_clusters(): the blocks along z, eight at most, are a cluster (cluster.cuh).
  static void run(bool clustered, int device, dim3 blocks, dim3 threads, P... arguments) {
    void* addresses[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
    start_kernel(function(device), device, blocks, threads, addresses, clustered);
  }
};

// launch<kernel<...>>(device, blocks, threads, arguments...): on the device's current stream; the device is current.
template <auto kKernel, class... A>
void launch(int device, dim3 blocks, dim3 threads, const A&... arguments) {
  Launcher<kKernel>::run(false, device, blocks, threads, arguments...);
}

}  // namespace mica::cuda
