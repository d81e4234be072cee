// The engine of a group whose processes are on one host: they meet in a segment of shared memory.
//
// A collective is a number of rounds, the same number on every rank. In a round a rank writes into its outbox, counts
// `published` up, reads what it needs of other outboxes, and counts `finished` up. A rank has two outboxes and writes
// one again when all ranks have finished the round before the last: so ranks are at most two rounds apart.
#pragma once

#include <chrono>
#include <deque>
#include <list>
#include <mutex>
#include <thread>

#include "segment.h"

namespace mica::distributed {

struct SharedOptions {
  std::string name;  // of the group, for messages to people
  int rank = 0;
  std::vector<int> world_ranks;  // of the members, in the default group
  double late_after = 10;        // seconds until a warning names who is late
};

class SharedMessage;

class SharedGroup final : public Backend {
 public:
  // `world` is the default group, in whose segment waiting ranks say what they wait for; null for that group itself.
  SharedGroup(Segment segment, SharedOptions options, std::shared_ptr<SharedGroup> world);
  ~SharedGroup() override;

  void run(Call& call) override;
  std::shared_ptr<Message> post(Call call) override;
  void abort(const std::string& why) override;
  void leave() override;

  // Waits until every rank has joined. Others cannot open the segment any more.
  void meet(double timeout, const std::function<void()>& interrupt);

  int rank() const { return options_.rank; }
  int size() const { return size_; }
  Segment& segment() { return segment_; }
  // Seconds that this rank has waited for each other one.
  const std::vector<double>& waited() const { return waited_; }

 private:
  friend class SharedMessage;
  using Clock = std::chrono::steady_clock;
  struct Watch {  // how long a call has waited, and when it last looked around
    Clock::time_point began = Clock::now(), looked = began;
    bool warned = false;
  };

  // shared_waiting.cpp
  Member& me() { return segment_.member(options_.rank); }
  void wait(Counter& counter, uint32_t target, int peer, Call& call);
  void raise_to(Counter& counter, uint32_t value);
  void look_around(Call& call, int peer, Watch& watch, const std::function<bool()>& ready);
  void check_alive(const Call& call, int peer, const std::function<bool()>& ready);
  void find_circle(const Call& call, int peer, Watch& watch);
  void throw_if_aborted();
  [[noreturn]] void fail(const std::string& why);
  std::string describe_ranks();
  std::string describe(const Call& call);
  void show_waiting(const Call& call, int peer);
  void show_not_waiting();

  // shared_collectives.cpp
  void begin(Call& call);
  void end();
  std::byte* open_round(Call& call);
  void publish();
  const std::byte* read_from(int peer, Call& call);
  void close_round();
  void check_same(int peer, Call& call);
  void all_reduce(Call& call);
  void all_reduce_small(Call& call);
  void broadcast(Call& call);
  void all_gather(Call& call);
  void gather(Call& call);
  void scatter(Call& call);
  void reduce_scatter(Call& call);
  void all_to_all(Call& call);
  void barrier(Call& call);

  // shared_messages.cpp
  struct Incoming;
  bool progress();
  bool progress_send(int peer);
  bool progress_receive(int peer);
  void push_bytes(int peer, const std::byte* data, size_t size);
  std::shared_ptr<SharedMessage> match(int peer, int64_t tag);
  void ring_bell(int peer);
  void carry_mail();

  Segment segment_;
  SharedOptions options_;
  std::shared_ptr<SharedGroup> world_;
  int size_;
  int spins_;
  uint64_t number_ = 0;
  uint64_t hash_ = 0;
  uint32_t round_ = 0;
  std::vector<bool> checked_;  // ranks whose record of this collective was compared
  std::vector<double> waited_;
  uint64_t edge_count_ = 0;

  std::mutex mail_mutex_;  // guards what follows
  std::vector<std::deque<std::shared_ptr<SharedMessage>>> sending_;
  std::list<std::shared_ptr<SharedMessage>> receiving_;
  std::vector<std::shared_ptr<Incoming>> incoming_;  // shared, since the type is complete in one source only
  std::thread carrier_;
  std::atomic<bool> stop_{false};
};

}  // namespace mica::distributed
