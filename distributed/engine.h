// Runs the calls of one group in their order: in the caller's thread when nothing else is under way, otherwise in a
// thread of the group.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "call.h"

namespace mica::distributed {

// Something that was started: a collective in the group's thread, or a message.
class Work {
 public:
  // False if it was not done within `seconds`; throws what it failed with.
  bool wait(double seconds, const std::function<void()>& interrupt);
  bool done();
  // What it failed with, null if it has not.
  std::exception_ptr error();
  int sender() const { return message_ ? message_->sender() : -1; }

 private:
  friend class Engine;
  std::shared_ptr<Message> message_;
  std::shared_ptr<Backend> backend_;  // of a collective
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
};

// One line of the log of collectives.
struct LogEntry {
  Kind kind;
  DType dtype;
  uint64_t bytes;
  double began, seconds;  // since the epoch; how long it took
  std::string place;
  double waited = 0;  // of these seconds, for the rank that was waited for most
  int late = -1;      // that rank; -1: nobody, or the backend does not say
};

class Engine {
 public:
  explicit Engine(std::shared_ptr<Backend> backend);
  ~Engine();

  void run(Call& call);                    // to its end
  std::shared_ptr<Work> start(Call call);  // in the group's thread
  std::shared_ptr<Work> post(Call call);   // a message
  Backend& backend() { return *backend_; }
  void abort(const std::string& why) { backend_->abort(why); }
  // Tells other ranks goodbye and ends the thread; calls that wait fail.
  void close();

  void log(bool on);
  std::vector<LogEntry> take_log();

 private:
  void check_usable() const;
  void work();
  void run_logged(Call& call);

  std::shared_ptr<Backend> backend_;
  uint64_t forks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<Call, std::shared_ptr<Work>>> queue_;
  bool running_ = false, closed_ = false, logging_ = false;
  std::vector<LogEntry> log_;
  std::thread thread_;
};

}  // namespace mica::distributed
