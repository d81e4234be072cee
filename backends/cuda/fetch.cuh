// Asks for memory into the second cache. That changes nothing that can be seen, so a kernel may ask for what its
// predecessors do not write before it waits for them (launch.cuh).
#pragma once

namespace mica::cuda {

__device__ inline void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

}  // namespace mica::cuda
