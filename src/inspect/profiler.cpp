#include "mica/profiler.h"

#include <unistd.h>

#include <chrono>
#include <memory>
#include <utility>

#include <sys/syscall.h>

#include "mica/allocator.h"
#include "mica/autograd.h"
#include "mica/error.h"
#include "mica/grad_mode.h"

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

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
int64_t allocated() { return cpu_allocator_stats().allocated_bytes; }

}  // namespace

void start(const Options& options) {
  MICA_CHECK(!current, "Profiler is already enabled on this thread");
  current = std::make_unique<Recording>();
  current->options = options;
  set_modes(mode_bit::kProfile, true);
}

std::vector<Event> stop() {
  set_modes(mode_bit::kProfile, false);
  if (!current) return {};
  while (current->innermost >= 0) end();
  return std::move(std::exchange(current, nullptr)->events);
}

bool recording() { return current != nullptr; }

void begin(std::string name, Kind kind, int64_t sequence) {
  if (!current) return;
  Event& e = current->events.emplace_back();
  e.name = std::move(name);
  e.kind = kind;
  e.sequence = sequence;
  e.parent = std::exchange(current->innermost, static_cast<int32_t>(current->events.size()) - 1);
  e.thread = static_cast<uint64_t>(syscall(SYS_gettid));
  if (current->options.stacks && describe_stack && kind != Kind::Node) e.stack = describe_stack();
  if (current->options.memory) e.bytes = -allocated();
  e.start_ns = now();
}

void end() {
  if (!current || current->innermost < 0) return;
  Event& e = current->events[static_cast<size_t>(current->innermost)];
  e.end_ns = now();
  if (current->options.memory) e.bytes += allocated();
  current->innermost = e.parent;
}

bool Scope::enter() {
  if (std::exchange(resumed, nullptr) == operation_) return false;
  if (!current) return false;
  begin(operation_, Kind::Operation);
  resumed = operation_;
  return open_ = true;
}

void Scope::note(const Tensor& input) {
  if (!current->options.shapes || !input.defined()) return;
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
