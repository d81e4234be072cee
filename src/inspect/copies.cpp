#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "core/geometry.h"
#include "core/observe.h"
#include "core/out.h"
#include "inspect/clock.h"
#include "mica/error.h"
#include "mica/core/fork.h"
#include "mica/inspect.h"

namespace mica::inspect {

uint32_t (*current_place)() = nullptr;

namespace {

std::mutex places_lock;
HeldOverFork places_held(places_lock, LockOrder::Places);
std::deque<Place>& places() {
  static auto* list = new std::deque<Place>(1);
  return *list;
}

struct Running {
  const char* name;
  std::string node;  // the name of a backward node, copied: the node may die first
  profiler::Copies copies = profiler::Copies::Unsaid;
};
const char* name_of(const Running& r) { return r.name ? r.name : r.node.c_str(); }
struct Recording {
  CopyOptions options;
  std::vector<Copy> copies;
};
// The time of operations, by name and place.
struct Timing {
  std::map<std::pair<std::string, uint32_t>, OperationTotal> totals;
  std::vector<OperationTotal> pending;  // totals whose place is not known yet
  int64_t started = 0;
};
struct Watched {
  std::vector<Running> operations;
  std::unique_ptr<Timing> timing;
  std::vector<Recording> recordings;
  int because = -1;
};
thread_local Watched watched;

constexpr const char* kAten = "aten::";
std::string_view bare(std::string_view name) {
  return name.substr(0, std::strlen(kAten)) == kAten ? name.substr(std::strlen(kAten)) : name;
}

CopyReason reason_of(const Tensor& to, const Tensor& from) {
  if (to.device() != from.device()) return CopyReason::Transfer;
  if (watched.because >= 0) return static_cast<CopyReason>(watched.because);
  if (to.dtype() != from.dtype()) return CopyReason::Cast;
  for (const Running& r : watched.operations)
    if (r.copies == profiler::Copies::Reshape) return CopyReason::Reshape;
  for (int64_t d = 0; d < from.dim(); ++d)
    if (from.stride(d) == 0 && from.size(d) > 1 && to.stride(d) != 0) return CopyReason::Broadcast;
  if (!from.is_contiguous()) return CopyReason::Contiguous;
  return CopyReason::Result;
}

}  // namespace

uint32_t add_place(Place place) {
  std::lock_guard lock(places_lock);
  places().push_back(std::move(place));
  return static_cast<uint32_t>(places().size() - 1);
}
Place place(uint32_t number) {
  std::lock_guard lock(places_lock);
  return number < places().size() ? places()[number] : Place{};
}

// ---- operations

static void add_total(Timing& timing, const OperationTotal& one) {
  OperationTotal& total = timing.totals[{one.operation, one.place}];
  total.operation = one.operation;
  total.place = one.place;
  total.calls += one.calls;
  total.nanoseconds += one.nanoseconds;
}

static void note_time(Timing& timing) {
  OperationTotal one{std::string(bare(name_of(watched.operations.front()))), current_place ? current_place() : 0, 1,
                     nanoseconds_now() - timing.started};
  if (one.place == kPlaceLater) {
    places_pending = true;
    timing.pending.push_back(std::move(one));
  } else {
    add_total(timing, one);
  }
}

void settle_operations(uint32_t place) {
  for (Recording& r : watched.recordings)
    for (size_t i = r.copies.size(); i-- > 0 && r.copies[i].place == kPlaceLater;) r.copies[i].place = place;
  if (!watched.timing) return;
  for (OperationTotal& one : watched.timing->pending) {
    one.place = place;
    add_total(*watched.timing, one);
  }
  watched.timing->pending.clear();
}

void enter_operation(const char* name, profiler::Copies copies) {
  watched.operations.push_back({name, {}, copies});
  if (watched.timing && watched.operations.size() == 1) watched.timing->started = nanoseconds_now();
}
void enter_node(const std::string& name) {
  watched.operations.push_back({nullptr, name});
  if (watched.timing && watched.operations.size() == 1) watched.timing->started = nanoseconds_now();
}
void leave_operation() {
  if (watched.operations.empty()) return;
  if (watched.timing && watched.operations.size() == 1 && *name_of(watched.operations.front()))
    note_time(*watched.timing);
  watched.operations.pop_back();
}

void start_operations() {
  MICA_CHECK(!watched.timing, "the time of operations is being recorded already");
  watched.timing = std::make_unique<Timing>();
  announce_operations(1);
}
std::vector<OperationTotal> operations_so_far() {
  std::vector<OperationTotal> list;
  if (watched.timing)
    for (const auto& [key, total] : watched.timing->totals) list.push_back(total);
  return list;
}
std::vector<OperationTotal> stop_operations() {
  MICA_CHECK(watched.timing, "the time of operations is not being recorded");
  settle_operations(0);
  std::vector<OperationTotal> list = operations_so_far();
  watched.timing.reset();
  announce_operations(-1);
  return list;
}

// The operation that the program called. Ranges that a program names are not operations.
static const Running* outermost() {
  for (const Running& r : watched.operations)
    if (*name_of(r)) return &r;
  return nullptr;
}
const char* outermost_operation() {
  const Running* called = outermost();
  return called ? name_of(*called) : "";
}
const char* innermost_operation() { return watched.operations.empty() ? "" : name_of(watched.operations.back()); }
bool inside_backward() {
  for (const Running& r : watched.operations)
    if (!r.name) return true;
  return false;
}

// ---- copies

const char* name(CopyReason reason) {
  static constexpr const char* kNames[] = {"reshape",  "contiguous", "cast",   "broadcast",
                                           "transfer", "overlap",    "result", "asked"};
  return kNames[static_cast<int>(reason)];
}

BecauseOf::BecauseOf(CopyReason reason) : before_(watched.because) { watched.because = static_cast<int>(reason); }
BecauseOf::BecauseOf(const Tensor& target, TensorList inputs) : before_(watched.because) {
  if (!(thread_modes & mode_bit::kObserve)) return;
  for (const Tensor& t : inputs)
    if (may_share_memory(t, target)) watched.because = static_cast<int>(CopyReason::Overlap);
}
BecauseOf::~BecauseOf() { watched.because = before_; }

void start_copies(const CopyOptions& options) {
  watched.recordings.push_back({options, {}});
  announce_operations(1);
}

std::vector<Copy> stop_copies() {
  MICA_CHECK(!watched.recordings.empty(), "no recording of copies runs on this thread");
  std::vector<Copy> copies = std::move(watched.recordings.back().copies);
  watched.recordings.pop_back();
  announce_operations(-1);
  return copies;
}

void note_copy(const Tensor& to, const Tensor& from) {
  if (watched.recordings.empty()) return;
  Copy c;
  c.bytes = to.nbytes();
  const Running* called = outermost();
  c.operation = std::string(bare(outermost_operation()));
  c.within = std::string(bare(innermost_operation()));
  c.reason = reason_of(to, from);
  const bool asked = !called || called->copies == profiler::Copies::Asked;
  c.hidden = !asked && watched.because != static_cast<int>(CopyReason::Asked);
  if (!c.hidden && c.reason != CopyReason::Transfer) c.reason = CopyReason::Asked;
  c.sizes = DimVector(from.sizes());
  c.strides = DimVector(from.strides());
  c.from = from.dtype();
  c.to = to.dtype();
  c.from_device = from.device();
  c.to_device = to.device();
  const bool wanted = std::any_of(watched.recordings.begin(), watched.recordings.end(), [&](const Recording& r) {
    return c.bytes >= r.options.least_bytes && (c.hidden || c.reason == CopyReason::Transfer || r.options.asked);
  });
  if (!wanted) return;
  if (current_place) c.place = current_place();
  if (c.place == kPlaceLater) places_pending = true;
  bool refused = false;
  for (Recording& r : watched.recordings) {
    if (c.bytes < r.options.least_bytes) continue;
    if (!c.hidden && c.reason != CopyReason::Transfer && !r.options.asked) continue;
    r.copies.push_back(c);
    refused |= r.options.strict && c.hidden;
  }
  if (refused) fail(cat("a hidden copy, under inspect.copies(strict=True): ", describe(c)));
}

std::string describe(const Copy& c) {
  std::string shape = "(";
  for (size_t i = 0; i < c.sizes.size(); ++i) shape += (i ? ", " : "") + std::to_string(c.sizes[i]);
  shape += ")";
  std::string steps = "(";
  for (size_t i = 0; i < c.strides.size(); ++i) steps += (i ? ", " : "") + std::to_string(c.strides[i]);
  steps += ")";
  const std::string amount = readable_bytes(c.bytes);
  const std::string who = c.operation.empty() ? "the engine" : c.operation;
  switch (c.reason) {
    case CopyReason::Reshape:
      return cat(who, " copied ", amount, ": a tensor of shape ", shape, " and strides ", steps,
                 " cannot be seen in the new shape without a copy");
    case CopyReason::Contiguous:
      return cat(who, " copied ", amount, ": it wants its input contiguous, and one of shape ", shape, " has strides ",
                 steps);
    case CopyReason::Cast:
      return cat(who, " copied ", amount, ": ", c.from, " was converted to ", c.to, " first");
    case CopyReason::Broadcast:
      return cat(who, " copied ", amount, ": a stretched tensor of shape ", shape, " was written out");
    case CopyReason::Transfer:
      return cat(who, " moved ", amount, " from ", c.from_device, " to ", c.to_device);
    case CopyReason::Overlap:
      return cat(who, " copied ", amount, ": what it writes shares memory with what it reads");
    case CopyReason::Result:
      return cat(who, " copied ", amount,
                 ": the result was computed apart, in another layout or dtype, and then copied");
    case CopyReason::Asked:
      return cat(who, " copied ", amount, ", as the program asked");
  }
  return "";
}

}  // namespace mica::inspect
