// Messages in rings of shared memory, one ring for each pair of ranks and direction.
//
// A thread that waits for a message carries all of this rank's messages on meanwhile. Once a program has started a
// message that it does not wait for, a thread of the group does that too.
#include "shared_messages.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "futex.h"

namespace mica::distributed {
namespace {

constexpr int kSpins = 100;  // how often the rings are looked at before a rank sleeps

struct MessageHeader {
  uint64_t bytes;
  int64_t tag;
  uint64_t dtype;
  uint64_t reserved;
};

// Of a message without bytes, `from` and `to` may be null.
void copy_in(std::byte* ring, size_t ring_bytes, uint64_t at, const std::byte* from, size_t size) {
  if (size == 0) return;
  const size_t begin = at % ring_bytes, first = std::min(size, ring_bytes - begin);
  std::memcpy(ring + begin, from, first);
  std::memcpy(ring, from + first, size - first);
}

void copy_out(std::byte* to, const std::byte* ring, size_t ring_bytes, uint64_t at, size_t size) {
  if (size == 0) return;
  const size_t begin = at % ring_bytes, first = std::min(size, ring_bytes - begin);
  std::memcpy(to, ring + begin, first);
  std::memcpy(to + first, ring, size - first);
}

}  // namespace

// The message that is coming out of a ring, and those that nobody has asked for yet.
struct SharedGroup::Incoming {
  struct Stored {
    MessageHeader header;
    std::vector<std::byte> data;
  };
  bool open = false;
  MessageHeader header{};
  size_t moved = 0;
  std::shared_ptr<SharedMessage> target;  // null while the message goes to `early`
  std::list<Stored> early;                // the last one is incomplete while `open` and there is no target
};

SharedGroup::~SharedGroup() {
  stop_ = true;
  if (carrier_.joinable()) {
    raise_to(me().mail, me().mail.value.load() + 1);
    futex_wake_all(me().mail.value);
    carrier_.join();
  }
}

void SharedGroup::ring_bell(int peer) {
  Counter& mail = segment_.member(peer).mail;
  mail.value.fetch_add(1, std::memory_order_seq_cst);
  if (mail.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(mail.value);
}

bool SharedGroup::progress_send(int peer) {
  auto& queue = sending_[static_cast<size_t>(peer)];
  Ring& ring = segment_.ring(options_.rank, peer);
  std::byte* data = segment_.ring_data(options_.rank, peer);
  const size_t capacity = segment_.ring_bytes();
  bool moved = false;
  while (!queue.empty()) {
    SharedMessage& message = *queue.front();
    const Bytes whole = message.call_.inputs[0];
    const uint64_t written = ring.written.load(std::memory_order_relaxed);
    size_t room = capacity - static_cast<size_t>(written - ring.read.load(std::memory_order_acquire));
    uint64_t at = written;
    if (!message.begun_) {
      if (room < sizeof(MessageHeader)) break;
      const MessageHeader header{whole.size, message.call_.tag, static_cast<uint64_t>(message.call_.dtype), 0};
      copy_in(data, capacity, at, reinterpret_cast<const std::byte*>(&header), sizeof header);
      at += sizeof header;
      room -= sizeof header;
      message.begun_ = true;
    }
    const size_t size = std::min(room, whole.size - message.moved_);
    copy_in(data, capacity, at, whole.data + message.moved_, size);
    message.moved_ += size;
    at += size;
    if (at == written) break;
    ring.written.store(at, std::memory_order_release);
    moved = true;
    if (message.moved_ < whole.size) break;
    message.done_.store(true, std::memory_order_release);
    queue.pop_front();
  }
  if (moved) ring_bell(peer);
  return moved;
}

// Takes the first request that fits the message from `peer` off the list.
std::shared_ptr<SharedMessage> SharedGroup::match(int peer, int64_t tag) {
  for (auto each = receiving_.begin(); each != receiving_.end(); ++each) {
    const Call& call = (*each)->call_;
    if ((call.root == peer || call.root == Call::kAnySource) && call.tag == tag) {
      auto found = *each;
      receiving_.erase(each);
      return found;
    }
  }
  return nullptr;
}

bool SharedGroup::progress_receive(int peer) {
  Ring& ring = segment_.ring(peer, options_.rank);
  const std::byte* data = segment_.ring_data(peer, options_.rank);
  const size_t capacity = segment_.ring_bytes();
  Incoming& from = *incoming_[static_cast<size_t>(peer)];
  const auto deliver = [&](const MessageHeader& header, SharedMessage& target) {
    const Bytes out = target.call_.outputs[0];
    target.sender_ = peer;
    if (out.size != header.bytes || static_cast<uint64_t>(target.call_.dtype) != header.dtype) {
      fail("rank " + std::to_string(peer) + " sends " + std::to_string(header.bytes) + " bytes of " +
           name_of_dtype(static_cast<DType>(header.dtype)) + " where rank " + std::to_string(options_.rank) +
           " expects " + std::to_string(out.size) + " bytes of " + name_of_dtype(target.call_.dtype) + " in " +
           describe(target.call_));
    }
    return out.data;
  };
  bool moved = false;
  // Messages that came early and are asked for now.
  for (auto stored = from.early.begin(); stored != from.early.end();) {
    if (from.open && !from.target && std::next(stored) == from.early.end()) break;  // it is not complete yet
    auto target = match(peer, stored->header.tag);
    if (!target) {
      ++stored;
      continue;
    }
    std::byte* out = deliver(stored->header, *target);
    if (!stored->data.empty()) std::memcpy(out, stored->data.data(), stored->data.size());
    target->done_.store(true, std::memory_order_release);
    stored = from.early.erase(stored);
    moved = true;
  }
  for (;;) {
    const uint64_t read = ring.read.load(std::memory_order_relaxed);
    const size_t there = static_cast<size_t>(ring.written.load(std::memory_order_acquire) - read);
    if (!from.open) {
      if (there < sizeof(MessageHeader)) break;
      copy_out(reinterpret_cast<std::byte*>(&from.header), data, capacity, read, sizeof(MessageHeader));
      from.target = match(peer, from.header.tag);
      if (!from.target) {
        // The message waits in the ring until it is asked for, unless one behind it may be asked for.
        const bool wanted = std::any_of(receiving_.begin(), receiving_.end(), [&](const auto& each) {
          return each->call_.root == peer || each->call_.root == Call::kAnySource;
        });
        if (!wanted) break;
        from.early.push_back({from.header, std::vector<std::byte>(from.header.bytes)});
      } else {
        deliver(from.header, *from.target);
      }
      from.open = true;
      from.moved = 0;
      ring.read.store(read + sizeof(MessageHeader), std::memory_order_release);
      moved = true;
      continue;
    }
    const size_t size = std::min<size_t>(there, from.header.bytes - from.moved);
    std::byte* out = from.target ? from.target->call_.outputs[0].data : from.early.back().data.data();
    if (size != 0) {
      copy_out(out + from.moved, data, capacity, read, size);
      ring.read.store(read + size, std::memory_order_release);
      from.moved += size;
      moved = true;
    }
    if (from.moved < from.header.bytes) break;
    from.open = false;
    if (from.target) from.target->done_.store(true, std::memory_order_release);
    from.target = nullptr;
  }
  if (moved) ring_bell(peer);
  return moved;
}

bool SharedGroup::progress() {
  throw_if_aborted();  // the memory of messages of an aborted group may be gone
  bool moved = false;
  for (int peer = 0; peer < size_; ++peer) {
    moved |= progress_send(peer);
    moved |= progress_receive(peer);
  }
  if (moved) futex_wake_all(me().mail.value);  // wakes threads whose messages this one has carried
  return moved;
}

std::shared_ptr<Message> SharedGroup::post(Call call) {
  throw_if_aborted();
  auto message = std::make_shared<SharedMessage>(*this, std::move(call));
  std::lock_guard lock(mail_mutex_);
  if (incoming_.empty()) {
    for (int peer = 0; peer < size_; ++peer) incoming_.push_back(std::make_shared<Incoming>());
  }
  if (message->call_.kind == Kind::Send)
    sending_[static_cast<size_t>(message->call_.root)].push_back(message);
  else
    receiving_.push_back(message);
  progress();
  // A synchronous call carries its message itself.
  if (!message->call_.interrupt && !message->done_ && !carrier_.joinable()) {
    carrier_ = std::thread([this] { carry_mail(); });
  }
  return message;
}

void SharedGroup::carry_mail() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  Counter& mail = me().mail;
  while (!stop_) {
    const uint32_t seen = mail.value.load(std::memory_order_seq_cst);
    {
      std::lock_guard lock(mail_mutex_);
      try {
        progress();
      } catch (const std::exception&) {
        return;  // the group is aborted, with the reason
      }
    }
    mail.sleepers.fetch_add(1);
    futex_wait(mail.value, seen, 200);
    mail.sleepers.fetch_sub(1);
  }
}

bool SharedMessage::done() {
  if (done_.load(std::memory_order_acquire)) return true;
  std::lock_guard lock(group_.mail_mutex_);
  group_.progress();
  return done_;
}

bool SharedMessage::wait(double seconds, const std::function<void()>& interrupt) {
  SharedGroup::Watch watch;
  Counter& mail = group_.me().mail;
  Call watched = call_;
  watched.interrupt = interrupt;
  const auto ready = [&] { return done_.load(std::memory_order_acquire); };
  for (int spins = 0;; ++spins) {
    const uint32_t seen = mail.value.load(std::memory_order_seq_cst);
    {
      std::lock_guard lock(group_.mail_mutex_);
      if (!ready()) group_.progress();
    }
    if (ready()) {
      group_.show_not_waiting(watch);
      return true;
    }
    if (spins < kSpins && group_.spin_time_.count() > 0) {
      relax();
      continue;
    }
    const double waited = std::chrono::duration<double>(SharedGroup::Clock::now() - watch.began).count();
    if (waited > seconds) {
      group_.show_not_waiting(watch);
      return false;
    }
    mail.sleepers.fetch_add(1);
    futex_wait(mail.value, seen, std::clamp(static_cast<int>((seconds - waited) * 1000), 1, 100));
    mail.sleepers.fetch_sub(1);
    if (!ready())
      group_.look_around(watched, call_.root, watch, [&] {
        std::lock_guard lock(group_.mail_mutex_);
        if (!ready()) group_.progress();
        return ready();
      });
  }
}

}  // namespace mica::distributed
