#include "mica/mapped_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "mica/error.h"

namespace mica {

namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// A mapping of no bytes is not allowed, so an empty storage maps one.
size_t mapped_bytes(size_t nbytes) { return nbytes ? nbytes : 1; }

void* map(int fd, size_t nbytes, bool shared) {
  void* data = mmap(nullptr, mapped_bytes(nbytes), PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, fd, 0);
  MICA_CHECK(data != MAP_FAILED, "unable to mmap ", nbytes, " bytes: ", std::strerror(errno));
  return data;
}

void unmap_shared(void* context, void* data, size_t nbytes) {
  munmap(data, mapped_bytes(nbytes));
  delete static_cast<Descriptor*>(context);
}

void unmap_file(void*, void* data, size_t nbytes) { munmap(data, mapped_bytes(nbytes)); }

}  // namespace

bool in_shared_memory(const StorageImpl& storage) { return storage.deleter() == unmap_shared; }

void move_to_shared_memory(StorageImpl& storage) {
  if (in_shared_memory(storage)) return;
  MICA_CHECK(storage.device().is_cpu(), "only memory of the CPU can be moved to shared memory, not of ",
             storage.device());
  auto descriptor = std::make_unique<Descriptor>(memfd_create("mica", MFD_CLOEXEC));
  MICA_CHECK(
      descriptor->get() >= 0 && ftruncate(descriptor->get(), static_cast<off_t>(mapped_bytes(storage.nbytes()))) == 0,
      "unable to make shared memory of ", storage.nbytes(), " bytes: ", std::strerror(errno));
  void* data = map(descriptor->get(), storage.nbytes(), true);
  storage.move_to(data, unmap_shared, descriptor.release());
}

int shared_memory_descriptor(const StorageImpl& storage) {
  MICA_CHECK(in_shared_memory(storage), "the storage is not in shared memory; call share_memory_() first");
  return static_cast<Descriptor*>(storage.context())->get();
}

Storage open_shared_memory(int fd, size_t nbytes) {
  auto descriptor = std::make_unique<Descriptor>(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  struct stat status {};
  MICA_CHECK(descriptor->get() >= 0 && fstat(descriptor->get(), &status) == 0,
             "unable to open shared memory: ", std::strerror(errno));
  MICA_CHECK(static_cast<size_t>(status.st_size) >= nbytes, "the shared memory has ", status.st_size, " bytes, not ",
             nbytes);
  void* data = map(descriptor->get(), nbytes, true);
  return StorageImpl::wrap(data, nbytes, kCPU, unmap_shared, descriptor.release());
}

Storage map_file(const std::string& path, size_t nbytes, bool shared) {
  Descriptor file(open(path.c_str(), (shared ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0666));
  MICA_CHECK(file.get() >= 0, "unable to open file <", path, "> in ", shared ? "read-write" : "read-only",
             " mode: ", std::strerror(errno));
  struct stat status {};
  MICA_CHECK(fstat(file.get(), &status) == 0, "unable to stat the file <", path, ">: ", std::strerror(errno));
  if (nbytes > static_cast<size_t>(status.st_size)) {
    MICA_CHECK(shared, "file <", path, "> size <", status.st_size, "> is smaller than the required mapping size <",
               nbytes, ">");
    MICA_CHECK(ftruncate(file.get(), static_cast<off_t>(nbytes)) == 0, "unable to resize file <", path,
               "> to the right size: ", std::strerror(errno));
  }
  return StorageImpl::wrap(map(file.get(), nbytes, shared), nbytes, kCPU, unmap_file, nullptr);
}

}  // namespace mica
