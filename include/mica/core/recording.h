// Recording of kernels: within a compiled function, calls of kernels on large tensors of the CPU are put off, and run
// together, piece by piece, when somebody asks for what they compute. All else of an operation happens at once: checks,
// shapes, history, versions, random numbers. docs/compiler_kernels.md is the design.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "mica/core/grad_mode.h"
#include "mica/core/storage.h"

namespace mica::recording {

// In this scope calls of kernels are put off, or run at once where `on` is false. At its end, pending calls are run.
// Within a scope that is `whole`, and in compiled functions that are called there, nobody may ask for values
// (fullgraph=True).
class Scope {
 public:
  explicit Scope(bool on = true, bool whole = false);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();  // as end(), but an error is left for whoever asks for the results
  void end();

 private:
  bool before_, whole_before_, pass_before_;
  bool ended_ = false;
};

// The same for a backward pass, from the first node on that a compiled function made. The pass itself is no compiled
// function: a hook that asks is told so.
class Pass {
 public:
  Pass() = default;
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
  ~Pass();  // as that of a Scope
  void begin();
  void end();

 private:
  bool began_ = false;
};

// For what hands values to the program: says so where the compiled function that runs may not ask for them. The
// function is the language's; null: there is no such refusal.
void ask_for_values(const char* what);
extern void (*refuse_values)(const char* what);

inline bool active() { return thread_modes & mode_bit::kRecord; }
bool in_function();                   // active, and not by a backward pass alone
void flush(const char* reason = "");  // runs what this thread has put off
void settle(const StorageImpl& storage);
// The same for a convolution or a pool that is faster where its input lies interleaved (src/core/interleaved.h).
// Returns whether the storage now does; if not, it still has to be settled.
bool settle_interleaved(const StorageImpl& storage, const char* reason);
bool lies_interleaved(const StorageImpl& storage);  // for a call of this thread
// The use_count() of the storage, without the references of this thread's recording.
uint32_t users(const StorageImpl& storage);
bool pending();  // whether this thread has put anything off

// Whether what this thread queues is captured for a graph instead of running. If the capture fails, none of the calls
// for a device has changed anything, and those that are pending are given up (abandon).
extern thread_local bool captured;
void abandon(const char* reason);

// A call on fewer elements (for float32, on fewer than half of them) runs at once, unless an operand is pending. Tests
// set it so that every call is put off.
extern std::atomic<int64_t> least_elements;
// The same for devices that fuse calls. It is smaller there: a launch that is saved pays for few elements too.
extern thread_local int64_t least_fused;

// Whether chains of simple operations run as machine code that is made for them (src/compiler/code.h). Returns the
// earlier setting. MICA_COMPILER_CODE=0 in the environment turns it off.
bool generate_code(bool on);

// What has run on this thread since the last reset.
struct Counts {
  int64_t flushes = 0;     // flushes that had something to run
  int64_t calls = 0;       // calls of kernels that were put off
  int64_t loops = 0;       // loops that these calls were fused into
  int64_t dead = 0;        // calls whose results nobody could ask for: they did not run
  int64_t kept_apart = 0;  // bytes of intermediate results that never reached memory
  int64_t generated = 0;   // loops that ran on a GPU as code made for them
};
Counts counts();
void reset_counts();

// From now on every flush adds to a text what it did and where it was asked for. `place` says which line of the program
// runs.
void explain_from_now_on(std::string (*place)() = nullptr);
std::string take_explanation();

}  // namespace mica::recording
