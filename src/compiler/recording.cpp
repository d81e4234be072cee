// When calls are put off, and when the calls that a thread has put off run.
#include "mica/core/recording.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "compiler/pending_calls.h"
#include "compiler/unfinished.h"
#include "core/compiler_switch.h"
#include "core/expected_work.h"
#include "core/lone_calls.h"
#include "core/recorded_convolution.h"
#include "mica/backend.h"
#include "mica/core/fork.h"

namespace mica::recording {

namespace {

// The calls of all threads: a thread may ask for what another one has put off.
std::mutex registry_mutex;
std::vector<PendingCalls*>& registry() {
  static auto* all = new std::vector<PendingCalls*>;
  return *all;
}

// The calls of one thread, known to all others.
class ThreadCalls : public PendingCalls {
 public:
  ThreadCalls() {
    const std::lock_guard lock(registry_mutex);
    registry().push_back(this);
  }
  ~ThreadCalls() {
    finish();
    const std::lock_guard lock(registry_mutex);
    std::erase(registry(), this);
  }
};

PendingCalls& mine() {
  static thread_local std::unique_ptr<ThreadCalls> calls(new ThreadCalls);
  return *calls;
}
constinit thread_local PendingCalls* known = nullptr;  // mine(), or null before this thread asks for it

// fork copies only the calling thread, so that the child forgets the calls of the others.
[[maybe_unused]] const bool children_forget_other_threads = [] {
  in_child_of_fork([] {
    new (&registry_mutex) std::mutex;
    registry().clear();
    if (known) registry().push_back(known);
  });
  return true;
}();

}  // namespace

Call& begin_call() {
  if (!known) known = &mine();
  known->mutex.lock();
  if (known->full()) {
    try {
      known->run("a list that is full");
    } catch (...) {
      known->mutex.unlock();
      throw;
    }
  }
  return known->next();
}

namespace {

alignas(64) char nothing[64];  // what operands without elements point to

// The loop of a pointwise call, but without elements.
void empty_loop(const Call& call, PointwiseLoop& loop) {
  loop.numel = 0;
  loop.ndim = 1;
  loop.shape[0] = 0;
  loop.noperands = call.noperands;
  loop.noutputs = call.noutputs;
  loop.numbers = 0;
  loop.dtype = call.dtype;
  loop.result_dtype = call.result_dtype;
  loop.device = call.device;
  for (int k = 0; k < call.noperands; ++k) {
    const Operand& o = call.operands[k];
    loop.dtypes[k] = o.dtype;
    loop.data[k] = o.storage ? nothing : const_cast<char*>(reinterpret_cast<const char*>(o.number));
    loop.strides[0][k] = o.storage ? element_size(o.dtype) : 0;
    if (!o.storage) loop.numbers |= 1u << k;
  }
}

// Whether the output is expanded. Several elements of the loop are then written to one place, and which of them stays
// depends on the order, which a fused loop may change.
bool repeats(const Call& call) {
  for (int d = 0; d < call.ndim; ++d)
    if (call.shape[d] > 1 && call.operands[0].strides[d] == 0) return true;
  return false;
}

}  // namespace

const Fusion* fusion_of(Device device) {
  static std::atomic<const Fusion*> known_by[kMaxDeviceTypes];
  static constexpr Fusion kNone{};
  std::atomic<const Fusion*>& found = known_by[static_cast<int>(device.type())];
  const Fusion* answer = found.load(std::memory_order_acquire);
  if (!answer) {
    const Backend& b = backend(device.type());
    answer = b.extension ? static_cast<const Fusion*>(b.extension("fusion")) : nullptr;
    if (!answer) answer = &kNone;
    found.store(answer, std::memory_order_release);
  }
  return answer->run ? answer : nullptr;
}

bool end_call() {
  const std::unique_lock lock(known->mutex, std::adopt_lock);
  Call& call = known->next();
  for (int k = 0; k < call.noperands; ++k)
    if (const StorageImpl* storage = call.operands[k].storage; storage && storage->written_later()) {
      refuse_lost(*storage);
      if (k < call.noutputs) known->interleaved.separate(storage);
      const bool here = known->has(storage) || known->interleaved.find(storage);
      if (!here && storage->written_later()) return false;  // another thread's calls write it: those run first
    }
  if (call.run_loop) empty_loop(call, known->no_elements);
  if (!call.device.is_cpu()) {
    if (call.run_loop &&
        (repeats(call) || !fusion_of(call.device)->describe(call.name, known->no_elements, call.arguments, call.step)))
      return false;
  } else if (call.run_loop) {
    // A kernel may refuse a dtype or an argument, whatever the values are. It does so now, in the operation that calls
    // it, because it gets a loop without elements.
    call.run_loop(call, known->no_elements);
  }
  known->add();
  return true;
}

namespace {

// While one lives, an error of this thread's calls does not reach the program: another error is on its way.
constinit thread_local bool quiet = false;
class Untold {
 public:
  Untold() { quiet = true; }
  Untold(const Untold&) = delete;
  Untold& operator=(const Untold&) = delete;
  ~Untold() { quiet = false; }
};

}  // namespace

// The place in the program is asked for before the mutex is locked. It needs the interpreter's lock, and another thread
// may hold that while it waits for this mutex.
void flush(const char* reason) {
  if (!known) return;
  const std::string from = known->asked_from();
  const std::lock_guard lock(known->mutex);
  known->run(reason, from, !quiet);
}

void abandon(const char* reason) {
  if (!known) return;
  const std::lock_guard lock(known->mutex);
  known->abandon(reason);
}

uint32_t users(const StorageImpl& storage) {
  const uint32_t count = storage.use_count();
  if (!storage.moved() || !known) return count;
  const std::lock_guard lock(known->mutex);
  return count - known->has(&storage) - (known->interleaved.find(&storage) != nullptr);
}

// Tensors that fit into the second cache gain nothing from being cut: five operations on 10,000 elements took 14 us at
// once and 20 us when they were put off. As machine code they took 12 us, so that fewer elements of float32 are enough.
std::atomic<int64_t> least_elements{4 * kLeastElements};
thread_local int64_t least_fused = 2048;
thread_local bool captured = false;

// The kind of a call, or 0 where all calls are put off: in a graph that is captured, and in tests.
static uint64_t kind_of(const char* name, DType dtype, IntArrayRef sizes) {
  if (least_fused <= 1 || least_elements.load(std::memory_order_relaxed) < kLeastElements) return 0;
  uint64_t hash = reinterpret_cast<uintptr_t>(name) ^ static_cast<uint64_t>(dtype);
  for (const int64_t n : sizes) hash = (hash ^ static_cast<uint64_t>(n)) * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  return hash | 1;
}

bool runs_alone(const char* name, DType dtype, IntArrayRef sizes) {
  const uint64_t kind = kind_of(name, dtype, sizes);
  if (kind == 0) return false;
  if (!known) known = &mine();
  return known->runs_alone(kind);
}

bool runs_alone_for_sure(const char* name, DType dtype, IntArrayRef sizes) {
  if (!known || !known->empty()) return false;
  const uint64_t kind = kind_of(name, dtype, sizes);
  return kind != 0 && known->runs_alone_for_sure(kind);
}

bool copy_runs_alone(DType dtype, IntArrayRef sizes) {
  const uint64_t kind = kind_of(kCopyName, dtype, sizes);
  return kind != 0 && known && known->is_known_alone(kind);
}

bool pending() { return known && !known->empty(); }

bool is_lone_call(bool (*holds)(const Call& call, const void* context), const void* context) {
  if (!known) return false;
  const std::lock_guard lock(known->mutex);
  const Call* call = known->lone();
  return call && holds(*call, context);
}

void settle(const StorageImpl& storage) {
  if (known) {
    const std::string from = known->asked_from();
    const std::lock_guard lock(known->mutex);
    if (known->has(&storage)) known->run("a use of what is pending", from);
    known->interleaved.separate(&storage);
  }
  if (!storage.written_later()) return;
  refuse_lost(storage);
  const std::lock_guard lock(registry_mutex);
  for (PendingCalls* each : registry()) {
    const std::lock_guard inner(each->mutex);
    if (each->has(&storage)) each->run("a read by another thread", {}, false);
    each->interleaved.separate(&storage);
  }
}

bool settle_interleaved(const StorageImpl& storage, const char* reason) {
  if (!known || !storage.written_later()) return false;
  const std::string from = known->asked_from();
  const std::lock_guard lock(known->mutex);
  if (known->has(&storage)) known->run(reason, from, true, &storage);
  return known->interleaved.find(&storage) != nullptr;
}

bool compute_interleaved(const Storage& result, const StorageImpl& input, const Interleaving& how,
                         FunctionRef<void()> compute) {
  if (!settle_interleaved(input, "a pool")) return false;
  const std::lock_guard lock(known->mutex);
  if (!known->interleaved.find(&input)) return false;  // another thread has asked for it
  known->interleaved.reserve(1);
  compute();
  known->interleaved.add(result, how);
  return true;
}

bool lies_interleaved(const StorageImpl& storage) {
  if (!known || !storage.written_later()) return false;
  const std::lock_guard lock(known->mutex);
  return !known->has(&storage) && known->interleaved.find(&storage) != nullptr;
}

static constinit thread_local bool is_whole = false;  // whether a function runs that may not ask for values (fullgraph)
static constinit thread_local bool in_pass = false;   // whether a backward pass runs, and no compiled function in it
bool in_function() { return active() && !in_pass; }

void (*refuse_values)(const char* what) = nullptr;

void ask_for_values(const char* what) {
  if (is_whole && active() && refuse_values) refuse_values(what);
}

static constinit thread_local const Scope* expectant = nullptr;  // the one that expects work of the pool

Scope::Scope(bool on, bool whole) : before_(active()), whole_before_(is_whole), pass_before_(in_pass) {
  if (before_ && !on) {
    ask_for_values("disable");
    flush("a part that is not compiled");
  }
  is_whole = is_whole || whole;
  in_pass = false;
  if (on && !expectant) {
    expectant = this;
    expect_work(true);
  }
  set_modes(mode_bit::kRecord, on);
}

void Scope::end() {
  if (ended_) return;
  ended_ = true;
  if (expectant == this) {
    expectant = nullptr;
    expect_work(false);
  }
  const bool on = active();
  set_modes(mode_bit::kRecord, before_);
  is_whole = whole_before_;
  in_pass = pass_before_;
  if (!on || before_ || !known || (known->empty() && known->interleaved.empty())) return;
  const std::lock_guard lock(known->mutex);
  known->run("the end", {}, !quiet);
  known->interleaved.separate_all();
}

Scope::~Scope() {
  const Untold untold;
  try {
    end();
  } catch (...) {  // whoever asks for what was not computed gets the error
  }
}

// With MICA_COMPILER_BACKWARD=0 nothing is put off in backward passes.
static bool records_passes() {
  static const bool wanted = is_switched_on("MICA_COMPILER_BACKWARD");
  return wanted;
}

void Pass::begin() {
  if (active() || !records_passes()) return;
  began_ = in_pass = true;
  set_modes(mode_bit::kRecord, true);
}

void Pass::end() {
  if (!began_) return;
  began_ = in_pass = false;
  set_modes(mode_bit::kRecord, false);
  flush("the end of the backward pass");
}

Pass::~Pass() {
  const Untold untold;
  try {
    end();
  } catch (...) {  // as in ~Scope
  }
}

Counts counts() { return known ? known->counts : Counts(); }
void reset_counts() {
  if (known) known->counts = Counts();
}

void explain_from_now_on(std::string (*place)()) {
  if (!known) known = &mine();
  known->explains = true;
  known->place = place;
  known->explanation.clear();
}

std::string take_explanation() {
  if (!known) return "";
  known->explains = false;
  return std::exchange(known->explanation, "");
}

}  // namespace mica::recording
