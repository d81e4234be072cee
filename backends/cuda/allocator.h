// The caching allocator: memory that a tensor gives back is kept for the next one of that stream, since asking the
// device for memory stops everything that it does.
#pragma once

#include "backends/cuda/runtime.h"

namespace mica::cuda {

void* allocate(size_t nbytes, int index);
void release(void* data, size_t nbytes, int index) noexcept;
// The block will be reused only after what is queued on `stream` now and until it is released.
void use_on_stream(void* data, Stream stream);
MemoryStats memory_stats(int index);
void reset_peak_memory_stats(int index);
void empty_cache();

void* allocate_pinned(size_t nbytes);
void free_pinned(void* data, size_t nbytes);
bool is_pinned(const void* data);

// Memory of a kernel's own, in the order of the current stream.
class Workspace {
 public:
  Workspace(size_t nbytes, int index) : data_(allocate(nbytes, index)), nbytes_(nbytes), index_(index) {}
  Workspace(const Workspace&) = delete;
  ~Workspace() { release(data_, nbytes_, index_); }
  void* data() const { return data_; }

 private:
  void* data_;
  size_t nbytes_;
  int index_;
};

}  // namespace mica::cuda
