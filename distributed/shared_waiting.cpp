// How a rank waits for others. shared_diagnosis.cpp has what it finds out about them meanwhile.
#include <sched.h>

#include <cstdio>
#include <cstring>
#include <numeric>

#include "futex.h"
#include "process.h"
#include "shared_group.h"

namespace mica::distributed {
namespace {

constexpr int kTick = 100;  // milliseconds between two looks around

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

int processors() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

SharedGroup::SharedGroup(Segment segment, SharedOptions options, std::shared_ptr<SharedGroup> world)
    : segment_(std::move(segment)),
      options_(std::move(options)),
      world_(std::move(world)),
      size_(segment_.size()),
      // A rank with a processor of its own may spin on it. Where ranks share processors, spinning would keep others
      // from running.
      spin_time_(size_ <= processors() ? 30 : 0),
      free_slots_(Member::kSlots),
      checked_(static_cast<size_t>(size_)),
      waited_(static_cast<size_t>(size_)),
      sending_(static_cast<size_t>(size_)) {
  std::iota(free_slots_.rbegin(), free_slots_.rend(), uint8_t{0});
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
  if (reached(counter, target)) return;
  const auto spin_until = Clock::now() + spin_time_;
  do {
    for (int i = 0; i < 50; ++i) {
      if (reached(counter, target)) return;
      relax();
    }
  } while (Clock::now() < spin_until);
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
    show_not_waiting(watch);
    throw;
  }
  counter.sleepers.fetch_sub(1);
  show_not_waiting(watch);
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

void SharedGroup::fail(const std::string& why, const Watch* watch) {
  abort(why + "\n" + describe_ranks(watch));
  throw_if_aborted();
  throw BackendError(why);
}

void SharedGroup::leave() {
  stop_ = true;
  me().presence.store(Presence::Left, std::memory_order_release);
  raise_to(me().mail, me().mail.value.load() + 1);
  me().asked.value.fetch_add(1);  // wakes the thread that answers questions
  futex_wake_all(me().asked.value);
}

}  // namespace mica::distributed
