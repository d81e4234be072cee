#include "size_classes.h"

#include <algorithm>
#include <limits>

namespace mica::detail {
namespace {

constexpr size_t kSmallestSpan = size_t{64} << 10;
// Fresh blocks are cut a page's worth at a time: a block that nobody asked for stays untouched.
constexpr size_t kFreshBytes = 4096;

}  // namespace

bool SpanHeap::refill(int c, uint32_t wanted, FreeList& list, bool& fresh) {
  Class& blocks = classes_[c];
  fresh = blocks.free.count == 0;
  if (!fresh) {
    for (uint32_t n = std::min(wanted, blocks.free.count); n > 0; --n) list.push(blocks.free.pop());
    blocks.least_free = std::min(blocks.least_free, blocks.free.count);
    return true;
  }
  if (blocks.fresh == blocks.fresh_end && !add_span(c)) return false;
  const size_t size = class_size(c);
  for (size_t cut = 0; blocks.fresh != blocks.fresh_end && (cut == 0 || cut + size <= kFreshBytes); cut += size) {
    list.push(blocks.fresh);
    blocks.fresh += size;
  }
  return true;
}

void SpanHeap::take_back(int c, FreeList& list, uint32_t count) {
  for (; count > 0; --count) classes_[c].free.push(list.pop());
  classes_[c].looks_left = 2;
}

// Every span of a class doubles its memory, up to the size of a huge page.
bool SpanHeap::add_span(int c) {
  Class& blocks = classes_[c];
  const size_t size = class_size(c);
  const size_t wanted = kSmallestSpan << std::min<size_t>(blocks.spans.size(), 5);
  const size_t nbytes = std::clamp(round_up(size, kSmallestSpan), wanted, kHugePage);
  auto* pages = static_cast<char*>(map_pages(nbytes));
  if (!pages) return false;
  blocks.spans.push_back({pages, nbytes});
  blocks.fresh = pages;
  blocks.fresh_end = pages + nbytes / size * size;
  return true;
}

size_t SpanHeap::trim() {
  size_t nbytes = 0;
  for (int c = 0; c < kClasses; ++c) nbytes += trim(c, std::numeric_limits<size_t>::max());
  return nbytes;
}

size_t SpanHeap::return_unused(int c) {
  Class& blocks = classes_[c];
  const size_t unused = blocks.least_free * class_size(c);
  const size_t nbytes = unused >= kWorthReturning ? trim(c, unused) : 0;
  blocks.least_free = blocks.free.count;
  --blocks.looks_left;
  return nbytes;
}

size_t SpanHeap::trim(int c, size_t most_bytes) {
  Class& blocks = classes_[c];
  if (blocks.spans.empty()) return 0;
  std::sort(blocks.spans.begin(), blocks.spans.end(), [](Span a, Span b) { return a.pages < b.pages; });
  const auto span_of = [&](const void* block) {
    const auto after = std::upper_bound(blocks.spans.begin(), blocks.spans.end(), block,
                                        [](const void* p, const Span& span) { return p < span.pages; });
    return static_cast<size_t>(after - blocks.spans.begin()) - 1;
  };

  const size_t size = class_size(c);
  std::vector<size_t> unused(blocks.spans.size());
  for (const FreeList::Node* node = blocks.free.head; node; node = node->next) ++unused[span_of(node)];
  if (blocks.fresh != blocks.fresh_end) {
    unused[span_of(blocks.fresh)] += static_cast<size_t>(blocks.fresh_end - blocks.fresh) / size;
  }
  std::vector<bool> goes(blocks.spans.size());
  size_t nbytes = 0;
  for (size_t i = 0; i < blocks.spans.size(); ++i) {
    const bool is_empty = unused[i] == blocks.spans[i].nbytes / size;
    goes[i] = is_empty && blocks.spans[i].nbytes <= most_bytes - nbytes;
    if (goes[i]) nbytes += blocks.spans[i].nbytes;
  }
  if (nbytes == 0) return 0;

  FreeList kept;
  while (blocks.free.count > 0) {
    void* block = blocks.free.pop();
    if (!goes[span_of(block)]) kept.push(block);
  }
  blocks.free = kept;
  if (blocks.fresh != blocks.fresh_end && goes[span_of(blocks.fresh)]) blocks.fresh = blocks.fresh_end = nullptr;

  std::vector<Span> live;
  for (size_t i = 0; i < blocks.spans.size(); ++i) {
    if (goes[i]) {
      unmap_pages(blocks.spans[i].pages, blocks.spans[i].nbytes);
    } else {
      live.push_back(blocks.spans[i]);
    }
  }
  blocks.spans = std::move(live);
  return nbytes;
}

}  // namespace mica::detail
