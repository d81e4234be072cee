// The driver's own interface, found at run time through the runtime library: virtual memory.
#pragma once

#include <cuda.h>

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
};

const DriverApi& driver();
[[noreturn]] void fail_driver(CUresult status, const char* call);

}  // namespace mica::cuda
