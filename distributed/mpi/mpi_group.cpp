#include "mpi_group.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>

#include "distributed/reduce.h"

namespace mica::distributed {
namespace {

constexpr size_t kPiece = size_t{1} << 30;  // elements of one call: MPI counts in ints
constexpr double kWarnAfter = 10, kWarnAgain = 3;

int count_of(size_t bytes, size_t unit) {
  if (bytes / unit > INT_MAX) throw InvalidCall("MPI moves at most 2147483647 elements at once in this operation");
  return static_cast<int>(bytes / unit);
}

std::string seconds(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

bool overlap(const Bytes& a, const Bytes& b) {
  return a.size && b.size && a.data < b.data + b.size && b.data < a.data + a.size;
}

// Several buffers as one, as MPI wants them: in place where they lie one behind the other, otherwise in a copy.
class Parts {
 public:
  Parts(const std::vector<Bytes>& buffers, size_t unit, bool filled) : buffers_(buffers) {
    size_t total = 0;
    bool together = true;
    for (const Bytes& each : buffers) {
      together &= each.size == 0 || each.data == buffers[0].data + total;
      starts.push_back(count_of(total, unit));
      counts.push_back(count_of(each.size, unit));
      total += each.size;
    }
    count_of(total, unit);
    data = buffers.empty() ? nullptr : buffers[0].data;
    if (together) return;
    space_.resize(total);
    data = space_.data();
    size_t at = 0;
    for (const Bytes& each : buffers) {
      if (filled && each.size) std::memcpy(data + at, each.data, each.size);
      at += each.size;
    }
  }
  // Puts results where they belong.
  void spread() {
    size_t at = 0;
    for (const Bytes& each : buffers_) {
      if (!space_.empty() && each.size) std::memcpy(each.data, data + at, each.size);
      at += each.size;
    }
  }

  std::byte* data;
  std::vector<int> counts, starts;

 private:
  const std::vector<Bytes>& buffers_;
  std::vector<std::byte> space_;
};

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
  switch (call.kind) {
    case Kind::AllReduce:
    case Kind::Reduce:
      return reduce_all(call);
    case Kind::Broadcast:
      return broadcast(call);
    case Kind::AllGather:
      return all_gather(call);
    case Kind::Gather:
      return gather(call);
    case Kind::Scatter:
      return scatter(call);
    case Kind::ReduceScatter:
      return reduce_scatter(call);
    case Kind::AllToAll:
      return all_to_all(call);
    case Kind::Barrier:
      return check(world_->mpi.Barrier(communicator_), call);
    default:
      throw InvalidCall("a message is posted, not run");
  }
}

namespace {

// The reduction that MPI computes: AVG is a sum that is divided afterwards, PREMUL_SUM a sum of terms that are
// multiplied before.
Reduction plain(Reduction reduction) {
  return reduction == Reduction::Avg || reduction == Reduction::PremulSum ? Reduction::Sum : reduction;
}

}  // namespace

template <typename Handle>
void MpiGroup<Handle>::reduce_all(Call& call) {
  auto& mpi = world_->mpi;
  const Bytes in = call.inputs[0];
  const bool all = call.kind == Kind::AllReduce, wanted = all || call.root == rank_;
  const size_t unit = call.element_size();
  std::byte* from = in.data;
  std::byte* to = wanted ? call.outputs[0].data : nullptr;
  std::vector<std::byte> space;
  if (call.reduction == Reduction::PremulSum) {
    if (!wanted) {
      space.resize(in.size);
      to = space.data();
    }
    reduce(call.dtype, call.reduction, call.factor, {in.data}, to, in.size / unit);
    from = to;
  }
  const Handle own = world_->operation(call.dtype, plain(call.reduction));
  const bool native = own == Handle{};
  const Handle operation = native ? world_->constants.operations[static_cast<int>(plain(call.reduction))] : own;
  const Handle type = native ? world_->constants.types[static_cast<int>(call.dtype)] : world_->type_of_bytes(unit);
  for (size_t at = 0; at < in.size || at == 0; at += kPiece * unit) {
    const int count = static_cast<int>(std::min(kPiece, (in.size - at) / unit));
    const bool in_place = wanted && from == to;
    const void* given = in_place ? world_->constants.in_place : from + at;
    std::byte* out = to ? to + at : nullptr;
    check(all ? mpi.Allreduce(given, out, count, type, operation, communicator_)
              : mpi.Reduce(given, out, count, type, operation, call.root, communicator_),
          call);
  }
  if (call.reduction == Reduction::Avg && wanted) divide(call.dtype, to, in.size / unit, size_);
}

template <typename Handle>
void MpiGroup<Handle>::broadcast(Call& call) {
  const Bytes whole = call.root == rank_ ? call.inputs[0] : call.outputs[0];
  for (size_t at = 0; at < whole.size || at == 0; at += kPiece) {
    const int count = static_cast<int>(std::min(kPiece, whole.size - at));
    check(world_->mpi.Bcast(whole.data + at, count, world_->constants.byte, call.root, communicator_), call);
  }
}

template <typename Handle>
void MpiGroup<Handle>::all_gather(Call& call) {
  const size_t unit = call.element_size();
  const Handle type = world_->type_of_bytes(unit);
  Parts out(call.outputs, unit, false);
  Bytes in = call.inputs[0];
  std::vector<std::byte> space;
  for (const Bytes& each : call.outputs) {
    if (!overlap(in, each) || !space.empty()) continue;
    space.assign(in.data, in.data + in.size);
    in.data = space.data();
  }
  const bool equal = std::all_of(out.counts.begin(), out.counts.end(), [&](int each) { return each == out.counts[0]; });
  check(equal ? world_->mpi.Allgather(in.data, out.counts[0], type, out.data, out.counts[0], type, communicator_)
              : world_->mpi.Allgatherv(in.data, count_of(in.size, unit), type, out.data, out.counts.data(),
                                       out.starts.data(), type, communicator_),
        call);
  out.spread();
}

template <typename Handle>
void MpiGroup<Handle>::gather(Call& call) {
  const size_t unit = call.element_size();
  const Handle type = world_->type_of_bytes(unit);
  const Bytes in = call.inputs[0];
  Parts out(call.outputs, unit, false);
  const std::vector<std::byte> copy(in.data, in.data + (call.root == rank_ ? in.size : 0));  // it may be an output
  check(world_->mpi.Gatherv(call.root == rank_ ? copy.data() : in.data, count_of(in.size, unit), type, out.data,
                            out.counts.data(), out.starts.data(), type, call.root, communicator_),
        call);
  out.spread();
}

template <typename Handle>
void MpiGroup<Handle>::scatter(Call& call) {
  const size_t unit = call.element_size();
  const Handle type = world_->type_of_bytes(unit);
  const Bytes out = call.outputs[0];
  Parts in(call.inputs, unit, true);
  const bool root = call.root == rank_;
  std::vector<std::byte> space(root ? out.size : 0);  // the output may be an input
  check(world_->mpi.Scatterv(in.data, in.counts.data(), in.starts.data(), type, root ? space.data() : out.data,
                             count_of(out.size, unit), type, call.root, communicator_),
        call);
  if (root && out.size) std::memcpy(out.data, space.data(), out.size);
}

template <typename Handle>
void MpiGroup<Handle>::reduce_scatter(Call& call) {
  const size_t unit = call.element_size();
  Parts in(call.inputs, unit, true);
  const Bytes out = call.outputs[0];
  size_t total = 0;
  for (const Bytes& each : call.inputs) total += each.size;
  std::vector<std::byte> space;
  if (call.reduction == Reduction::PremulSum || overlap({in.data, total}, out)) {
    space.assign(in.data, in.data + total);
    if (call.reduction == Reduction::PremulSum)
      reduce(call.dtype, call.reduction, call.factor, {in.data}, space.data(), total / unit);
    in.data = space.data();
  }
  const Handle own = world_->operation(call.dtype, plain(call.reduction));
  const bool native = own == Handle{};
  const Handle operation = native ? world_->constants.operations[static_cast<int>(plain(call.reduction))] : own;
  const Handle type = native ? world_->constants.types[static_cast<int>(call.dtype)] : world_->type_of_bytes(unit);
  check(world_->mpi.Reduce_scatter(in.data, out.data, in.counts.data(), type, operation, communicator_), call);
  if (call.reduction == Reduction::Avg) divide(call.dtype, out.data, out.size / unit, size_);
}

template <typename Handle>
void MpiGroup<Handle>::all_to_all(Call& call) {
  const size_t unit = call.element_size();
  const Handle type = world_->type_of_bytes(unit);
  Parts in(call.inputs, unit, true), out(call.outputs, unit, false);
  check(world_->mpi.Alltoallv(in.data, in.counts.data(), in.starts.data(), type, out.data, out.counts.data(),
                              out.starts.data(), type, communicator_),
        call);
  out.spread();
}

// ---- messages

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
      group_.check(mpi.Isend(in.data, count_of(in.size, unit), type, call_.root, tag, group_.communicator_, &request_),
                   call_);
    } else {
      const Bytes out = call_.outputs[0];
      const int source = call_.root == Call::kAnySource ? world_->constants.any_source : call_.root;
      group_.check(mpi.Irecv(out.data, count_of(out.size, unit), type, source, tag, group_.communicator_, &request_),
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
