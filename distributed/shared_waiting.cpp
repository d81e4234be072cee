// How a rank waits for others, and how it learns that it would wait for ever.
#include <sched.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "futex.h"
#include "process.h"
#include "shared_group.h"

namespace mica::distributed {
namespace {

constexpr int kTick = 100;            // milliseconds between two looks around
constexpr double kShowAfter = 1.0;    // seconds of waiting until others can see it
constexpr double kCircleAfter = 3.0;  // and until circles are looked for

bool reached(const Counter& counter, uint32_t target) {
  return static_cast<int32_t>(counter.value.load(std::memory_order_acquire) - target) >= 0;
}

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

int processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

std::string describe_shape(const int64_t* shape, size_t dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string describe_record(const Record& record) {
  std::string text = std::string(name_of(record.kind)) + " number " + std::to_string(record.number.load());
  if (record.kind != Kind::Barrier) {
    text += std::string(", ") + name_of_dtype(record.dtype) + " " +
            describe_shape(record.shape, static_cast<size_t>(record.dims));
  }
  if (record.kind == Kind::AllReduce || record.kind == Kind::Reduce || record.kind == Kind::ReduceScatter) {
    text += std::string(", ") + name_of(record.reduction);
  }
  if (record.kind == Kind::Broadcast || record.kind == Kind::Reduce || record.kind == Kind::Gather ||
      record.kind == Kind::Scatter) {
    text += ", root " + std::to_string(record.root);
  }
  return text + ", at " + (record.place[0] ? record.place : "an unknown line");
}

// Threads of the program that have waited. Where there are several, one that stands still says nothing about the rest.
std::atomic<int> waiting_threads{0};

bool is_only_thread() {
  thread_local const int order = ++waiting_threads;
  return order == 1 && waiting_threads.load() == 1;
}

}  // namespace

SharedGroup::SharedGroup(Segment segment, SharedOptions options, std::shared_ptr<SharedGroup> world)
    : segment_(std::move(segment)),
      options_(std::move(options)),
      world_(std::move(world)),
      size_(segment_.size()),
      // A rank that has a processor of its own may wait on it; where ranks share processors, waiting keeps others away.
      spins_(size_ <= processors() ? 1000 : 0),
      checked_(static_cast<size_t>(size_)),
      waited_(static_cast<size_t>(size_)),
      sending_(static_cast<size_t>(size_)) {
  Member& own = me();
  own.process = getpid();
  own.started = process_start(getpid());
  own.presence.store(Presence::Joined, std::memory_order_release);
  raise_to(own.mail, own.mail.value.load() + 1);
}

void SharedGroup::meet(double timeout, const std::function<void()>& interrupt) {
  Call call;
  call.timeout = timeout;
  call.interrupt = interrupt;
  Watch watch;
  for (int peer = 0; peer < size_; ++peer) {
    Member& other = segment_.member(peer);
    const auto joined = [&] { return other.presence.load(std::memory_order_acquire) != Presence::Absent; };
    while (!joined()) {
      other.mail.sleepers.fetch_add(1);
      const uint32_t seen = other.mail.value.load();
      if (!joined()) futex_wait(other.mail.value, seen, kTick);
      other.mail.sleepers.fetch_sub(1);
      look_around(call, peer, watch, joined);
    }
  }
  segment_.close_descriptor();
}

void SharedGroup::raise_to(Counter& counter, uint32_t value) {
  counter.value.store(value, std::memory_order_seq_cst);
  if (counter.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(counter.value);
}

void SharedGroup::wait(Counter& counter, uint32_t target, int peer, Call& call) {
  for (int i = 0; i <= spins_; ++i) {
    if (reached(counter, target)) return;
    relax();
  }
  Watch watch;
  const auto ready = [&] { return reached(counter, target); };
  counter.sleepers.fetch_add(1, std::memory_order_seq_cst);
  try {
    for (;;) {
      const uint32_t seen = counter.value.load(std::memory_order_seq_cst);
      if (ready()) break;
      futex_wait(counter.value, seen, kTick);
      if (ready()) break;
      look_around(call, peer, watch, ready);
    }
  } catch (...) {
    counter.sleepers.fetch_sub(1);
    show_not_waiting();
    throw;
  }
  counter.sleepers.fetch_sub(1);
  if (seconds(Clock::now() - watch.began) > kShowAfter) show_not_waiting();
  waited_[static_cast<size_t>(peer)] += seconds(Clock::now() - watch.began);
}

void SharedGroup::throw_if_aborted() {
  Header& header = segment_.header();
  uint32_t state = header.aborted.load(std::memory_order_acquire);
  if (state == 0) return;
  for (int i = 0; state != 2 && i < 1000; ++i) {  // the writer may have died while it wrote
    usleep(100);
    state = header.aborted.load(std::memory_order_acquire);
  }
  throw BackendError(state == 2 ? header.abort_text : "the group was aborted");
}

void SharedGroup::abort(const std::string& why) {
  Header& header = segment_.header();
  uint32_t expected = 0;
  if (!header.aborted.compare_exchange_strong(expected, 1)) return;
  std::snprintf(header.abort_text, sizeof header.abort_text, "%s", why.c_str());
  header.aborted.store(2, std::memory_order_release);
  for (int peer = 0; peer < size_; ++peer) {
    for (Counter* each :
         {&segment_.member(peer).published, &segment_.member(peer).finished, &segment_.member(peer).mail}) {
      futex_wake_all(each->value);
    }
  }
}

void SharedGroup::fail(const std::string& why) {
  abort(why + "\n" + describe_ranks());
  throw_if_aborted();
  throw BackendError(why);
}

void SharedGroup::leave() {
  stop_ = true;
  me().presence.store(Presence::Left, std::memory_order_release);
  raise_to(me().mail, me().mail.value.load() + 1);
}

std::string SharedGroup::describe(const Call& call) {
  std::string text = name_of(call.kind);
  if (call.kind == Kind::Send) text += " to rank " + std::to_string(call.root);
  if (call.kind == Kind::Recv) {
    text += call.root == Call::kAnySource ? std::string(" from any rank") : " from rank " + std::to_string(call.root);
  }
  if (call.kind < Kind::Send) text += " number " + std::to_string(number_);
  return text + " of the group '" + options_.name + "'" + (call.place.empty() ? "" : " at " + call.place);
}

std::string SharedGroup::describe_ranks() {
  std::string text;
  for (int peer = 0; peer < size_; ++peer) {
    const Member& member = segment_.member(peer);
    text += std::string(peer ? "\n" : "") + "  rank " + std::to_string(peer);
    const uint64_t number = member.number.load(std::memory_order_acquire);
    const Record& record = member.records[number % Member::kRecords];
    if (member.presence.load() == Presence::Absent)
      text += " (not there yet)";
    else
      text += " (process " + std::to_string(member.process) + ")";
    if (member.presence.load() == Presence::Left) text += " has left the group";
    if (number == 0)
      text += ": no collective yet";
    else
      text += std::string(member.inside.load() ? ": in " : ": has ended ") + describe_record(record);
  }
  return text;
}

void SharedGroup::look_around(Call& call, int peer, Watch& watch, const std::function<bool()>& ready) {
  throw_if_aborted();
  if (world_) world_->throw_if_aborted();  // of a circle through several groups
  if (call.interrupt) {
    try {
      call.interrupt();
    } catch (...) {
      abort("rank " + std::to_string(options_.rank) + " was interrupted in " + describe(call));
      throw;
    }
  }
  const auto now = Clock::now();
  if (seconds(now - watch.looked) < 0.4) return;
  watch.looked = now;
  check_alive(call, peer, ready);
  const double waited = seconds(now - watch.began);
  const std::string late = peer >= 0 ? "rank " + std::to_string(peer) : std::string("another rank");
  if (waited > call.timeout) {
    char limit[32];
    std::snprintf(limit, sizeof limit, "%.3g", call.timeout);
    fail("Timed out after " + std::string(limit) + " s: " + describe(call) + " waits for " + late);
  }
  if (waited > kShowAfter) show_waiting(call, peer);
  if (waited > kCircleAfter) find_circle(call, peer, watch);
  if (waited > options_.late_after && !watch.warned && options_.late_after > 0) {
    watch.warned = true;
    std::fprintf(stderr, "mica.distributed: rank %d has waited %.0f s for %s in %s\n%s\n", options_.rank, waited,
                 late.c_str(), describe(call).c_str(), describe_ranks().c_str());
  }
}

void SharedGroup::check_alive(const Call& call, int peer, const std::function<bool()>& ready) {
  for (int other = 0; other < size_; ++other) {
    if (other == options_.rank) continue;
    const Member& member = segment_.member(other);
    const Presence presence = member.presence.load(std::memory_order_acquire);
    if (presence == Presence::Absent || (presence == Presence::Left && other != peer)) continue;
    const std::string who = "rank " + std::to_string(other) + " (process " + std::to_string(member.process) + ")";
    if (presence == Presence::Left) {
      if (!ready()) fail(who + " has left the group, for which waits " + describe(call));
      return;
    }
    const std::string end = process_end(member.process, member.started);
    // A process that says goodbye does so before it ends.
    if (!end.empty() && member.presence.load() == Presence::Joined && !ready()) {
      fail(who + " " + end + ", for which waits " + describe(call));
    }
  }
}

// ---- circles: rank 0 waits for rank 1 in one group, which waits for rank 0 in another

void SharedGroup::show_waiting(const Call& call, int peer) {
  SharedGroup& world = world_ ? *world_ : *this;
  if (!call.interrupt || !is_only_thread() || peer < 0) return;  // only the program's own thread stands still for this
  Member& desk = world.segment_.member(world.options_.rank);
  if (desk.wait_edge.load(std::memory_order_relaxed) != 0) return;
  std::snprintf(desk.wait_text, sizeof desk.wait_text, "%s", describe(call).c_str());
  const uint64_t target = static_cast<uint64_t>(options_.world_ranks[static_cast<size_t>(peer)]) + 1;
  desk.wait_edge.store((++world.edge_count_ << 16) | target, std::memory_order_release);
}

void SharedGroup::show_not_waiting() {
  SharedGroup& world = world_ ? *world_ : *this;
  world.segment_.member(world.options_.rank).wait_edge.store(0, std::memory_order_release);
}

void SharedGroup::find_circle(const Call& call, int peer, Watch&) {
  SharedGroup& world = world_ ? *world_ : *this;
  if (peer < 0 || !call.interrupt) return;
  const auto follow = [&](std::vector<uint64_t>& edges) {
    int at = world.options_.rank;
    do {
      const uint64_t edge = world.segment_.member(at).wait_edge.load(std::memory_order_acquire);
      if (edge == 0) return false;
      edges.push_back(edge);
      at = static_cast<int>(edge & 0xffff) - 1;
    } while (at != world.options_.rank && edges.size() <= static_cast<size_t>(world.size_));
    return at == world.options_.rank;
  };
  std::vector<uint64_t> before, after;
  if (!follow(before)) return;
  usleep(500000);  // none of them moves meanwhile
  if (!follow(after) || before != after) return;
  std::string text = "ranks wait for each other in a circle:";
  int at = world.options_.rank;
  for (uint64_t edge : after) {
    const int next = static_cast<int>(edge & 0xffff) - 1;
    text += "\n  rank " + std::to_string(at) + " waits for rank " + std::to_string(next) + " in " +
            world.segment_.member(at).wait_text;
    at = next;
  }
  if (world_) world_->abort(text);
  fail(text);
}

}  // namespace mica::distributed
