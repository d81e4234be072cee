#include "segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mica::distributed {
namespace {

constexpr uint64_t kMagic = 0x6d69636164697376;
constexpr size_t kPage = 4096;

size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

struct Layout {
  size_t members, outboxes, slots, rings, end, ring_stride;
  Layout(size_t n, size_t outbox_bytes, size_t ring_bytes) {
    members = pages(sizeof(Header));
    outboxes = members + pages(n * sizeof(Member));
    slots = outboxes + n * Segment::kOutboxes * outbox_bytes;
    rings = slots + (n == 2 ? n * Segment::kSlots * Segment::kSlotBytes : 0);
    ring_stride = sizeof(Ring) + ring_bytes;
    end = pages(rings + n * n * ring_stride);
  }
};

Layout layout(const Header& header) { return {header.size, header.outbox_bytes, header.ring_bytes}; }

[[noreturn]] void fail(const std::string& what) { throw BackendError(what + ": " + std::strerror(errno)); }

std::byte* map(int descriptor, size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (base == MAP_FAILED) {
    close(descriptor);
    fail("cannot map the memory that ranks of this host share");
  }
  return static_cast<std::byte*>(base);
}

}  // namespace

Segment::Segment(std::byte* base, size_t bytes, int descriptor) : base_(base), bytes_(bytes), descriptor_(descriptor) {}

Segment::Segment(Segment&& other) noexcept : base_(other.base_), bytes_(other.bytes_), descriptor_(other.descriptor_) {
  other.base_ = nullptr;
  other.descriptor_ = -1;
}

Segment::~Segment() {
  close_descriptor();
  if (base_) munmap(base_, bytes_);
}

void Segment::close_descriptor() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

Segment Segment::create(int size) {
  // A round of 2 MiB fits the shared cache. With 512 KiB, 40 MB took four times as many rounds and three times the
  // processor time. Pages take memory only when they are first written.
  const size_t outbox_bytes = size <= 16 ? size_t{1} << 21 : size_t{1} << 19;
  const size_t ring_bytes = size <= 16 ? size_t{1} << 18 : size_t{1} << 16;
  const size_t bytes = Layout(static_cast<size_t>(size), outbox_bytes, ring_bytes).end;
  const int descriptor = memfd_create("mica-distributed", MFD_CLOEXEC);
  if (descriptor < 0) fail("cannot make the memory that ranks of this host share");
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    close(descriptor);
    fail("cannot size the memory that ranks of this host share");
  }
  Segment made(map(descriptor, bytes), bytes, descriptor);
  Header& header = made.header();
  header.size = static_cast<uint32_t>(size);
  header.outbox_bytes = static_cast<uint32_t>(outbox_bytes);
  header.ring_bytes = static_cast<uint32_t>(ring_bytes);
  header.magic = kMagic;
  return made;
}

Segment Segment::open(pid_t process, int descriptor) {
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  const int own = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) fail("cannot open the shared memory of process " + std::to_string(process));
  struct stat status;
  if (fstat(own, &status) != 0 || static_cast<size_t>(status.st_size) < sizeof(Header)) {
    close(own);
    throw BackendError(path + " is not the memory that ranks of this host share");
  }
  const size_t bytes = static_cast<size_t>(status.st_size);
  Segment opened(map(own, bytes), bytes, own);
  if (opened.header().magic != kMagic || layout(opened.header()).end != bytes) {
    throw BackendError(path + " is not the memory that ranks of this host share");
  }
  opened.close_descriptor();
  return opened;
}

Member& Segment::member(int rank) const { return reinterpret_cast<Member*>(base_ + layout(header()).members)[rank]; }

std::byte* Segment::outbox(int rank, uint32_t round) const {
  const size_t index = static_cast<size_t>(rank) * kOutboxes + round % kOutboxes;
  return base_ + layout(header()).outboxes + index * outbox_bytes();
}

std::byte* Segment::slot(int rank, uint32_t index) const {
  return base_ + layout(header()).slots + (static_cast<size_t>(rank) * kSlots + index) * kSlotBytes;
}

Ring& Segment::ring(int from, int to) const {
  const Layout parts = layout(header());
  const size_t index = static_cast<size_t>(from) * header().size + static_cast<size_t>(to);
  return *reinterpret_cast<Ring*>(base_ + parts.rings + index * parts.ring_stride);
}

std::byte* Segment::ring_data(int from, int to) const {
  return reinterpret_cast<std::byte*>(&ring(from, to)) + sizeof(Ring);
}

}  // namespace mica::distributed
