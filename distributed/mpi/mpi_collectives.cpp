// The collectives of a group on MPI, as calls of MPI's own.
#include <algorithm>
#include <climits>
#include <cstring>

#include "distributed/reduce.h"
#include "mpi_group.h"

namespace mica::distributed {

int mpi_count(size_t bytes, size_t unit) {
  if (bytes / unit > INT_MAX) throw InvalidCall("MPI moves at most 2147483647 elements at once in this operation");
  return static_cast<int>(bytes / unit);
}

namespace {

constexpr size_t kPiece = size_t{1} << 30;  // the most elements of one call: MPI counts in ints

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
      starts.push_back(mpi_count(total, unit));
      counts.push_back(mpi_count(each.size, unit));
      total += each.size;
    }
    mpi_count(total, unit);
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

// The reduction that MPI computes: AVG is a sum that is divided afterwards, PREMUL_SUM a sum of terms that are
// multiplied before.
Reduction plain(Reduction reduction) {
  return reduction == Reduction::Avg || reduction == Reduction::PremulSum ? Reduction::Sum : reduction;
}

}  // namespace

template <typename Handle>
void MpiGroup<Handle>::run_collective(Call& call) {
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
              : world_->mpi.Allgatherv(in.data, mpi_count(in.size, unit), type, out.data, out.counts.data(),
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
  check(world_->mpi.Gatherv(call.root == rank_ ? copy.data() : in.data, mpi_count(in.size, unit), type, out.data,
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
                             mpi_count(out.size, unit), type, call.root, communicator_),
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

template void MpiGroup<void*>::run_collective(Call& call);
template void MpiGroup<int>::run_collective(Call& call);

}  // namespace mica::distributed
