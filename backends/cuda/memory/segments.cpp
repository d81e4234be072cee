// Memory from the device and back to it: pieces of cudaMalloc, or ranges of addresses that grow where they stand.
#include <algorithm>

#include "backends/cuda/memory/device_allocator.h"
#include "backends/cuda/memory/settings.h"
#include "backends/cuda/memory/sizes.h"

namespace mica::cuda {

namespace {

// Memory is asked for outside of a capture that is under way: it is not part of the graph.
class OutsideOfCapture {
 public:
  explicit OutsideOfCapture(bool capturing) : capturing_(capturing) {
    if (capturing_) cudaThreadExchangeStreamCaptureMode(&mode_);
  }
  OutsideOfCapture(const OutsideOfCapture&) = delete;
  ~OutsideOfCapture() {
    if (capturing_) cudaThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool capturing_;
};

}  // namespace

bool DeviceAllocator::may_reserve(size_t bytes) const {
  return limit_ == 0 || reserved_.of[2].current + static_cast<int64_t>(bytes) <= limit_;
}

void DeviceAllocator::note_reserved(bool small, int64_t bytes) {
  if (bytes > 0) {
    reserved_.add(small, bytes);
    ++device_allocations_;
  } else {
    reserved_.take(small, -bytes);
    ++device_frees_;
  }
}

Block* DeviceAllocator::grow(size_t size, const void* owner) {
  // Blocks that wait in quick lists may be what is missing, once they are joined.
  flush_quick();
  if (Block* block = take(size, owner)) return block;
  const bool expandable = allocator_settings().expandable_segments.load(std::memory_order_relaxed);
  auto ask = [&] { return expandable ? expand_segment(size, owner) : new_segment(size, owner); };
  if (Block* block = ask()) return block;
  if (captures_.empty()) {
    ++retries_;
    collect(true);
    trim();
    if (Block* block = take(size, owner)) return block;
    if (Block* block = ask()) return block;
  }
  fail_full(size);
}

Block* DeviceAllocator::new_segment(size_t size, const void* owner) {
  const bool small = size <= kSmall;
  size_t bytes = small ? kSmallSegment : size < kLarge ? kLargeSegment : round_up(size, kSegmentUnit);
  if (!allocator_settings().caching.load(std::memory_order_relaxed)) bytes = size;
  if (!may_reserve(bytes)) return nullptr;
  void* data = nullptr;
  {
    OutsideOfCapture outside(!captures_.empty());
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(status, "cudaMalloc");
  }
  note_reserved(small, static_cast<int64_t>(bytes));
  segment_count_.add(small, 1);
  auto& segment = segments_.emplace_back(new Segment{owner, small, kept_.contains(owner), bytes, nullptr, nullptr});
  segment->first = new Block{static_cast<char*>(data), bytes, segment.get(), BlockState::Free};
  return segment->first;
}

// Finds a run of neighbouring free blocks and holes that is long enough; if there is none, makes the segment longer.
// Its holes get memory.
Block* DeviceAllocator::expand_segment(size_t size, const void* owner) {
  const bool small = size <= kSmall;
  Segment* segment = nullptr;
  for (const auto& s : segments_)
    if (s->range && s->owner == owner && s->small == small) segment = s.get();
  OutsideOfCapture outside(!captures_.empty());
  if (!segment) {
    // Room for all memory of the device, and for what lies between blocks that stay.
    auto range = std::make_unique<AddressRange>(index_, small ? kSmallSegment : kLargeSegment,
                                                properties(index_).totalGlobalMem / 8 * 9);
    segment =
        segments_.emplace_back(new Segment{owner, small, kept_.contains(owner), 0, nullptr, std::move(range)}).get();
    segment_count_.add(small, 1);
  }
  AddressRange& range = *segment->range;
  Block *first = nullptr, *end = nullptr;
  size_t total = 0;
  for (Block* b = segment->first; b && total < size; b = b->after) {
    end = b;
    if (b->state == BlockState::Free || b->state == BlockState::Hole) {
      if (!first) first = b;
      total += b->size;
    } else {
      first = nullptr;
      total = 0;
    }
  }
  if (total < size) {
    const size_t more = round_up(size - total, range.page());
    if (segment->size + more > range.bytes()) return nullptr;
    auto* added = new Block{range.base() + segment->size, more, segment, BlockState::Hole, end, nullptr};
    (end ? end->after : segment->first) = added;
    segment->size += more;
    if (!first) first = added;
  }
  size_t have = 0;
  for (Block* b = first; have < size; b = b->after) {
    if (b->state == BlockState::Hole) {
      const size_t bytes = round_up(std::min(b->size, size - have), range.page());
      const auto offset = static_cast<size_t>(b->data - range.base());
      if (!may_reserve(bytes) || !range.map(offset, offset + bytes)) return nullptr;
      note_reserved(small, static_cast<int64_t>(bytes));
      if (bytes < b->size) {
        auto* rest = new Block{b->data + bytes, b->size - bytes, segment, BlockState::Hole, b, b->after};
        if (b->after) b->after->before = rest;
        b->after = rest;
        b->size = bytes;
      }
      b->state = BlockState::Free;
      pool(small).insert(b);
    }
    have += b->size;
  }
  pool(small).erase(first);
  while (first->size < size) {
    pool(small).erase(first->after);
    join(first, first->after);
  }
  return first;
}

void DeviceAllocator::trim() {
  flush_quick();
  // Ranges lose their memory at once: nothing may be under way.
  for (const auto& segment : segments_)
    if (segment->range) {
      cudaDeviceSynchronize();
      break;
    }
  for (size_t i = 0; i < segments_.size();) {
    Segment& segment = *segments_[i];
    if (kept_.contains(segment.owner)) {
      ++i;
      continue;
    }
    if (segment.range) trim_range(segment);
    Block* only = segment.first;
    if (segment.range ? only == nullptr : only->state == BlockState::Free && !only->after) {
      if (only) {
        pool(segment.small).erase(only);
        cudaFree(only->data);  // waits for what is queued
        note_reserved(segment.small, -static_cast<int64_t>(only->size));
        delete only;
      }
      segment_count_.take(segment.small, 1);
      segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

// Whole pages of free blocks become holes; what is at the end of the segment goes.
void DeviceAllocator::trim_range(Segment& segment) {
  AddressRange& range = *segment.range;
  auto& blocks = pool(segment.small);
  auto cut = [&](Block* b, size_t size) {  // b keeps its first bytes
    if (size == b->size) return;
    auto* rest = new Block{b->data + size, b->size - size, &segment, b->state, b, b->after};
    if (b->after) b->after->before = rest;
    b->after = rest;
    b->size = size;
  };
  for (Block* b = segment.first; b; b = b->after) {
    if (b->state != BlockState::Free) continue;
    const auto offset = static_cast<size_t>(b->data - range.base());
    const size_t begin = round_up(offset, range.page()), end = (offset + b->size) / range.page() * range.page();
    if (begin >= end) continue;
    blocks.erase(b);
    if (begin > offset) {
      cut(b, begin - offset);
      blocks.insert(b);
      b = b->after;
    }
    cut(b, end - begin);
    if (Block* rest = b->after; rest && rest->state == BlockState::Free) blocks.insert(rest);
    range.unmap(begin, end);
    note_reserved(segment.small, -static_cast<int64_t>(end - begin));
    b->state = BlockState::Hole;
  }
  Block* last = nullptr;
  for (Block* b = segment.first; b; b = b->after) {
    while (b->state == BlockState::Hole && b->after && b->after->state == BlockState::Hole) join(b, b->after);
    last = b;
  }
  if (!last || last->state != BlockState::Hole) return;
  segment.size -= last->size;
  (last->before ? last->before->after : segment.first) = nullptr;
  delete last;
}

}  // namespace mica::cuda
