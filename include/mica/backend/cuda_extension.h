// What only the CUDA backend can do: tables that Backend::extension returns by name. No CUDA header is needed here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mica/backend/tensor_view.h"

namespace mica {

// extension("graphs"). A graph is an opaque handle; failures throw.
struct GraphApi {
  // Captures what is queued on the thread's current stream, which must not be the default one. The mode says for which
  // threads a call that could spoil a capture is an error: "global", "thread_local" or "relaxed". What is allocated
  // comes from a pool of the allocator, or from memory of the graph's own where the pool is 0.
  void* (*begin)(int device, std::string_view error_mode, uintptr_t pool);
  void (*end)(void* graph);     // ends the capture and makes the graph ready
  void (*replay)(void* graph);  // queues it on the current stream
  void (*free)(void* graph);
  bool (*is_capturing)(int device);  // whether the current stream is being captured
};

// extension("semi_structured"): out = kept dense^T + bias, where `kept` holds two of every four elements of the rows of
// a matrix (one of two of float32), and `places` says which, in the order in which the matrix unit takes them
// (python/mica/sparse/_semi_structured_conversions.py). `kept` and `places` are contiguous. `dense` has a row for each
// column of the product, contiguous along the inner dimension and a multiple of 16 bytes apart; the inner dimension is
// a multiple of 128 bytes, the number of rows of `kept` one of 32, of int8 one of 16. The bias is undefined, or
// contiguous, of out's dtype, with an element for each row.
struct SemiStructuredApi {
  void (*product)(const TensorView& out, const TensorView& kept, const TensorView& places, const TensorView& dense,
                  const TensorView& bias);
};

struct DeviceFacts {
  char name[256];
  int major, minor, multiprocessors, threads_per_multiprocessor, warp_size, registers_per_multiprocessor;
  int64_t total_memory, l2_bytes, shared_per_multiprocessor, shared_per_block, shared_per_block_optin;
  bool integrated, multi_gpu_board;
  uint8_t uuid[16];
};
using DeviceFactsFunction = void(int index, DeviceFacts* facts);  // extension("device_properties")
using SetFlagFunction = void(const char* name, bool value);       // extension("set_flag")
using AvailableFunction = bool();                                 // extension("cudnn_available")
using VersionFunction = int64_t();                                // extension("cudnn_version"); 0 where it is missing
using SetMemoryLimitFunction = void(int64_t bytes, int index);    // extension("set_memory_limit"); 0: none
using CanAccessPeerFunction = bool(int device, int peer);         // extension("can_access_peer")
// extension("query"): answers and switches that are rarely needed, by name: text, JSON where it has parts.
using QueryFunction = std::string(const char* what, const char* argument, int index);

}  // namespace mica
