#include "mpi_group.h"

#include <sched.h>
#include <unistd.h>

#include <cstdio>

namespace mica::distributed {
namespace {

constexpr double kWarnAfter = 10, kWarnAgain = 3;

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

}  // namespace

template <typename Handle>
MpiGroup<Handle>::MpiGroup(std::shared_ptr<MpiWorldOf<Handle>> world, std::string name, Handle communicator,
                           std::shared_ptr<SharedGroup> desk)
    : world_(std::move(world)), name_(std::move(name)), communicator_(communicator), desk_(std::move(desk)) {
  auto& mpi = world_->mpi;
  world_->check(mpi.Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
  world_->check(mpi.Comm_size(communicator_, &size_), "MPI_Comm_size");
  int* most = nullptr;
  int found = 0;
  mpi.Comm_get_attr(world_->constants.comm_world, world_->constants.tag_ub, &most, &found);
  if (found && most) most_tag_ = *most;
  std::lock_guard lock(world_->made_mutex_);
  world_->groups_.push_back(this);
  if (!world_->watcher_.joinable()) world_->watcher_ = std::thread([world = world_.get()] { world->watch(); });
}

template <typename Handle>
MpiGroup<Handle>::~MpiGroup() {
  // The communicator is not freed: that is a collective, and ranks drop their groups at different times.
  std::lock_guard lock(world_->made_mutex_);
  std::erase(world_->groups_, this);
}

template <typename Handle>
std::string MpiGroup<Handle>::describe(const Call& call) const {
  return distributed::describe(call, number_, name_);
}

template <typename Handle>
void MpiGroup<Handle>::check(int code, const Call& call) const {
  if (code != 0) world_->check(code, describe(call).c_str());
}

template <typename Handle>
void MpiGroup<Handle>::look() {
  std::lock_guard lock(doing_mutex_);
  if (!doing_) return;
  const double waited = std::chrono::duration<double>(Clock::now() - since_).count();
  if (desk_) {
    try {
      desk_->look(*doing_);
    } catch (const std::exception& error) {
      end_program(error.what());
    }
    return;
  }
  if (waited > doing_->timeout) end_program("Timed out after " + seconds(doing_->timeout) + " s");
  if (waited <= warn_at_) return;
  warn_at_ *= kWarnAgain;
  std::fprintf(stderr, "mica.distributed: rank %d has waited %.0f s for other ranks in %s\n", rank_, waited,
               describe(*doing_).c_str());
}

template <typename Handle>
void MpiGroup<Handle>::end_program(const std::string& why) {
  std::fprintf(stderr, "mica.distributed: rank %d ends the program in %s: %s\n", rank_, describe(*doing_).c_str(),
               why.c_str());
  std::fflush(stderr);
  world_->mpi.Abort(world_->constants.comm_world, 1);
  _exit(1);
}

template <typename Handle>
void MpiGroup<Handle>::abort(const std::string& why) {
  std::lock_guard lock(doing_mutex_);
  if (doing_) end_program(why);  // a thread that waits inside MPI cannot be interrupted
  if (why_.empty()) why_ = why;
}

template <typename Handle>
void MpiGroup<Handle>::leave() {
  if (desk_) desk_->leave();
}

template <typename Handle>
void MpiGroup<Handle>::throw_if_aborted() {
  std::lock_guard lock(doing_mutex_);
  if (!why_.empty()) throw BackendError(why_);
}

template <typename Handle>
void MpiGroup<Handle>::run(Call& call) {
  struct Doing {
    MpiGroup& group;
    Doing(MpiGroup& of, Call& call) : group(of) {
      std::lock_guard lock(group.doing_mutex_);
      if (!group.why_.empty()) throw BackendError(group.why_);
      ++group.number_;
      if (group.desk_) group.desk_->enter(call);
      group.doing_ = &call;
      group.since_ = Clock::now();
      group.warn_at_ = kWarnAfter;
    }
    ~Doing() {
      std::lock_guard lock(group.doing_mutex_);
      group.doing_ = nullptr;
      if (group.desk_) group.desk_->exit();
    }
  } doing(*this, call);
  const auto lock = world_->enter();
  run_collective(call);
}

template <typename Handle>
class MpiMessage final : public Message {
 public:
  MpiMessage(MpiGroup<Handle>& group, Call call) : group_(group), world_(group.world_), call_(std::move(call)) {
    auto& mpi = world_->mpi;
    const size_t unit = call_.element_size();
    const Handle type = world_->type_of_bytes(unit);
    const int tag = static_cast<int>(call_.tag);
    const auto lock = world_->enter();
    if (call_.kind == Kind::Send) {
      const Bytes in = call_.inputs[0];
      group_.check(mpi.Isend(in.data, mpi_count(in.size, unit), type, call_.root, tag, group_.communicator_, &request_),
                   call_);
    } else {
      const Bytes out = call_.outputs[0];
      const int source = call_.root == Call::kAnySource ? world_->constants.any_source : call_.root;
      group_.check(mpi.Irecv(out.data, mpi_count(out.size, unit), type, source, tag, group_.communicator_, &request_),
                   call_);
    }
  }

  ~MpiMessage() override {
    if (done_ || world_->finished()) return;
    const auto lock = world_->enter();
    if (call_.kind == Kind::Recv) world_->mpi.Cancel(&request_);
    world_->mpi.Request_free(&request_);
  }

  bool done() override {
    std::lock_guard own(mutex_);
    if (done_) return true;
    group_.throw_if_aborted();
    MpiStatus status{};
    int flag = 0;
    const auto lock = world_->enter();
    const int code = world_->mpi.Test(&request_, &flag, &status);
    done_ = code != 0 || flag != 0;
    group_.check(code, call_);
    if (!done_ || call_.kind == Kind::Send) return done_;
    sender_ = status.words[world_->constants.source_word];
    int bytes = 0;
    world_->mpi.Get_count(&status, world_->type_of_bytes(call_.element_size()), &bytes);
    if (static_cast<size_t>(bytes) * call_.element_size() != call_.outputs[0].size) {
      throw BackendError("rank " + std::to_string(sender_) + " sends " + std::to_string(bytes) + " elements where " +
                         group_.describe(call_) + " expects " +
                         std::to_string(call_.outputs[0].size / call_.element_size()));
    }
    return true;
  }

  // MPI moves messages only while it is called, so a thread that waits keeps calling it.
  bool wait(double limit, const std::function<void()>& interrupt) override {
    using Clock = std::chrono::steady_clock;
    const auto began = Clock::now();
    auto looked = began;
    double warn_at = kWarnAfter;
    while (!done()) {
      const auto now = Clock::now();
      const double waited = std::chrono::duration<double>(now - began).count();
      if (waited > limit) return false;
      if (waited > call_.timeout)
        throw BackendError("Timed out after " + seconds(call_.timeout) + " s: " + group_.describe(call_));
      if (waited > warn_at) {
        warn_at *= kWarnAgain;
        std::fprintf(stderr, "mica.distributed: rank %d has waited %.0f s for rank %d in %s\n", group_.rank_, waited,
                     call_.root, group_.describe(call_).c_str());
      }
      if (interrupt && now - looked > std::chrono::milliseconds(100)) {
        looked = now;
        interrupt();
      }
      if (waited < 1)
        sched_yield();
      else
        usleep(200);
    }
    return true;
  }
  int sender() const override { return sender_; }

 private:
  MpiGroup<Handle>& group_;
  std::shared_ptr<MpiWorldOf<Handle>> world_;
  Call call_;
  Handle request_{};
  std::mutex mutex_;
  bool done_ = false;
  int sender_ = -1;
};

template <typename Handle>
std::shared_ptr<Message> MpiGroup<Handle>::post(Call call) {
  throw_if_aborted();
  if (call.tag < 0 || call.tag > most_tag_) {
    throw InvalidCall("the tag of a message is from 0 to " + std::to_string(most_tag_) + " in this MPI, but it is " +
                      std::to_string(call.tag));
  }
  return std::make_shared<MpiMessage<Handle>>(*this, std::move(call));
}

template class MpiGroup<void*>;
template class MpiGroup<int>;

}  // namespace mica::distributed
