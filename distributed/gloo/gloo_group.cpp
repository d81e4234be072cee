#include "gloo_group.h"

#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "distributed/fingerprint.h"
#include "distributed/gloo/gloo_links.h"
#include "distributed/reduce.h"

namespace mica::distributed {
namespace {

class GlooStore final : public gloo::rendezvous::Store {
 public:
  explicit GlooStore(const MeetingPlace& place) : place_(place) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    place_.set(key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = place_.get(key);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& each : keys) place_.get(each);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override { wait(keys); }

 private:
  const MeetingPlace& place_;
};

std::vector<Bytes> parts_of(const Bytes& whole, size_t n, size_t unit) {
  const size_t share = (whole.size / unit + n - 1) / n * unit;
  std::vector<Bytes> parts(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t begin = std::min(i * share, whole.size);
    parts[i] = {whole.data + begin, std::min(share, whole.size - begin)};
  }
  return parts;
}

}  // namespace

GlooGroup::GlooGroup(GlooOptions options, const MeetingPlace& place)
    : options_(std::move(options)), frames_(static_cast<size_t>(options_.size)) {
  gloo::transport::tcp::attr attributes;
  if (options_.interface.empty())
    attributes.hostname = options_.address;
  else
    attributes.iface = options_.interface;
  GlooStore store(place);
  try {
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    context_ = std::make_shared<gloo::rendezvous::Context>(options_.rank, options_.size);
    context_->setTimeout(milliseconds(options_.timeout));
    const std::set<int> before = tcp_sockets();
    context_->connectFullMesh(store, device);
    for (const int each : tcp_sockets()) {
      if (!before.contains(each)) limit_silence(each, options_.silence);
    }
  } catch (const std::exception& error) {
    throw BackendError("Gloo cannot connect the ranks of the group '" + options_.name + "': " + error.what());
  }
  watcher_ = std::thread([this] { watch(); });
}

GlooGroup::~GlooGroup() {
  stop_ = true;
  watcher_.join();
}

void GlooGroup::watch() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  std::string last;
  for (int ticks = 0; !stop_; ++ticks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const int peer = waiting_for_;
    std::string doing;
    {
      std::lock_guard lock(mutex_);
      doing = doing_;
    }
    if (peer < 0 || doing != last) {
      ticks = 0;
      last = doing;
    } else if (ticks == 100) {
      std::fprintf(stderr, "mica.distributed: rank %d has waited 10 s for rank %d in %s\n", options_.rank, peer,
                   doing.c_str());
    }
  }
}

std::string GlooGroup::describe(const Call& call) const { return distributed::describe(call, number_, options_.name); }

void GlooGroup::abort(const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (!why_.empty()) return;
    why_ = why;
  }
  // Ranks that wait for this one notice that the connection is gone, and close theirs.
  try {
    context_->closeConnections();
  } catch (const std::exception&) {
  }
}

void GlooGroup::fail(const std::string& why) {
  abort(why);
  std::lock_guard lock(mutex_);
  throw BackendError(why_);
}

void GlooGroup::leave() { stop_ = true; }

// Gives every rank its bytes and takes those of every rank; this rank's own are copied.
void GlooGroup::exchange(const std::vector<Bytes>& to, const std::vector<Bytes>& from, Call& call) {
  const uint64_t slot = ++slot_;
  const size_t own = static_cast<size_t>(options_.rank), n = static_cast<size_t>(options_.size);
  std::vector<Buffer> receiving(n), sending(n);
  int at = -1;
  try {
    for (size_t rank = 0; rank < n; ++rank) {
      if (rank == own || from[rank].size == 0) continue;
      receiving[rank] = context_->createUnboundBuffer(from[rank].data, from[rank].size);
      receiving[rank]->recv(static_cast<int>(rank), slot);
    }
    for (size_t rank = 0; rank < n; ++rank) {
      if (rank == own || to[rank].size == 0) continue;
      sending[rank] = context_->createUnboundBuffer(to[rank].data, to[rank].size);
      sending[rank]->send(static_cast<int>(rank), slot);
    }
    if (from[own].size && from[own].data != to[own].data) std::memmove(from[own].data, to[own].data, from[own].size);
    for (size_t rank = 0; rank < n; ++rank) {
      at = static_cast<int>(rank);
      waiting_for_ = at;
      if (receiving[rank] && !receiving[rank]->waitRecv(milliseconds(call.timeout)))
        throw std::runtime_error("aborted");
      if (sending[rank] && !sending[rank]->waitSend(milliseconds(call.timeout))) throw std::runtime_error("aborted");
    }
    waiting_for_ = -1;
  } catch (const std::exception& error) {
    waiting_for_ = -1;
    fail(describe(call) + " cannot end: " + (at >= 0 ? "rank " + std::to_string(at) : std::string("a rank")) +
         " is lost, or did not come in time, or another rank has given up: " + error.what() +
         of_silence(error.what(), options_.silence));
  }
}

void GlooGroup::compare(Call& call, const Bytes& small) {
  ++number_;
  Frame& mine = frames_[static_cast<size_t>(options_.rank)];
  mine.number = number_;
  mine.hash = fingerprint(call);
  const std::string text = describe(call);
  {
    std::lock_guard lock(mutex_);
    if (!why_.empty()) throw BackendError(why_);
    doing_ = text;
  }
  std::snprintf(mine.text, sizeof mine.text, "%s", text.c_str());
  if (small.size) std::memcpy(mine.data, small.data, small.size);
  const auto bytes = [](Frame& frame) { return Bytes{reinterpret_cast<std::byte*>(&frame), sizeof(Frame)}; };
  std::vector<Bytes> to(frames_.size(), bytes(mine)), from;
  for (Frame& each : frames_) from.push_back(bytes(each));
  exchange(to, from, call);
  for (const Frame& each : frames_) {
    if (each.number == number_ && each.hash == mine.hash) continue;
    std::string all = "ranks do not agree about what they call:";
    for (size_t rank = 0; rank < frames_.size(); ++rank) {
      frames_[rank].text[sizeof frames_[rank].text - 1] = 0;
      all += "\n  rank " + std::to_string(rank) + ": " + frames_[rank].text;
    }
    fail(all);
  }
}

void GlooGroup::run(Call& call) {
  const size_t n = static_cast<size_t>(options_.size), own = static_cast<size_t>(options_.rank);
  const bool root = call.root == options_.rank;
  const std::vector<Bytes> nothing(n);
  if (call.kind == Kind::AllReduce || call.kind == Kind::Reduce) return all_reduce(call);
  compare(call, {});
  switch (call.kind) {
    case Kind::Broadcast: {
      std::vector<Bytes> to(n), from(n);
      if (root)
        to.assign(n, call.inputs[0]);
      else
        from[static_cast<size_t>(call.root)] = call.outputs[0];
      to[own] = {};
      return exchange(to, from, call);
    }
    case Kind::AllGather:
      return exchange(std::vector<Bytes>(n, call.inputs[0]), call.outputs, call);
    case Kind::Gather: {
      std::vector<Bytes> to(n);
      to[static_cast<size_t>(call.root)] = call.inputs[0];
      return exchange(to, root ? call.outputs : nothing, call);
    }
    case Kind::Scatter: {
      std::vector<Bytes> from(n);
      from[static_cast<size_t>(call.root)] = call.outputs[0];
      return exchange(root ? call.inputs : nothing, from, call);
    }
    case Kind::ReduceScatter:
      return reduce_scatter(call);
    case Kind::AllToAll:
      return all_to_all(call);
    case Kind::Barrier:
      return;  // the comparison of calls is a barrier itself
    default:
      throw InvalidCall("a message is posted, not run");
  }
}

void GlooGroup::all_reduce(Call& call) {
  const Bytes in = call.inputs[0];
  const size_t n = static_cast<size_t>(options_.size), own = static_cast<size_t>(options_.rank);
  const bool wanted = call.kind == Kind::AllReduce || call.root == options_.rank;
  std::vector<const std::byte*> terms(n);
  if (in.size <= Frame::kInline) {
    compare(call, in);
    for (size_t rank = 0; rank < n; ++rank) terms[rank] = frames_[rank].data;
    if (wanted)
      reduce(call.dtype, call.reduction, call.factor, terms, call.outputs[0].data, in.size / call.element_size());
    return;
  }
  compare(call, {});
  const std::vector<Bytes> parts = parts_of(in, n, call.element_size());
  std::vector<std::byte> space(parts[own].size * n);
  std::vector<Bytes> taken(n);
  for (size_t rank = 0; rank < n; ++rank) {
    taken[rank] = {space.data() + rank * parts[own].size, parts[own].size};
    terms[rank] = taken[rank].data;
  }
  exchange(parts, taken, call);
  std::byte* result = wanted ? parts_of(call.outputs[0], n, call.element_size())[own].data : taken[own].data;
  reduce(call.dtype, call.reduction, call.factor, terms, result, parts[own].size / call.element_size());
  const Bytes mine{result, parts[own].size};
  if (call.kind == Kind::AllReduce) {
    exchange(std::vector<Bytes>(n, mine), parts_of(call.outputs[0], n, call.element_size()), call);
    return;
  }
  std::vector<Bytes> to(n);
  to[static_cast<size_t>(call.root)] = mine;
  exchange(to, wanted ? parts_of(call.outputs[0], n, call.element_size()) : std::vector<Bytes>(n), call);
}

void GlooGroup::reduce_scatter(Call& call) {
  const size_t n = static_cast<size_t>(options_.size), size = call.outputs[0].size;
  std::vector<std::byte> space(size * n);
  std::vector<Bytes> taken(n);
  std::vector<const std::byte*> terms(n);
  for (size_t rank = 0; rank < n; ++rank) {
    taken[rank] = {space.data() + rank * size, size};
    terms[rank] = taken[rank].data;
  }
  exchange(call.inputs, taken, call);
  reduce(call.dtype, call.reduction, call.factor, terms, call.outputs[0].data, size / call.element_size());
}

void GlooGroup::all_to_all(Call& call) {
  const size_t n = static_cast<size_t>(options_.size);
  std::vector<uint64_t> given(n), expected(n);
  std::vector<Bytes> to, from;
  for (size_t rank = 0; rank < n; ++rank) {
    given[rank] = call.inputs[rank].size;
    to.push_back({reinterpret_cast<std::byte*>(&given[rank]), sizeof(uint64_t)});
    from.push_back({reinterpret_cast<std::byte*>(&expected[rank]), sizeof(uint64_t)});
  }
  exchange(to, from, call);
  for (size_t rank = 0; rank < n; ++rank) {
    if (expected[rank] == call.outputs[rank].size) continue;
    fail("ranks do not agree about " + describe(call) + ": rank " + std::to_string(rank) + " sends " +
         std::to_string(expected[rank]) + " bytes to rank " + std::to_string(options_.rank) + ", which expects " +
         std::to_string(call.outputs[rank].size));
  }
  exchange(call.inputs, call.outputs, call);
}

}  // namespace mica::distributed

extern "C" __attribute__((visibility("default"))) mica::distributed::Backend* mica_gloo_group(
    const mica::distributed::GlooOptions& options, const mica::distributed::MeetingPlace& place) {
  return new mica::distributed::GlooGroup(options, place);
}
