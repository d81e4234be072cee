// Work buffers of the matrix products: one set per thread, grown on demand and kept until gemm_trim().
#pragma once

#include <cstddef>

namespace mica::cpu::gemm_impl {

// Panels: packed operands, read by all threads; Panel and Sums: one thread's own.
enum class Slot { Panels, Panel, Sums, Count };

// Locks a buffer of the calling thread for the lifetime of this object. Cache-line aligned, contents undefined.
class WorkBuffer {
 public:
  WorkBuffer(Slot slot, size_t bytes);
  ~WorkBuffer();
  WorkBuffer(const WorkBuffer&) = delete;
  WorkBuffer& operator=(const WorkBuffer&) = delete;
  char* data() const { return data_; }

 private:
  void* buffer_;
  char* data_;
};

}  // namespace mica::cpu::gemm_impl
