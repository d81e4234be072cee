#include "inspect/clock.h"
#include "mica/profiler.h"

#include <unistd.h>

#include <chrono>
#include <memory>
#include <utility>

#include <sys/syscall.h>

#include "core/observe.h"
#include "mica/autograd.h"
#include "mica/core/dispatch.h"
#include "mica/core/grad_mode.h"
#include "mica/error.h"

namespace mica::profiler {

std::string (*describe_stack)() = nullptr;

namespace {

struct Recording {
  Options options;
  std::vector<Event> events;
  int32_t innermost = -1;  // the event that is open
};
thread_local std::unique_ptr<Recording> current;
thread_local const char* resumed = nullptr;  // the operation whose entry is about to run a second time
thread_local int observers = 0;              // recordings of copies and memory, which want to know what runs

void update_modes() {
  set_modes(mode_bit::kProfile, current || observers > 0 || dispatch::active);
  set_modes(mode_bit::kObserve, observers > 0);
}
bool observed() { return thread_modes & mode_bit::kObserve; }

// Tensors' bytes alone: neither the headers of tensors, nor the scratch memory of kernels.
int64_t allocated() { return inspect::counted_bytes; }

}  // namespace

static void end_event();

void start(const Options& options) {
  MICA_CHECK(!current, "Profiler is already enabled on this thread");
  current = std::make_unique<Recording>();
  current->options = options;
  if (options.memory) ++inspect::watching_memory;
  update_modes();
}

std::vector<Event> stop() {
  if (!current) return {};
  while (current->innermost >= 0) end_event();
  if (current->options.memory) --inspect::watching_memory;
  std::vector<Event> events = std::move(std::exchange(current, nullptr)->events);
  update_modes();
  return events;
}

bool recording() { return current != nullptr; }

static void begin_event(std::string name, Kind kind, int64_t sequence) {
  if (!current) return;
  Event& e = current->events.emplace_back();
  e.name = std::move(name);
  e.kind = kind;
  e.sequence = sequence;
  e.parent = std::exchange(current->innermost, static_cast<int32_t>(current->events.size()) - 1);
  e.thread = static_cast<uint64_t>(gettid());
  if (current->options.stacks && describe_stack && kind != Kind::Node) e.stack = describe_stack();
  if (current->options.memory) e.bytes = -allocated();
  e.start_ns = inspect::nanoseconds_now();
}

static void end_event() {
  if (!current || current->innermost < 0) return;
  Event& e = current->events[static_cast<size_t>(current->innermost)];
  e.end_ns = inspect::nanoseconds_now();
  if (current->options.memory) e.bytes += allocated();
  current->innermost = e.parent;
}

void begin(std::string name, Kind kind, int64_t sequence) {
  if (observed()) {
    if (kind == Kind::Node) {
      inspect::enter_node(name);
    } else {
      inspect::enter_operation("", Copies::Unsaid);
    }
  }
  begin_event(std::move(name), kind, sequence);
}

void end() {
  if (observed()) inspect::leave_operation();
  end_event();
}

bool Scope::enter() {
  if (std::exchange(resumed, nullptr) == operation_) return false;
  if (!current && !observed()) return false;
  if (observed()) inspect::enter_operation(operation_, copies_);
  if (current) begin_event(operation_, Kind::Operation, -1);
  resumed = operation_;
  return open_ = true;
}

void Scope::note(const Tensor& input) {
  if (!current || !current->options.shapes || !input.defined()) return;
  Event& e = current->events[static_cast<size_t>(current->innermost)];
  e.shapes.emplace_back(input.sizes());
  e.dtypes.push_back(input.dtype());
}
void Scope::note(TensorList inputs) {
  for (const Tensor& t : inputs) note(t);
}
void Scope::note_result(const Tensor& result) {
  if (!current || current->innermost < 0) return;
  Event& e = current->events[static_cast<size_t>(current->innermost)];
  if (result.defined())
    if (const Node* node = result.grad_fn()) e.sequence = static_cast<int64_t>(node->sequence);
  if (!current->options.shapes) return;
  e.results.emplace_back();
  if (result.defined()) e.results.back() = DimVector(result.sizes());
}

}  // namespace mica::profiler

namespace mica::inspect {

void announce_operations(int recordings) {
  profiler::observers += recordings;
  profiler::update_modes();
}

void update_recording_modes() { profiler::update_modes(); }

}  // namespace mica::inspect
