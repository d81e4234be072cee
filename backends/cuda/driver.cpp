#include "backends/cuda/driver.h"

#include "backends/cuda/launch.cuh"
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
    find(a.launch, "cuLaunchKernelEx");
    find(a.set_bytes, "cuMemsetD8Async");
    find(a.set_halves, "cuMemsetD16Async");
    find(a.set_words, "cuMemsetD32Async");
    find(a.address_range, "cuMemGetAddressRange");
    find(a.load_module, "cuModuleLoadData");
    find(a.module_function, "cuModuleGetFunction");
    return a;
  }();
  return api;
}

// From compute capability 9 on kernels may be laid out before the last one has ended, and blocks may be clusters.
static bool is_hopper_or_later(int device) {
  static const auto* able = [] {
    auto* made = new bool[kMostDevices]{};
    for (int i = 0; i < device_count() && i < kMostDevices; ++i) made[i] = properties(i).major >= 9;
    return made;
  }();
  return able[device];
}

bool has_clusters(int device) { return is_hopper_or_later(device); }

void start_kernel(CUfunction function, int device, dim3 blocks, dim3 threads, void** arguments, bool clustered) {
  CUlaunchAttribute attributes[2];
  CUlaunchConfig config{};
  config.gridDimX = blocks.x, config.gridDimY = blocks.y, config.gridDimZ = blocks.z;
  config.blockDimX = threads.x, config.blockDimY = threads.y, config.blockDimZ = threads.z;
  config.hStream = current_stream(device);
  config.attrs = attributes;
  if (is_hopper_or_later(device)) {
    CUlaunchAttribute& early = attributes[config.numAttrs++];
    early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    early.value.programmaticStreamSerializationAllowed = 1;
  }
  if (clustered) {
    CUlaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {1, 1, blocks.z};
  }
  const CUresult status = driver().launch(&config, function, arguments, nullptr);
  if (status != CUDA_SUCCESS) [[unlikely]]
    fail_driver(status, "cuLaunchKernelEx");
}

void fail_driver(CUresult status, const char* call) {
  const char* text = nullptr;
  driver().error_string(status, &text);
  fail(cat("CUDA error: ", text ? text : "unknown", " (from ", call, ")"));
}

}  // namespace mica::cuda
