#include "backends/cuda/fused/generated.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "backends/cuda/fused/text.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/runtime.h"
#include "mica/core/fork.h"

namespace mica::cuda {

namespace {

constexpr size_t kMostKinds = 4096;  // of more, the first ones are kept

std::mutex mutex;
HeldOverFork held(mutex, LockOrder::Plans);

// By device and signature. A loop that is seen for the first time gets no code yet, unless it is captured and thereby
// will run again: programs whose loops are never the same twice would spend their time on translation.
struct Code {
  CUfunction function = nullptr;
  bool failed = false;
};
std::map<std::string, Code>& codes() {
  static auto* all = new std::map<std::string, Code>;
  return *all;
}

bool is_wanted() {
  static const bool wanted = [] {
    const char* set = std::getenv("MICA_COMPILER_CODE");
    return !set || std::string_view(set) != "0";
  }();
  return wanted;
}

// Loading waits for nothing that a capture forbids: the mode allows it while this thread's stream is captured.
CUfunction translated(const std::string& text) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  MICA_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  if (driver().load_module(&module, text.c_str()) == CUDA_SUCCESS &&
      driver().module_function(&function, module, "fused") != CUDA_SUCCESS)
    function = nullptr;
  MICA_CUDA(cudaThreadExchangeStreamCaptureMode(&mode));
  return function;
}

CUfunction find_code(const FusedLoop& loop, const FusedLayout& layout, int device) {
  std::string key = signature(loop, layout);
  key += static_cast<char>(device);
  const std::lock_guard lock(mutex);
  const auto [at, is_new] = codes().try_emplace(std::move(key));
  Code& code = at->second;
  if (is_new && codes().size() > kMostKinds) {
    codes().erase(at);
    return nullptr;
  }
  if (is_new && !is_capturing(current_stream(device))) return nullptr;
  if (!code.function && !code.failed) {
    const cudaDeviceProp& p = properties(device);
    code.function = translated(ptx_of(loop, layout, p.major * 10 + p.minor));
    code.failed = !code.function;
  }
  return code.function;
}

}  // namespace

bool run_generated(const FusedLoop& loop, const FusedLayout& layout) {
  if (!is_wanted()) return false;
  const int device = loop.device.index();
  const CUfunction function = find_code(loop, layout, device);
  if (!function) return false;
  static thread_local std::vector<char> argument;
  pack_arguments(loop, layout, argument);
  void* addresses[] = {argument.data()};
  const auto blocks = static_cast<uint32_t>((layout.items + kFusedThreads - 1) / kFusedThreads);
  start_kernel(function, device, blocks, kFusedThreads, addresses);
  return true;
}

}  // namespace mica::cuda
