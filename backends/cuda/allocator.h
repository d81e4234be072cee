// The caching allocator: memory that a tensor gives back is kept for the next tensor of that stream, because asking the
// device for memory stops all its work.
#pragma once

#include "backends/cuda/runtime.h"

namespace mica::cuda {

// The block is used again only after the work that is queued on `stream` until it is released.
void use_on_stream(void* data, Stream stream);
// Memory that the stream allocates until end_capture belongs to `owner`, a graph. Only that graph uses it again, until
// forget_capture.
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
