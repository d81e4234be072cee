#include "large_blocks.h"

#include <algorithm>

#include "mica/allocator.h"
#include "mica/error.h"
#include "system_memory.h"

namespace mica::detail {
namespace {

// Stands right before the memory that is handed out.
struct alignas(kCpuAlignment) Header {
  size_t mapped;
  uint64_t state;
};
constexpr uint64_t kInUse = 0x6d6963612075736eu;
constexpr uint64_t kCached = 0x6d69636120667265u;

constexpr size_t kGranule = size_t{64} << 10;
constexpr size_t kHugePageGranuleFrom = size_t{16} << 20;  // from here on a whole huge page is a small rounding
// How many bytes may stay cached beyond the difference between the largest use ever and the present use.
constexpr size_t kSpareBytes = size_t{256} << 20;
// For how many times the patience a returned block is remembered.
constexpr int kRegretted = 8;
constexpr size_t kMostReturned = 256;
// How many bytes are mapped before the system is asked again what it has left, and how many are left to it and to other
// processes.
constexpr size_t kUncheckedBytes = size_t{32} << 20;
constexpr size_t kMarginBytes = size_t{256} << 20;

Header* header_of(void* memory) { return static_cast<Header*>(memory) - 1; }

}  // namespace

size_t LargeBlocks::mapping_for(size_t nbytes) {
  const size_t wanted = nbytes + sizeof(Header);
  return round_up(wanted, wanted >= kHugePageGranuleFrom ? kHugePage : kGranule);
}

bool LargeBlocks::take_best_fit(size_t wanted, Block& found) {
  const auto by_size = [](const Block& b, size_t size) { return b.mapped < size; };
  auto fit = std::lower_bound(cached_.begin(), cached_.end(), wanted, by_size);
  if (fit == cached_.end() || fit->mapped - wanted > wanted / 4) return false;
  // Of equal blocks, the one that was freed last: its contents are the likeliest to be in a cache.
  fit = std::lower_bound(fit, cached_.end(), fit->mapped + 1, by_size) - 1;
  found = *fit;
  cached_.erase(fit);
  cached_bytes_ -= found.mapped;
  return true;
}

// Takes out so many blocks that the bytes held never exceed the largest use ever plus the spare bytes. Called under the
// mutex; the caller unmaps the blocks after it has released it.
std::vector<LargeBlocks::Block> LargeBlocks::evict_beyond_limit() {
  std::vector<Block> evicted;
  const size_t limit = kSpareBytes + std::max(peak_used_bytes_, used_bytes_) - used_bytes_;
  while (cached_bytes_ > limit) {
    const auto oldest = std::min_element(cached_.begin(), cached_.end(),
                                         [](const Block& a, const Block& b) { return a.freed_at < b.freed_at; });
    evicted.push_back(*oldest);
    cached_bytes_ -= oldest->mapped;
    cached_.erase(oldest);
  }
  return evicted;
}

std::vector<LargeBlocks::Block> LargeBlocks::evict_before(Time freed) {
  std::vector<Block> evicted;
  std::erase_if(cached_, [&](const Block& block) {
    if (block.freed_time > freed) return false;
    evicted.push_back(block);
    cached_bytes_ -= block.mapped;
    return true;
  });
  return evicted;
}

// Memory that was returned a short while ago is wanted again. The program's steps take that long, so blocks are kept
// for longer from now on.
void LargeBlocks::regret(size_t wanted, Time now) {
  const auto found = std::find_if(returned_.begin(), returned_.end(), [&](const Returned& r) {
    return r.mapped >= wanted && r.mapped - wanted <= wanted / 4 && now - r.time < kRegretted * patience_;
  });
  if (found == returned_.end()) return;
  returned_.erase(found);
  if (now - last_regret_ < patience_) return;  // the block belongs to the same step as the last one
  last_regret_ = now;
  patience_ = std::min(2 * patience_, kMostPatience);
}

std::optional<LargeBlocks::Time> LargeBlocks::return_unused(Time now) {
  std::vector<Block> evicted;
  std::optional<Time> next;
  {
    std::lock_guard lock(mutex_);
    evicted = evict_before(now - patience_);
    std::erase_if(returned_, [&](const Returned& r) { return now - r.time >= kRegretted * patience_; });
    for (const Block& block : evicted)
      if (returned_.size() < kMostReturned) returned_.push_back({block.mapped, now});
    if (now - last_regret_ > 2 * kRegretted * patience_ && patience_ > kLeastPatience) {
      patience_ /= 2;
      last_regret_ = now;
    }
    for (const Block& block : cached_)
      if (!next || block.freed_time + patience_ < *next) next = block.freed_time + patience_;
  }
  unmap(evicted);
  return next;
}

// Whether `mapped` bytes more would come near to what the system, or the control group, has left.
bool LargeBlocks::needs_room(size_t mapped) {
  const size_t unchecked = mapped_unchecked_.fetch_add(mapped, std::memory_order_relaxed) + mapped;
  if (unchecked < kUncheckedBytes) return false;
  mapped_unchecked_.store(0, std::memory_order_relaxed);
  const size_t available = available_memory();
  return available < mapped || available - mapped < std::min(total_memory() / 16, kMarginBytes);
}

size_t LargeBlocks::unmap(const std::vector<Block>& blocks) {
  size_t nbytes = 0;
  for (const Block& block : blocks) {
    unmap_pages(block.pages, block.mapped);
    nbytes += block.mapped;
  }
  return nbytes;
}

LargeBlocks::Allocation LargeBlocks::allocate(size_t nbytes) {
  Block block{nullptr, mapping_for(nbytes), 0, {}};
  bool reused, has_cached;
  std::vector<Block> evicted;
  {
    std::lock_guard lock(mutex_);
    reused = take_best_fit(block.mapped, block);
    used_bytes_ += block.mapped;
    if (!reused) {
      evicted = evict_beyond_limit();
      if (!returned_.empty()) regret(block.mapped, std::chrono::steady_clock::now());
    }
    has_cached = !cached_.empty();
  }
  unmap(evicted);
  if (!reused) {
    if (has_cached && needs_room(block.mapped)) trim();
    block.pages = map_pages(block.mapped);
    if (!block.pages && trim() > 0) block.pages = map_pages(block.mapped);
    if (!block.pages) {
      std::lock_guard lock(mutex_);
      used_bytes_ -= block.mapped;
      return {nullptr, false};
    }
  }
  Header* header = static_cast<Header*>(block.pages);
  *header = {block.mapped, kInUse};
  return {header + 1, reused};
}

void LargeBlocks::free(void* memory) {
  Header* header = header_of(memory);
  MICA_CHECK(header->state == kInUse, "cpu_free: this block is ",
             header->state == kCached ? "already free" : "not from cpu_allocate, or its header was overwritten");
  header->state = kCached;
  const Time now = std::chrono::steady_clock::now();
  std::vector<Block> evicted;
  {
    std::lock_guard lock(mutex_);
    const Block block{header, header->mapped, ++frees_, now};
    const auto after_equals = std::upper_bound(cached_.begin(), cached_.end(), block,
                                               [](const Block& a, const Block& b) { return a.mapped < b.mapped; });
    cached_.insert(after_equals, block);
    cached_bytes_ += block.mapped;
    peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes_);
    used_bytes_ -= block.mapped;
    evicted = evict_beyond_limit();
  }
  unmap(evicted);
}

size_t LargeBlocks::trim() {
  std::vector<Block> blocks;
  {
    std::lock_guard lock(mutex_);
    blocks.swap(cached_);
    cached_bytes_ = 0;
  }
  return unmap(blocks);
}

}  // namespace mica::detail
