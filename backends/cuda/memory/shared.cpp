#include "backends/cuda/memory/shared.h"

#include <cuda_runtime.h>

#include <cstring>
#include <map>
#include <mutex>

#include "backends/cuda/context.h"
#include "backends/cuda/driver.h"
#include "backends/cuda/runtime.h"

namespace mica::cuda {

namespace {

constexpr char kDigits[] = "0123456789abcdef";

std::string to_text(const cudaIpcMemHandle_t& handle) {
  std::string text;
  for (const char c : handle.reserved) {
    const auto byte = static_cast<unsigned char>(c);
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

unsigned digit(char c) {
  const char* found = c ? std::strchr(kDigits, c) : nullptr;
  MICA_CHECK(found, "a handle of shared memory is hexadecimal");
  return static_cast<unsigned>(found - kDigits);
}

cudaIpcMemHandle_t to_handle(std::string_view text) {
  cudaIpcMemHandle_t handle;
  MICA_CHECK(text.size() == 2 * sizeof(handle.reserved), "a handle of shared memory has ", 2 * sizeof(handle.reserved),
             " digits");
  for (size_t i = 0; i < sizeof(handle.reserved); ++i)
    handle.reserved[i] = static_cast<char>(digit(text[2 * i]) << 4 | digit(text[2 * i + 1]));
  return handle;
}

struct Imported {
  void* data = nullptr;
  int users = 0;
};

// The mutex is never held while Python or an operation runs: only the runtime is called under it.
struct Imports {
  std::mutex mutex;
  std::map<std::string, Imported, std::less<>> by_handle;
};

Imports& imports() {
  static auto* all = new Imports;  // storages may outlive static objects
  return *all;
}

}  // namespace

std::string export_memory(void* address) {
  // The driver wants a context, and a thread that has not used CUDA has none: a queue sends from a thread of its own.
  MICA_CUDA(cudaFree(nullptr));
  CUdeviceptr first = 0;
  size_t bytes = 0;
  const CUresult found = driver().address_range(&first, &bytes, reinterpret_cast<CUdeviceptr>(address));
  if (found != CUDA_SUCCESS) fail_driver(found, "cuMemGetAddressRange");
  cudaIpcMemHandle_t handle;
  const cudaError_t status = cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(first));
  if (status != cudaSuccess) {
    cudaGetLastError();
    fail(cat("this memory cannot be shared with another process: ", cudaGetErrorString(status),
             ". Memory of expandable segments cannot; nor can any in some containers"));
  }
  int index = 0;
  MICA_CUDA(cudaGetDevice(&index));
  synchronize_stream(stream_of_thread(index));
  return cat(to_text(handle), " ", reinterpret_cast<CUdeviceptr>(address) - first);
}

void* import_memory(std::string_view text) {
  const cudaIpcMemHandle_t handle = to_handle(text);
  Imports& all = imports();
  const std::lock_guard lock(all.mutex);
  Imported& piece = all.by_handle[std::string(text)];
  if (!piece.data) {
    const cudaError_t status = cudaIpcOpenMemHandle(&piece.data, handle, cudaIpcMemLazyEnablePeerAccess);
    if (status != cudaSuccess) {
      cudaGetLastError();
      all.by_handle.erase(std::string(text));
      fail(cat("memory of another process cannot be opened: ", cudaGetErrorString(status)));
    }
  }
  ++piece.users;
  return piece.data;
}

void release_memory(std::string_view text) {
  Imports& all = imports();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_handle.find(text);
  if (found == all.by_handle.end() || --found->second.users) return;
  // Work that reads the memory may still be queued: closing waits for it, as cudaFree does.
  cudaIpcCloseMemHandle(found->second.data);
  all.by_handle.erase(found);
}

}  // namespace mica::cuda
