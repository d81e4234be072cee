// Watches a program run: the copies that it did not ask for, and the memory that it holds, by the line that allocated
// it. While nobody watches, an operation and an allocation test one bit each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mica/core/array_ref.h"
#include "mica/device.h"
#include "mica/dtype.h"
#include "mica/tensor.h"

namespace mica::inspect {

// ---- places in the program

// A line that was running, and the place it was called from. Number 0 is "unknown".
struct Place {
  std::string file, function;
  int32_t line = 0;
  uint32_t caller = 0;  // the number of a place too
};
// Set by the Python extension: the place that runs now, in the program and not in this package. While it is null, no
// place is known.
extern uint32_t (*current_place)();
// current_place returns this where the interpreter cannot be asked now. settle_places() finds the place later, on this
// thread.
inline constexpr uint32_t kPlaceLater = UINT32_MAX;
extern constinit thread_local bool places_pending __attribute__((tls_model("initial-exec")));
void settle_places(uint32_t place);
uint32_t add_place(Place place);  // for the code that sets current_place; returns the number of the place
Place place(uint32_t number);

// ---- copies

enum class CopyReason : uint8_t {
  Reshape,     // strides did not allow a view
  Contiguous,  // an operation wanted its input in order
  Cast,        // of another dtype
  Broadcast,   // an expanded tensor written out
  Transfer,    // between devices
  Overlap,     // out= or the target shares memory with an input
  Result,      // computed apart and then copied to out= or self
  Asked,       // the program says so: clone, contiguous, copy_, to
};
const char* name(CopyReason reason);

struct Copy {
  std::string operation;  // what the program called
  std::string within;     // the part of it that copied, or the backward node; may be the operation itself
  CopyReason reason = CopyReason::Asked;
  bool hidden = true;        // false: the program asked for the copy
  int64_t bytes = 0;         // written
  DimVector sizes, strides;  // sizes and strides of the source
  DType from = DType::Undefined, to = DType::Undefined;
  Device from_device, to_device;
  uint32_t place = 0;
};
std::string describe(const Copy& copy);  // one sentence about it

struct CopyOptions {
  bool strict = false;      // the first hidden copy throws
  bool asked = false;       // records the copies too that the program asks for
  int64_t least_bytes = 1;  // smaller copies are not recorded
};
// Records what the calling thread copies from now on. Recordings nest; each sees everything.
void start_copies(const CopyOptions& options = {});
std::vector<Copy> stop_copies();

// ---- time

// The totals of all calls of one operation from one line.
struct OperationTotal {
  std::string operation;
  uint32_t place = 0;
  int64_t calls = 0, nanoseconds = 0;
};
// Records operations of the calling thread. The operations that an operation calls are part of it.
void start_operations();
std::vector<OperationTotal> operations_so_far();
std::vector<OperationTotal> stop_operations();

// ---- memory

enum class MemoryKind : uint8_t { Parameter, Buffer, Gradient, OptimizerState, Activation, Temporary, Other };
const char* name(MemoryKind kind);

// A piece of memory from its allocation to its end. Times are in the order of events, 0 the first.
struct Block {
  uint64_t address = 0;  // of the memory; 0 on the meta device
  int64_t bytes = 0;
  Device device;
  uint32_t place = 0;
  const char* operation = "";  // the operation that allocated it
  bool in_backward = false;
  bool before = false;  // it existed before the recording
  MemoryKind kind = MemoryKind::Other;
  int64_t born = 0, died = -1;  // numbers of events; -1 while it lives
  int64_t born_ns = 0, died_ns = -1;
};
struct MemoryRecord {
  std::vector<Block> blocks;
  int64_t events = 0;
  int64_t started_ns = 0, ended_ns = 0;
};
// Records the memory of all threads. One recording at a time.
void start_memory();
MemoryRecord memory_so_far();
MemoryRecord next_memory();  // returns what was recorded so far, and begins a new recording there
MemoryRecord stop_memory();
bool memory_recording();
// Says what a tensor's memory is for, for the block's whole life. Memory that is older than the recording joins it.
void mark_memory(const Tensor& t, MemoryKind kind);

// The lines that hold the most memory, for the message of an allocation that failed. Large blocks are always known,
// small ones only while a recording runs.
std::string who_holds_memory(Device device, int64_t wanted);

}  // namespace mica::inspect
