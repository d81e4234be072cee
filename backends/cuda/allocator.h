// The caching allocator: memory that a tensor gives back is kept for the next one of that stream, since asking the
// device for memory stops everything that it does.
#pragma once

#include "backends/cuda/runtime.h"

namespace mica::cuda {

// The block will be reused only after what is queued on `stream` now and until it is released.
void use_on_stream(void* data, Stream stream);
// What the stream allocates from now on until end_capture belongs to `owner`, a graph, and is used again by it alone,
// until forget_capture.
void begin_capture(cudaStream_t stream, const void* owner, int index);
void end_capture(cudaStream_t stream, int index);
void set_memory_limit(int64_t bytes, int index);  // 0: none
void forget_capture(const void* owner, int index);
MemoryStats memory_stats(int index);
void reset_peak_memory_stats(int index);
void empty_cache();

void* allocate_pinned(size_t nbytes);
void free_pinned(void* data, size_t nbytes);
bool is_pinned(const void* data);

}  // namespace mica::cuda
