// The engine of a group across hosts. Gloo carries bytes over TCP. Collectives are made of exchanges here, so that they
// reduce in the order of ranks and compare what ranks call, as in shared memory.
#pragma once

#include <gloo/rendezvous/context.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "distributed/gloo/gloo_options.h"

namespace mica::distributed {

class GlooGroup final : public Backend {
 public:
  GlooGroup(GlooOptions options, const MeetingPlace& place);
  ~GlooGroup() override;

  void run(Call& call) override;
  std::shared_ptr<Message> post(Call call) override;
  void abort(const std::string& why) override;
  void leave() override;

 private:
  friend class GlooMessage;
  // The message that every rank sends every other one before a collective. It always has the same size, whatever is
  // called, because Gloo ends a process that is sent more than it expects.
  struct Frame {
    static constexpr size_t kInline = 1024;
    uint64_t number, hash;
    char text[496];
    std::byte data[kInline];  // the data of a small all_reduce
  };
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  void exchange(const std::vector<Bytes>& to, const std::vector<Bytes>& from, Call& call);
  void compare(Call& call, const Bytes& small);
  void all_reduce(Call& call);
  void reduce_scatter(Call& call);
  void all_to_all(Call& call);
  std::string describe(const Call& call) const;
  [[noreturn]] void fail(const std::string& why);
  void watch();

  GlooOptions options_;
  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::vector<Frame> frames_;  // those of all ranks for the present collective
  uint64_t number_ = 0, slot_ = 0;
  std::mutex mutex_;  // guards `why_` and `doing_`
  std::string why_, doing_;
  std::atomic<int> waiting_for_{-1};
  std::atomic<bool> stop_{false};
  std::thread watcher_;
};

}  // namespace mica::distributed
