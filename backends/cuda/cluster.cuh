// Blocks that run at the same time on neighbouring multiprocessors, a cluster, and write each other's shared memory:
// the blocks along z where a launch says so (launch.cuh). GPUs before compute capability 9 have none; there
// each block is alone.
#pragma once

#include "backends/cuda/element.cuh"

namespace mica::cuda {

// All threads of all blocks of the cluster meet: each arrives, may do other work, and waits. What a block has written
// to another one's shared memory before it arrived is there when that one has waited. No block may write another one's
// shared memory before the cluster has met for the first time, since that block might not have started.
__device__ inline void arrive_at_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
__device__ inline void wait_for_cluster() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// Writes to a variable in shared memory as the block with that number in the cluster has it.
__device__ inline void write_shared(float* variable, unsigned block, float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(variable));
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(block));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
#else
  *variable = value;
#endif
}

}  // namespace mica::cuda
