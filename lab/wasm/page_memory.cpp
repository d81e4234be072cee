// Memory of a page: what the allocator calls pages is aligned memory of the one heap. Takes the place of
// system_memory.cpp, memory_limits.cpp and mapped_memory.cpp of src/core; nothing is shared with other processes.
#include <cstdlib>
#include <cstring>

#include "core/memory_limits.h"
#include "core/system_memory.h"
#include "mica/error.h"
#include "mica/mapped_memory.h"

namespace mica {

namespace detail {

namespace {
constexpr size_t kPage = 65536;            // of WebAssembly
constexpr size_t kMost = size_t{2} << 30;  // what emscripten lets the heap grow to
int64_t mapped = 0, peak = 0;
}  // namespace

void* map_pages(size_t nbytes) {
  const size_t whole = round_up(nbytes, kPage);
  void* pages = whole < nbytes || whole > kMost ? nullptr : std::aligned_alloc(kPage, whole);
  if (!pages) return nullptr;
  std::memset(pages, 0, nbytes);
  mapped += static_cast<int64_t>(nbytes);
  peak = mapped > peak ? mapped : peak;
  return pages;
}
void unmap_pages(void* pages, size_t nbytes) {
  std::free(pages);
  mapped -= static_cast<int64_t>(nbytes);
}
size_t total_memory() { return kMost; }
size_t available_memory() { return kMost - static_cast<size_t>(mapped); }
MappedBytes mapped_bytes() { return {mapped, peak}; }
void reset_mapped_peak() { peak = mapped; }

const std::vector<MemoryGroup>& memory_groups() {
  static const std::vector<MemoryGroup> none;
  return none;
}

}  // namespace detail

bool in_shared_memory(const StorageImpl&) { return false; }
void move_to_shared_memory(StorageImpl&) { fail(ErrorKind::NotImplemented, "a page has no memory to share"); }
int shared_memory_descriptor(const StorageImpl&) { fail(ErrorKind::NotImplemented, "a page has no memory to share"); }
Storage open_shared_memory(int, size_t) { fail(ErrorKind::NotImplemented, "a page has no memory to share"); }
Storage map_file(const std::string&, size_t, bool) { fail(ErrorKind::NotImplemented, "a page has no files"); }

}  // namespace mica
