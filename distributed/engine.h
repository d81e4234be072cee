// Runs the calls of one group in their order: in the caller's thread when nothing else is under way, otherwise in a
// thread of the group.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "call.h"

namespace mica::distributed {

// Work that was started: a collective in the group's thread, or a message.
class Work {
 public:
  // Returns false if it was not done within `seconds`. Throws the error with which it failed.
  bool wait(double seconds, const std::function<void()>& interrupt);
  bool done();
  // The error with which it failed, null if it has not failed.
  std::exception_ptr error();
  int sender() const { return message_ ? message_->sender() : -1; }

 private:
  friend class Engine;
  std::shared_ptr<Message> message_;
  std::shared_ptr<Backend> backend_;  // for a collective
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
  double began, seconds;  // when it began, in seconds since the epoch; how long it took
  std::string place;
  double waited = 0;  // the seconds of it spent waiting for the latest rank
  int late = -1;      // the latest rank; -1 if there is none, or the backend does not say
};

class Engine {
 public:
  explicit Engine(std::shared_ptr<Backend> backend);
  ~Engine();

  void run(Call& call);                    // runs it to its end
  std::shared_ptr<Work> start(Call call);  // runs it in the group's thread
  std::shared_ptr<Work> post(Call call);   // starts a message
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
