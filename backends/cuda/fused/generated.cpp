#include "backends/cuda/fused/generated.h"

#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "backends/cuda/fused/sequence.h"
#include "backends/cuda/fused/text.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/runtime.h"
#include "mica/core/fork.h"

namespace mica::cuda {

namespace {

constexpr size_t kMostKinds = 4096;     // where there are more, the first ones are kept
constexpr size_t kMostArgument = 4096;  // bytes, which every driver passes
thread_local std::vector<char> argument;

std::mutex mutex;
HeldOverFork held(mutex, LockOrder::Plans);

// Code by device and signature. A loop that comes for the first time gets no code, unless it is captured and will run
// again: otherwise programs whose loops are never the same twice would spend their time on translation.
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

// Translates and loads code. The mode allows that while this thread's stream is captured.
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

// `text(capability)` writes the code of what has the signature `key`.
template <class Text>
CUfunction find_code(std::string key, int device, const Text& text) {
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
    code.function = translated(text(p.major * 10 + p.minor));
    code.failed = !code.function;
  }
  return code.function;
}

}  // namespace

bool run_generated(const FusedLoop& loop, const FusedLayout& layout) {
  if (!is_wanted()) return false;
  const int device = loop.device.index();
  const CUfunction function =
      find_code(signature(loop, layout), device, [&](int capability) { return ptx_of(loop, layout, capability); });
  if (!function) return false;
  argument.clear();
  pack_arguments(loop, layout, argument);
  void* addresses[] = {argument.data()};
  const auto blocks = static_cast<uint32_t>((layout.items + kFusedThreads - 1) / kFusedThreads);
  start_kernel(function, device, blocks, kFusedThreads, addresses);
  return true;
}

// A row that reduce_rows gives to one block, in pieces of four.
bool takes_sum(const FusedSum& sum) {
  return sum.count > 8 && sum.count < 8192 && reinterpret_cast<uintptr_t>(sum.row) % 16 == 0;
}

bool run_sequence(Device on, const FusedPart* given, int count) {
  if (!is_wanted()) return false;
  const int device = on.index();
  DeviceGuard guard(device);
  std::vector<SequencePart> parts;
  for (int i = 0; i < count; ++i)
    parts.push_back({given[i].loop, given[i].loop ? lay_out(*given[i].loop) : FusedLayout(), given[i].sum});
  set_side_by_side(parts);
  argument.clear();
  pack_arguments(parts, argument);
  if (argument.size() > kMostArgument) return false;
  const CUfunction function =
      find_code(signature(parts), device, [&](int capability) { return ptx_of(parts, capability); });
  if (!function) return false;
  void* addresses[] = {argument.data()};
  start_kernel(function, device, 1, kSequenceThreads, addresses);
  return true;
}

}  // namespace mica::cuda
