#include "engine.h"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <utility>

#include "process.h"

namespace mica::distributed {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t bytes_of(const Call& call) {
  uint64_t in = 0, out = 0;
  for (const Bytes& each : call.inputs) in += each.size;
  for (const Bytes& each : call.outputs) out += each.size;
  return in > out ? in : out;
}

}  // namespace

bool Work::wait(double seconds, const std::function<void()>& interrupt) {
  if (interrupt) note_program_thread();
  if (message_) return message_->wait(seconds, interrupt);
  struct Waiting {
    Backend* backend;
    explicit Waiting(Backend* of) : backend(of) {
      if (backend) ++backend->program_waits;
    }
    ~Waiting() {
      if (backend) --backend->program_waits;
    }
  } waiting(interrupt ? backend_.get() : nullptr);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds < 1e9 ? seconds : 1e9);
  std::unique_lock lock(mutex_);
  while (!done_) {
    if (Clock::now() >= end) return false;
    changed_.wait_until(lock, std::min(Clock::now() + std::chrono::milliseconds(100),
                                       std::chrono::time_point_cast<Clock::duration>(end)));
    if (!done_ && interrupt) {
      lock.unlock();
      interrupt();
      lock.lock();
    }
  }
  if (error_) std::rethrow_exception(error_);
  return true;
}

bool Work::done() {
  if (message_) return message_->done();
  std::lock_guard lock(mutex_);
  return done_;
}

std::exception_ptr Work::error() {
  std::lock_guard lock(mutex_);
  return error_;
}

Engine::Engine(std::shared_ptr<Backend> backend) : backend_(std::move(backend)), forks_(fork_count()) {}

Engine::~Engine() {
  if (forks_ != fork_count()) {
    // In a child of fork, the thread and what it holds belong to the parent.
    if (thread_.joinable()) thread_.detach();
    return;
  }
  close();
}

void Engine::check_usable() const {
  if (forks_ != fork_count()) {
    throw BackendError(
        "a process group cannot be used in a child of fork: the ranks of the group are its processes. Call "
        "init_process_group in the child, or start it with the 'spawn' method");
  }
  if (closed_) throw BackendError("the process group was destroyed");
}

void Engine::run_logged(Call& call) {
  if (!logging_) return backend_->run(call);
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  const std::vector<double> before = backend_->waited();
  const auto began = Clock::now();
  backend_->run(call);
  const double took = std::chrono::duration<double>(Clock::now() - began).count();
  LogEntry entry{call.kind, call.dtype, bytes_of(call), std::chrono::duration<double>(since_epoch).count(),
                 took,      call.place};
  const std::vector<double> after = backend_->waited();
  for (size_t rank = 0; rank < after.size(); ++rank) {
    if (after[rank] - before[rank] <= entry.waited) continue;
    entry.waited = after[rank] - before[rank];
    entry.late = static_cast<int>(rank);
  }
  std::lock_guard lock(mutex_);
  log_.push_back(std::move(entry));
}

void Engine::run(Call& call) {
  check_usable();
  if (call.interrupt) note_program_thread();
  check_reduction(call);
  {
    std::unique_lock lock(mutex_);
    if (running_ || !queue_.empty()) {
      lock.unlock();
      auto interrupt = std::move(call.interrupt);
      call.interrupt = nullptr;
      const double timeout = call.timeout;
      const auto queued = start(std::move(call));
      try {
        if (queued->wait(timeout + 10, interrupt)) return;
      } catch (const Interrupted&) {
        abort("a rank was interrupted while it waited for collectives");
        // The thread releases the caller's memory before the caller does.
        try {
          queued->wait(1e9, nullptr);
        } catch (const std::exception&) {
        }
        throw;
      }
      throw BackendError("Timed out: collectives before this one have not ended");
    }
    running_ = true;
  }
  struct Idle {
    Engine& engine;
    ~Idle() {
      std::lock_guard lock(engine.mutex_);
      engine.running_ = false;
      if (!engine.queue_.empty() || engine.closed_) engine.changed_.notify_all();
    }
  } idle{*this};
  run_logged(call);
}

std::shared_ptr<Work> Engine::start(Call call) {
  check_usable();
  check_reduction(call);
  auto work = std::make_shared<Work>();
  work->backend_ = backend_;
  std::lock_guard lock(mutex_);
  queue_.emplace_back(std::move(call), work);
  if (!thread_.joinable()) thread_ = std::thread([this] { this->work(); });
  changed_.notify_all();
  return work;
}

std::shared_ptr<Work> Engine::post(Call call) {
  check_usable();
  auto work = std::make_shared<Work>();
  work->message_ = backend_->post(std::move(call));
  return work;
}

void Engine::work() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closed_ || (!queue_.empty() && !running_); });
    if (queue_.empty() || running_) return;  // closed
    auto [call, work] = std::move(queue_.front());
    queue_.pop_front();
    running_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (closed_) throw BackendError("the process group was destroyed");
      run_logged(call);
    } catch (...) {
      error = std::current_exception();
    }
    {
      std::lock_guard done(work->mutex_);
      work->done_ = true;
      work->error_ = error;
    }
    work->changed_.notify_all();
    lock.lock();
    running_ = false;
  }
}

void Engine::close() {
  if (forks_ != fork_count()) return;  // a child of fork has nothing to close: the parent is still in the group
  {
    std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    if (running_ || !queue_.empty())
      backend_->abort("a rank has destroyed the process group while collectives were under way");
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  backend_->leave();
}

void Engine::log(bool on) {
  std::lock_guard lock(mutex_);
  logging_ = on;
}

std::vector<LogEntry> Engine::take_log() {
  std::lock_guard lock(mutex_);
  return std::exchange(log_, {});
}

}  // namespace mica::distributed
