// The driver's own interface, found at run time through the runtime library: virtual memory, launches, modules.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

namespace mica::cuda {

struct DriverApi {
  decltype(&cuMemGetAllocationGranularity) granularity;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) free_addresses;
  decltype(&cuMemCreate) create;
  decltype(&cuMemRelease) release;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuGetErrorString) error_string;
  decltype(&cuLaunchKernelEx) launch;
  decltype(&cuMemsetD8Async) set_bytes;
  decltype(&cuMemsetD16Async) set_halves;
  decltype(&cuMemsetD32Async) set_words;
  decltype(&cuMemGetAddressRange) address_range;
  decltype(&cuModuleLoadData) load_module;
  decltype(&cuModuleGetFunction) module_function;
};

const DriverApi& driver();
// launch.cuh. `clustered`: all blocks along z are one cluster.
void start_kernel(CUfunction function, int device, dim3 blocks, dim3 threads, void** arguments, bool clustered = false);
bool has_clusters(int device);
[[noreturn]] void fail_driver(CUresult status, const char* call);

}  // namespace mica::cuda
