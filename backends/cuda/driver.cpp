#include "backends/cuda/driver.h"

#include "backends/cuda/runtime.h"

namespace mica::cuda {

namespace {

template <class F>
void find(F& function, const char* name) {
  cudaDriverEntryPointQueryResult result;
  void* found = nullptr;
  MICA_CUDA(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  MICA_CHECK(result == cudaDriverEntryPointSuccess && found, "the CUDA driver has no function ", name);
  function = reinterpret_cast<F>(found);
}

}  // namespace

const DriverApi& driver() {
  static const DriverApi api = [] {
    DriverApi a{};
    find(a.granularity, "cuMemGetAllocationGranularity");
    find(a.reserve, "cuMemAddressReserve");
    find(a.free_addresses, "cuMemAddressFree");
    find(a.create, "cuMemCreate");
    find(a.release, "cuMemRelease");
    find(a.map, "cuMemMap");
    find(a.unmap, "cuMemUnmap");
    find(a.set_access, "cuMemSetAccess");
    find(a.error_string, "cuGetErrorString");
    return a;
  }();
  return api;
}

void fail_driver(CUresult status, const char* call) {
  const char* text = nullptr;
  driver().error_string(status, &text);
  fail(cat("CUDA error: ", text ? text : "unknown", " (from ", call, ")"));
}

}  // namespace mica::cuda
