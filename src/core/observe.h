// The hooks of inspection: what the core calls where operations begin, data is copied and memory comes and goes. They
// are defined in src/inspect, of which the core knows nothing more.
#pragma once

#include <atomic>
#include <string>

#include "mica/core/grad_mode.h"
#include "mica/observe.h"
#include "mica/profiler.h"

namespace mica::inspect {

// ---- operations of this thread, while kObserve is set

void enter_operation(const char* name, profiler::Copies copies);
void enter_node(const std::string& name);
void leave_operation();
const char* outermost_operation();  // the operation that the program called; "" outside of one
const char* innermost_operation();
bool inside_backward();
void settle_operations(uint32_t place);

// Changes how many recordings of any kind want operations on this thread to announce themselves
// (src/inspect/profiler.cpp).
void announce_operations(int recordings);  // adds to their number
void update_recording_modes();             // after a mode that takes operations over has come or gone

// ---- copies

void note_copy(const Tensor& to, const Tensor& from);
// Says why copies in a scope are made, where the tensors alone do not tell.
class BecauseOf {
 public:
  explicit BecauseOf(CopyReason reason);
  // Says that the target shares memory with an input, if it does.
  BecauseOf(const Tensor& target, TensorList inputs);
  ~BecauseOf();

 private:
  int before_;
};

// ---- memory

// From this size on a block is known even while nobody records: an allocation of it costs far more than a note.
inline constexpr size_t kAlwaysNoted = size_t{8} << 20;

extern std::atomic<bool> recording_memory;
extern std::atomic<uint32_t> watching_memory;  // how many watch: the recording of memory, and profiles that count bytes
extern std::atomic<uint32_t> noted_blocks;     // how many blocks are known: 0 while all are small
void note_allocation(const void* storage, const void* data, size_t bytes, Device device);
void note_free(const void* storage, size_t bytes, Device device);  // 0 bytes for memory that somebody else owns
// Bytes of tensors on the CPU that this thread has allocated, less those that it has freed, while a profile counts.
extern constinit thread_local int64_t counted_bytes __attribute__((tls_model("initial-exec")));
inline void count_free(size_t bytes, Device device) {
  if (device.is_cpu()) counted_bytes -= static_cast<int64_t>(bytes);
}
// Whether a block of this size is noted as it comes, and looked for as it goes.
inline bool wants_allocation(size_t bytes) {
  return bytes >= kAlwaysNoted || watching_memory.load(std::memory_order_relaxed) != 0;
}
inline bool knows_blocks() { return noted_blocks.load(std::memory_order_relaxed) != 0; }

}  // namespace mica::inspect
