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
  std::vector<int> world_ranks;  // the ranks of the members in the default group
  double late_after = 10;        // seconds until a warning names who is late, and where it is
};

class SharedMessage;

class SharedGroup final : public Backend {
 public:
  // `world` is the default group, in whose segment waiting ranks say what they wait for. It is null for that group
  // itself.
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
  // For the default group: returns true when another rank asks where this program is, which `answer` then says; false
  // when the group leaves.
  bool wait_for_question();
  void answer(const std::string& place);
  // The program waits for a rank outside of this group's calls, and has done so for `waited` seconds.
  void stand_still(int peer, const std::string& what, double waited);
  void stand_no_more();
  // For a backend that runs collectives by other means; the segment says who calls what. `look` is called now and then
  // while a collective is under way, from any thread for which the one inside waits. It throws where the collective
  // cannot end.
  void enter(Call& call) { begin(call); }
  void exit() { end(); }
  void look(const Call& call);
  std::vector<double> waited() const override { return waited_; }

 private:
  friend class SharedMessage;
  using Clock = std::chrono::steady_clock;
  struct Question {  // asked of a rank that has not come; number 0: not asked
    uint32_t number = 0;
    double used = 0;  // processor seconds that its process had used by then
    Clock::time_point at;
  };
  struct Watch {  // how long a call has waited, and when it last looked around
    Clock::time_point began = Clock::now(), looked = began;
    double warn_at = 0;           // seconds of waiting until the next warning; 0: not set yet
    uint64_t shown = 0;           // the rank of the world for which others see this one wait, + 1
    std::vector<Question> asked;  // by rank; empty where nobody was asked
  };

  // shared_waiting.cpp
  Member& me() { return segment_.member(options_.rank); }
  void wait(Counter& counter, uint32_t target, int peer, Call& call);
  void raise_to(Counter& counter, uint32_t value);
  // shared_diagnosis.cpp
  void look_around(Call& call, int peer, Watch& watch, const std::function<bool()>& ready);
  void check_alive(const std::string& what, int peer, const std::function<bool()>& ready);
  void find_circle(int peer);
  bool has_come(int peer) const;
  bool is_first_to_wait();
  Member& desk(int peer) const;
  void ask(Watch& watch);
  std::string describe_place(int peer, const Watch& watch);
  void throw_if_aborted();
  // With a watch, the text also says where the ranks are that it has asked.
  [[noreturn]] void fail(const std::string& why, const Watch* watch = nullptr);
  std::string describe_ranks(const Watch* watch);
  std::string describe(const Call& call);
  void show_waiting(const std::string& what, int peer, Watch& watch);
  void show_not_waiting(Watch& watch);

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
  void all_reduce_pair(Call& call);
  std::byte* take_slot(uint32_t round, const Counter& finished);
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
  std::chrono::microseconds spin_time_;
  uint64_t number_ = 0;
  uint64_t hash_ = 0;
  uint32_t round_ = 0;
  std::vector<uint8_t> free_slots_;                      // this rank's, for all_reduce_pair
  std::deque<std::pair<uint32_t, uint8_t>> used_slots_;  // by their rounds
  std::vector<bool> checked_;                            // ranks whose record of this collective was compared
  std::vector<double> waited_;
  std::atomic<uint64_t> edge_count_{0};
  Watch standing_;  // the watch of stand_still
  Watch looking_;   // the watch of look, for the collective of this number
  uint64_t looking_at_ = 0;

  std::mutex mail_mutex_;  // guards the members below
  std::vector<std::deque<std::shared_ptr<SharedMessage>>> sending_;
  std::list<std::shared_ptr<SharedMessage>> receiving_;
  std::vector<std::shared_ptr<Incoming>> incoming_;  // shared pointers, since only one source has the complete type
  std::thread carrier_;
  std::atomic<bool> stop_{false};
};

}  // namespace mica::distributed
