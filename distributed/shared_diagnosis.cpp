// What a rank finds out about others while it waits: they call something else, have ended, or wait for this rank in
// turn, so that it would wait for ever; or they are only late, and where they are.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "futex.h"
#include "process.h"
#include "shared_group.h"

namespace mica::distributed {
namespace {

constexpr double kShowAfter = 1.0;    // seconds of waiting until others can see it
constexpr double kCircleAfter = 3.0;  // seconds until circles are looked for
constexpr double kWarnAgain = 3;      // by which factor the time until the next warning grows

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string readable(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
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

}  // namespace

std::string SharedGroup::describe(const Call& call) {
  std::string text = name_of(call.kind);
  if (call.kind == Kind::Send) text += " to rank " + std::to_string(call.root);
  if (call.kind == Kind::Recv) {
    text += call.root == Call::kAnySource ? std::string(" from any rank") : " from rank " + std::to_string(call.root);
  }
  if (call.kind < Kind::Send) text += " number " + std::to_string(number_);
  return text + " of the group '" + options_.name + "'" + (call.place.empty() ? "" : " at " + call.place);
}

std::string SharedGroup::describe_ranks(const Watch* watch) {
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
    if (watch) text += describe_place(peer, *watch);
  }
  return text;
}

// ---- where a rank is that has not come

bool SharedGroup::has_come(int peer) const {
  const Member& member = segment_.member(peer);
  return member.inside.load(std::memory_order_acquire) && member.number.load(std::memory_order_acquire) >= number_;
}

Member& SharedGroup::desk(int peer) const {
  const SharedGroup& world = world_ ? *world_ : *this;
  return world.segment_.member(options_.world_ranks[static_cast<size_t>(peer)]);
}

// Asks all ranks that have not come. A thread of each rank answers (wait_for_question), unless its program holds the
// interpreter lock.
void SharedGroup::ask(Watch& watch) {
  watch.asked.assign(static_cast<size_t>(size_), Question{});
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == options_.rank || has_come(peer)) continue;
    if (segment_.member(peer).presence.load(std::memory_order_acquire) != Presence::Joined) continue;
    Counter& counter = desk(peer).asked;
    Question& question = watch.asked[static_cast<size_t>(peer)];
    question.number = counter.value.fetch_add(1) + 1;
    question.used = process_activity(segment_.member(peer).process).seconds;
    question.at = Clock::now();
    futex_wake_all(counter.value);
  }
}

std::string SharedGroup::describe_place(int peer, const Watch& watch) {
  if (watch.asked.empty()) return "";
  const Question& question = watch.asked[static_cast<size_t>(peer)];
  if (question.number == 0 || has_come(peer)) return "";
  const Member& member = desk(peer);
  const Activity now = process_activity(member.process);
  std::string text;
  if (static_cast<int32_t>(member.answered.load(std::memory_order_acquire) - question.number) >= 0) {
    text = ". Its program is at " + std::string(member.answer, strnlen(member.answer, sizeof member.answer));
  } else {
    text = ". Its program has not said where it is: it may hold the interpreter's lock";
  }
  return text + " (the process is " + now.state + ", with " + readable(now.seconds - question.used) +
         " s of a processor in the last " + readable(seconds(Clock::now() - question.at)) + " s)";
}

bool SharedGroup::wait_for_question() {
  Member& own = me();
  while (!stop_) {
    const uint32_t asked = own.asked.value.load();
    if (asked != own.answered.load()) return !stop_;
    futex_wait(own.asked.value, asked, 60000);
  }
  return false;
}

void SharedGroup::answer(const std::string& place) {
  Member& own = me();
  const uint32_t asked = own.asked.value.load();
  std::snprintf(own.answer, sizeof own.answer, "%s", place.c_str());
  own.answered.store(asked, std::memory_order_release);
}

// ---- a look around

void SharedGroup::look_around(Call& call, int peer, Watch& watch, const std::function<bool()>& ready) {
  throw_if_aborted();
  if (world_) world_->throw_if_aborted();  // for a circle through several groups
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
  const std::string what = describe(call);
  check_alive(what, peer, ready);
  const bool collective = call.kind < Kind::Send;
  const bool still = (call.interrupt || (collective && program_waits > 0)) && program_has_one_thread();
  if (collective) me().still.store(still, std::memory_order_release);
  const double waited = seconds(now - watch.began);
  const double soon = std::min(call.timeout, watch.warn_at > 0 ? watch.warn_at : options_.late_after);
  if (collective && watch.asked.empty() && waited > soon - 1.5) ask(watch);
  const std::string late = peer >= 0 ? "rank " + std::to_string(peer) : std::string("another rank");
  if (waited > call.timeout) {
    fail("Timed out after " + readable(call.timeout) + " s: " + what + " waits for " + late, &watch);
  }
  // If a rank's group thread is in this collective, the collective does not need its program to go on.
  const bool depends = peer >= 0 && (!collective || !segment_.member(peer).inside || segment_.member(peer).still);
  if (waited > kShowAfter && still && depends)
    show_waiting(what, peer, watch);
  else
    show_not_waiting(watch);
  if (waited > kCircleAfter && watch.shown) find_circle(peer);
  if (watch.warn_at == 0) watch.warn_at = options_.late_after;
  if (waited > watch.warn_at && watch.warn_at > 0) {
    watch.warn_at *= kWarnAgain;
    if (!collective || is_first_to_wait()) {
      std::fprintf(stderr, "mica.distributed: rank %d has waited %.0f s for %s in %s\n%s\n", options_.rank, waited,
                   late.c_str(), what.c_str(), describe_ranks(&watch).c_str());
    }
    watch.asked.clear();
  }
}

// Of all ranks that wait in a collective, one speaks for all.
bool SharedGroup::is_first_to_wait() {
  for (int peer = 0; peer < options_.rank; ++peer) {
    if (has_come(peer)) return false;
  }
  return true;
}

void SharedGroup::check_alive(const std::string& what, int peer, const std::function<bool()>& ready) {
  for (int other = 0; other < size_; ++other) {
    if (other == options_.rank) continue;
    const Member& member = segment_.member(other);
    const Presence presence = member.presence.load(std::memory_order_acquire);
    if (presence == Presence::Absent || (presence == Presence::Left && other != peer)) continue;
    const std::string who = "rank " + std::to_string(other) + " (process " + std::to_string(member.process) + ")";
    if (presence == Presence::Left) {
      if (!ready()) fail(who + " has left the group, for which waits " + what);
      return;
    }
    const std::string end = process_end(member.process, member.started);
    // A process that leaves properly says so before it ends.
    if (!end.empty() && member.presence.load() == Presence::Joined && !ready()) {
      fail(who + " " + end + ", for which waits " + what);
    }
  }
}

void SharedGroup::look(const Call& call) {
  if (looking_at_ != number_) {
    show_not_waiting(looking_);
    looking_ = Watch();
    looking_at_ = number_;
  }
  int late = -1;
  for (int peer = size_ - 1; peer >= 0; --peer) {
    const Member& member = segment_.member(peer);
    if (member.number.load(std::memory_order_acquire) < number_) late = peer;
    const Record& record = member.records[number_ % Member::kRecords];
    if (record.number.load(std::memory_order_acquire) == number_ && record.hash != hash_) {
      fail("ranks do not agree about " + describe(call) + ": rank " + std::to_string(peer) +
           " calls something else there");
    }
  }
  if (late < 0) {
    throw_if_aborted();
    return show_not_waiting(looking_);
  }
  Call watched;
  watched.kind = call.kind;
  watched.place = call.place;
  watched.timeout = call.timeout;
  if (call.interrupt) watched.interrupt = [] {};  // the program's thread is waiting, and it is not this one
  look_around(watched, late, looking_, [&] { return segment_.member(late).number.load() >= number_; });
}

void SharedGroup::stand_still(int peer, const std::string& what, double waited) {
  throw_if_aborted();
  check_alive(what, peer, [] { return false; });
  if (waited > kShowAfter && program_has_one_thread()) show_waiting(what, peer, standing_);
  if (waited > kCircleAfter && standing_.shown) find_circle(peer);
}

void SharedGroup::stand_no_more() { show_not_waiting(standing_); }

// ---- circles: rank 0 waits for rank 1 in one group, which waits for rank 0 in another

void SharedGroup::show_waiting(const std::string& what, int peer, Watch& watch) {
  SharedGroup& world = world_ ? *world_ : *this;
  const uint64_t target = static_cast<uint64_t>(options_.world_ranks[static_cast<size_t>(peer)]) + 1;
  if (watch.shown == target) return;
  Member& own = world.me();
  own.wait_edge.store(0, std::memory_order_release);
  std::snprintf(own.wait_text, sizeof own.wait_text, "%s", what.c_str());
  own.wait_edge.store((++world.edge_count_ << 16) | target, std::memory_order_release);
  watch.shown = target;
}

void SharedGroup::show_not_waiting(Watch& watch) {
  if (watch.shown == 0) return;
  watch.shown = 0;
  SharedGroup& world = world_ ? *world_ : *this;
  world.me().wait_edge.store(0, std::memory_order_release);
}

void SharedGroup::find_circle(int peer) {
  SharedGroup& world = world_ ? *world_ : *this;
  if (peer < 0) return;
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
  usleep(900000);  // meanwhile none of them moves or withdraws what it shows: each looks around twice a second
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
