#include "data/segments.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "mica/error.h"
#include "mica/core/fork.h"

namespace mica::data {

namespace {

constexpr size_t kSmallestSegment = size_t{64} << 10;
constexpr size_t kMostFreeBytes = size_t{64} << 20;  // memory that is kept for later allocations of other sizes

// Four sizes between powers of two, so that batches of almost equal sizes use the same segments.
size_t capacity_for(size_t nbytes) {
  if (nbytes <= kSmallestSegment) return kSmallestSegment;
  const size_t step = std::bit_floor(nbytes - 1) / 4;
  return (nbytes + step - 1) / step * step;
}

class Mapping {
 public:
  Mapping(int fd, size_t nbytes) : nbytes_(nbytes) {
    data_ = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MICA_CHECK(data_ != MAP_FAILED, "unable to mmap ", nbytes, " bytes of shared memory: ", std::strerror(errno));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { munmap(data_, nbytes_); }
  void* data() const { return data_; }
  size_t nbytes() const { return nbytes_; }

 private:
  void* data_;
  size_t nbytes_;
};

struct Segment {
  int fd = -1;
  std::unique_ptr<Mapping> mapping;
  uint32_t sent = 0;  // how often it was sent and not yet given back
  bool held = false;  // a storage of the sender holds it
  bool announced = false;
  uint64_t last_use = 0;
  Segment() = default;
  Segment(Segment&& o) noexcept
      : fd(std::exchange(o.fd, -1)),
        mapping(std::move(o.mapping)),
        sent(o.sent),
        held(o.held),
        announced(o.announced),
        last_use(o.last_use) {}
  ~Segment() {
    if (fd >= 0) close(fd);
  }
  bool is_free() const { return !held && sent == 0; }
};

}  // namespace

// ---- the sender

struct SegmentPool::State {
  std::mutex mutex;
  HeldOverFork over_fork{mutex, LockOrder::Segments};
  std::unordered_map<uint32_t, Segment> segments;
  std::vector<uint32_t> dropped;
  std::vector<uint32_t> just_announced;
  uint32_t next_id = 0;
  uint64_t clock = 0;

  // The caller holds the mutex.
  void drop_excess() {
    for (;;) {
      size_t free_bytes = 0;
      auto oldest = segments.end();
      for (auto it = segments.begin(); it != segments.end(); ++it) {
        if (!it->second.is_free()) continue;
        free_bytes += it->second.mapping->nbytes();
        if (oldest == segments.end() || it->second.last_use < oldest->second.last_use) oldest = it;
      }
      if (free_bytes <= kMostFreeBytes) return;
      if (oldest->second.announced) dropped.push_back(oldest->first);
      segments.erase(oldest);
    }
  }
};

namespace {

struct Sent {
  std::shared_ptr<SegmentPool::State> pool;
  uint32_t id;
};

void let_go_of_segment(void* context, void*, size_t) {
  const std::unique_ptr<Sent> sent(static_cast<Sent*>(context));
  const std::lock_guard lock(sent->pool->mutex);
  sent->pool->segments.at(sent->id).held = false;
}

}  // namespace

SegmentPool::SegmentPool() : state_(std::make_shared<State>()) {}

Storage SegmentPool::allocate(size_t nbytes) {
  const std::lock_guard lock(state_->mutex);
  const size_t capacity = capacity_for(nbytes);
  auto chosen = state_->segments.end();
  for (auto it = state_->segments.begin(); it != state_->segments.end(); ++it)
    if (it->second.is_free() && it->second.mapping->nbytes() == capacity &&
        (chosen == state_->segments.end() || it->second.last_use > chosen->second.last_use))
      chosen = it;
  if (chosen == state_->segments.end()) {
    state_->drop_excess();
    Segment segment;
    segment.fd = memfd_create("mica-batch", MFD_CLOEXEC);
    MICA_CHECK(segment.fd >= 0 && ftruncate(segment.fd, static_cast<off_t>(capacity)) == 0,
               "unable to make shared memory of ", capacity, " bytes: ", std::strerror(errno));
    segment.mapping = std::make_unique<Mapping>(segment.fd, capacity);
    chosen = state_->segments.emplace(state_->next_id++, std::move(segment)).first;
  }
  Segment& segment = chosen->second;
  segment.held = true;
  segment.last_use = ++state_->clock;
  return StorageImpl::wrap(segment.mapping->data(), nbytes, kCPU, let_go_of_segment, new Sent{state_, chosen->first});
}

std::optional<SegmentPool::Handle> SegmentPool::send(const StorageImpl& storage) {
  if (storage.deleter() != let_go_of_segment) return std::nullopt;
  const auto* sent = static_cast<const Sent*>(storage.context());
  if (sent->pool != state_) return std::nullopt;
  const std::lock_guard lock(state_->mutex);
  Segment& segment = state_->segments.at(sent->id);
  ++segment.sent;
  Handle handle{sent->id, segment.mapping->nbytes(), -1};
  if (!std::exchange(segment.announced, true)) {
    handle.fd = segment.fd;
    state_->just_announced.push_back(sent->id);
  }
  return handle;
}

void SegmentPool::close_descriptors() {
  const std::lock_guard lock(state_->mutex);
  for (const uint32_t id : std::exchange(state_->just_announced, {})) {
    const auto found = state_->segments.find(id);
    if (found != state_->segments.end()) close(std::exchange(found->second.fd, -1));
  }
}

void SegmentPool::give_back(uint32_t id) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->segments.find(id);
  if (found != state_->segments.end() && found->second.sent > 0) --found->second.sent;
}

void SegmentPool::take_back(uint32_t id, bool announced) {
  give_back(id);
  if (!announced) return;
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->segments.find(id);
  if (found != state_->segments.end()) found->second.announced = false;
  std::erase(state_->just_announced, id);
}

std::vector<uint32_t> SegmentPool::take_dropped() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->dropped, {});
}

// ---- the receiver

struct SegmentViews::State {
  std::mutex mutex;
  HeldOverFork over_fork{mutex, LockOrder::Segments};
  std::unordered_map<uint32_t, std::shared_ptr<Mapping>> mappings;
  std::vector<uint32_t> returned;
};

namespace {

struct Received {
  std::shared_ptr<SegmentViews::State> views;
  std::shared_ptr<Mapping> mapping;
  uint32_t id;
};

void return_segment(void* context, void*, size_t) {
  const std::unique_ptr<Received> received(static_cast<Received*>(context));
  const std::lock_guard lock(received->views->mutex);
  received->views->returned.push_back(received->id);
}

}  // namespace

SegmentViews::SegmentViews() : state_(std::make_shared<State>()) {}

void SegmentViews::add(uint32_t id, int fd, size_t capacity) {
  struct stat status {};
  MICA_CHECK(fstat(fd, &status) == 0 && static_cast<size_t>(status.st_size) >= capacity,
             "the shared memory is smaller than ", capacity, " bytes");
  auto mapping = std::make_shared<Mapping>(fd, capacity);
  const std::lock_guard lock(state_->mutex);
  state_->mappings[id] = std::move(mapping);
}

Storage SegmentViews::open(uint32_t id, size_t nbytes) {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->mappings.find(id);
  MICA_CHECK(found != state_->mappings.end() && nbytes <= found->second->nbytes(), "no shared segment ", id, " of ",
             nbytes, " bytes");
  void* data = found->second->data();
  return StorageImpl::wrap(data, nbytes, kCPU, return_segment, new Received{state_, found->second, id});
}

void SegmentViews::forget(uint32_t id) {
  std::shared_ptr<Mapping> last;
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->mappings.find(id);
  if (found == state_->mappings.end()) return;
  last = std::move(found->second);
  state_->mappings.erase(found);
}

std::vector<uint32_t> SegmentViews::take_returned() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->returned, {});
}

}  // namespace mica::data
