// The calls that each thread has put off, and when they run.
#include "mica/core/recording.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "compiler/fused.h"
#include "compiler/plan.h"
#include "core/compiler_switch.h"
#include "core/kept.h"
#include "core/recorded_convolution.h"
#include "mica/backend.h"
#include "mica/core/fork.h"
#include "mica/error.h"

namespace mica::recording {

namespace {

constexpr int kMostCalls = 256, kMostHalves = 32;

class Recording {
 public:
  Recording();
  ~Recording();

  std::mutex mutex;  // held by whoever changes the rest: another thread may ask for what is computed here
  Counts counts;
  bool explains = false;
  std::string (*place)() = nullptr;  // where the program is
  std::string explanation;
  PointwiseLoop no_elements;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == kMostCalls; }
  Call& next() { return calls_[count_]; }
  void add();
  bool has(const StorageImpl* storage) const { return find(storage) >= 0; }
  const Call* lone() const { return count_ == 1 ? &calls_[0] : nullptr; }
  void run(const char* reason, const std::string& asked_from = {});
  std::string asked_from() const { return explains && place && count_ > 0 ? place() : std::string(); }

 private:
  static constexpr size_t kTable = 4096;  // more than twice the operands of all calls
  static size_t hash(const StorageImpl* s) { return (reinterpret_cast<uintptr_t>(s) >> 6) * 0x9E3779B97F4A7C15u >> 52; }
  int find(const StorageImpl* storage) const;
  int slot_of(StorageImpl* storage, bool keeps);
  void forget();
  void run_one();

  std::unique_ptr<Call[]> calls_{new Call[kMostCalls + kMostHalves]};
  int count_ = 0;
  std::vector<Slot> slots_;
  std::vector<int> table_ = std::vector<int>(kTable, -1);  // of slots, by the storage's address
  std::vector<size_t> filled_;                             // entries of it
};

std::mutex registry_mutex;
std::vector<Recording*>& registry() {
  static auto* all = new std::vector<Recording*>;
  return *all;
}

Recording::Recording() {
  const std::lock_guard lock(registry_mutex);
  registry().push_back(this);
}

Recording::~Recording() {
  try {
    run("the end of the thread");
  } catch (...) {  // no memory: nobody is left to be told
  }
  const std::lock_guard lock(registry_mutex);
  std::erase(registry(), this);
}

Recording& mine() {
  static thread_local std::unique_ptr<Recording> recording(new Recording);
  return *recording;
}
constinit thread_local Recording* known = nullptr;  // mine(), once it was asked for

// fork copies only the calling thread: the child forgets the recordings of the others.
[[maybe_unused]] const bool children_forget_other_threads = [] {
  in_child_of_fork([] {
    new (&registry_mutex) std::mutex;
    registry().clear();
    if (known) registry().push_back(known);
  });
  return true;
}();

int Recording::find(const StorageImpl* storage) const {
  for (size_t i = hash(storage);; i = (i + 1) % kTable) {
    if (table_[i] < 0) return -1;
    if (slots_[table_[i]].storage.get() == storage) return table_[i];
  }
}

// What kernels have made of the storage is forgotten, unless the call may use it (`keeps`).
int Recording::slot_of(StorageImpl* storage, bool keeps) {
  size_t i = hash(storage);
  for (; table_[i] >= 0; i = (i + 1) % kTable) {
    Slot& slot = slots_[table_[i]];
    if (slot.storage.get() != storage) continue;
    if (slot.keeps && !keeps) kept::forget(*storage);
    slot.keeps &= keeps;
    return table_[i];
  }
  if (!keeps && storage->address() && storage->moved()) kept::forget(*storage);
  table_[i] = static_cast<int>(slots_.size());
  filled_.push_back(i);
  slots_.push_back({Storage(storage), false, keeps});
  storage->hold();
  return table_[i];
}

void Recording::add() {
  Call& call = calls_[count_];
  const int weight = is_convolution(call) ? kConvolutionWeight : -1;
  for (int k = 0; k < call.noperands; ++k) {
    Operand& o = call.operands[k];
    if (!o.storage) continue;
    o.slot = slot_of(o.storage, k == weight);
    if (k >= call.noutputs || slots_[o.slot].written) continue;
    slots_[o.slot].written = true;
    o.storage->set_written_later(true);
  }
  ++count_;
}

void Recording::forget() {
  for (const size_t i : filled_) table_[i] = -1;
  filled_.clear();
  count_ = 0;
  for (Slot& slot : slots_) {
    if (slot.written) slot.storage->set_written_later(false);
    slot.storage->unhold();
    if (is_promised(slot)) slot.storage->break_promise();
  }
  slots_.clear();
}

void Recording::run(const char* reason, const std::string& asked_from) {
  if (count_ == 0) return;
  if (count_ == 1 && !explains && calls_[0].form != Call::Form::Indexed) return run_one();
  const Plan plan(calls_.get(), count_, kMostHalves, slots_);
  const FusedPlan fused(calls_.get(), count_, slots_, plan.needed());
  // All memory comes first: where there is none, nothing has changed, and whoever asks again gets the error again.
  const size_t groups = plan.grouping().groups().size();
  for (int s = 0; s < static_cast<int>(slots_.size()); ++s)
    if ((plan.last_use(s) >= 0 && plan.in_memory(s)) || (fused.uses(s) && fused.in_memory(s)))
      slots_[s].storage->keep_promise();
  counts.flushes += 1;
  counts.calls += count_;
  counts.dead += plan.dead();
  counts.loops += static_cast<int64_t>(plan.loops() + fused.groups().size());
  counts.kept_apart += plan.kept_apart() + fused.kept_apart();
  if (explains)
    explanation +=
        cat("flush", *reason ? " at " : "", reason, asked_from.empty() ? "" : ", ", asked_from, ": ", count_,
            " calls, ", plan.dead(), " of them dead\n", plan.describe(calls_.get(), slots_), fused.describe());
  struct Forget {
    Recording* r;
    ~Forget() { r->forget(); }
  } forget_after{this};
  for (size_t g = 0; g < groups; ++g) recording::run(plan, g, calls_.get(), slots_);
  counts.generated += fused.run(slots_);
}

// A single call needs no plan.
void Recording::run_one() {
  const Call& call = calls_[0];
  counts.flushes += 1;
  counts.calls += 1;
  bool needed = false;
  for (int k = 0; k < call.noutputs; ++k) {
    const Slot& slot = slots_[call.operands[k].slot];
    needed |= !is_dead(slot) || !is_promised(slot);
  }
  if (needed) {
    for (const Slot& slot : slots_) slot.storage->keep_promise();
    counts.loops += 1;
  } else {
    counts.dead += 1;
  }
  struct Forget {
    Recording* r;
    ~Forget() { r->forget(); }
  } forget_after{this};
  if (needed) run_alone(call, slots_);
}

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

alignas(64) char nothing[64];

// A pointwise call without elements.
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

// Whether an output has each of its elements once: one that is expanded is written in an order that a loop may change.
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
  if (call.run_loop) empty_loop(call, known->no_elements);
  if (!call.device.is_cpu()) {
    if (call.run_loop &&
        (repeats(call) || !fusion_of(call.device)->describe(call.name, known->no_elements, call.arguments, call.step)))
      return false;
  } else if (call.run_loop) {
    // What the kernel refuses whatever the values are (a dtype, an argument), it refuses now, in the operation that
    // called it.
    call.run_loop(call, known->no_elements);
  }
  known->add();
  return true;
}

// The place is asked for before the lock is taken: it needs the interpreter's, which another thread may hold while it
// waits for this one.
void flush(const char* reason) {
  if (!known) return;
  const std::string from = known->asked_from();
  const std::lock_guard lock(known->mutex);
  known->run(reason, from);
}

uint32_t users(const StorageImpl& storage) {
  const uint32_t count = storage.use_count();
  if (!storage.moved() || !known) return count;
  const std::lock_guard lock(known->mutex);
  return count - known->has(&storage);
}

// What fits the second cache gains nothing by being cut: five operations on 10,000 elements took 14 us at once and 20
// put off. As machine code they took 12, so that half as many elements of float32 are enough.
std::atomic<int64_t> least_elements{4 * kLeastElements};
thread_local int64_t least_fused = 2048;

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
    if (known->has(&storage)) return known->run("a use of what is pending", from);
  }
  if (!storage.written_later()) return;
  const std::lock_guard lock(registry_mutex);
  for (Recording* each : registry()) {
    const std::lock_guard inner(each->mutex);
    if (each->has(&storage)) each->run("a read by another thread");
  }
}

static constinit thread_local bool is_whole = false;  // a function that may not ask for values runs
static constinit thread_local bool in_pass = false;   // a backward pass runs, and no compiled function within it
bool in_function() { return active() && !in_pass; }

void (*refuse_values)(const char* what) = nullptr;

void ask_for_values(const char* what) {
  if (is_whole && active() && refuse_values) refuse_values(what);
}

Scope::Scope(bool on, bool whole) : before_(active()), whole_before_(is_whole), pass_before_(in_pass) {
  if (before_ && !on) {
    ask_for_values("disable");
    flush("a part that is not compiled");
  }
  is_whole = is_whole || whole;
  in_pass = false;
  set_modes(mode_bit::kRecord, on);
}

void Scope::end() {
  if (ended_) return;
  ended_ = true;
  const bool on = active();
  set_modes(mode_bit::kRecord, before_);
  is_whole = whole_before_;
  in_pass = pass_before_;
  if (!on || before_ || !known) return;
  const std::lock_guard lock(known->mutex);
  known->run("the end");
}

Scope::~Scope() {
  try {
    end();
  } catch (...) {  // the calls are still there: whoever asks for what they compute gets the error
  }
}

// MICA_COMPILER_BACKWARD=0 lets backward passes run as they are.
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
