#include "backends/cuda/green_contexts.h"

#include "backends/cuda/driver.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda {

namespace {

// Functions of drivers from CUDA 12.4 on.
struct GreenApi {
  decltype(&cuDeviceGet) device;
  decltype(&cuDeviceGetDevResource) resource;
  decltype(&cuDevSmResourceSplitByCount) split;
  decltype(&cuDevResourceGenerateDesc) describe;
  decltype(&cuGreenCtxCreate) create;
  decltype(&cuGreenCtxDestroy) destroy;
  decltype(&cuGreenCtxStreamCreate) stream;
};

template <class F>
void find_function(F& function, const char* name) {
  cudaDriverEntryPointQueryResult result;
  void* found = nullptr;
  MICA_CUDA(cudaGetDriverEntryPointByVersion(name, &found, 13000, cudaEnableDefault, &result));
  MICA_CHECK(result == cudaDriverEntryPointSuccess && found,
             "Green contexts are not supported: the CUDA driver has no ", name);
  function = reinterpret_cast<F>(found);
}

const GreenApi& api() {
  static const GreenApi found = [] {
    GreenApi a{};
    find_function(a.device, "cuDeviceGet");
    find_function(a.resource, "cuDeviceGetDevResource");
    find_function(a.split, "cuDevSmResourceSplitByCount");
    find_function(a.describe, "cuDevResourceGenerateDesc");
    find_function(a.create, "cuGreenCtxCreate");
    find_function(a.destroy, "cuGreenCtxDestroy");
    find_function(a.stream, "cuGreenCtxStreamCreate");
    return a;
  }();
  return found;
}

void check(CUresult status, const char* call) {
  if (status != CUDA_SUCCESS) fail_driver(status, call);
}
#define MICA_DRIVER(call) check(api().call, #call)

std::string as_text(const void* handle) { return std::to_string(reinterpret_cast<uintptr_t>(handle)); }
template <class H>
H as_handle(const std::string& text) {
  return reinterpret_cast<H>(static_cast<uintptr_t>(std::stoull(text)));
}

}  // namespace

std::string new_green_context(int device, int multiprocessors) {
  const int all = properties(device).multiProcessorCount;
  MICA_CHECK(multiprocessors > 0 && multiprocessors <= all,
             "Invalid number of SMs requested for green context: ", multiprocessors, " (device has ", all, " SMs)");
  MICA_CUDA(cudaFree(nullptr));  // the device's own context is there before parts of it
  CUdevice number;
  MICA_DRIVER(device(&number, device));
  CUdevResource whole, part;
  MICA_DRIVER(resource(number, &whole, CU_DEV_RESOURCE_TYPE_SM));
  unsigned groups = 1;
  MICA_DRIVER(split(&part, &groups, &whole, nullptr, 0, static_cast<unsigned>(multiprocessors)));
  MICA_CHECK(groups == 1, "the multiprocessors of the device cannot be parted so");
  CUdevResourceDesc description;
  MICA_DRIVER(describe(&description, &part, 1));
  CUgreenCtx made;
  MICA_DRIVER(create(&made, description, number, CU_GREEN_CTX_DEFAULT_STREAM));
  return as_text(made) + " " + std::to_string(part.sm.smCount);
}

std::string new_green_stream(const std::string& context) {
  CUstream made;
  MICA_DRIVER(stream(&made, as_handle<CUgreenCtx>(context), CU_STREAM_NON_BLOCKING, 0));
  return as_text(made);
}

void free_green_stream(const std::string& stream) {
  const auto handle = as_handle<cudaStream_t>(stream);
  MICA_CUDA(cudaStreamSynchronize(handle));
  MICA_CUDA(cudaStreamDestroy(handle));
}

void free_green_context(const std::string& context) { MICA_DRIVER(destroy(as_handle<CUgreenCtx>(context))); }

}  // namespace mica::cuda
