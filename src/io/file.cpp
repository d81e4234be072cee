#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>

#include "mica/error.h"

namespace mica::io {

namespace {

// One call moves less than 2 GiB.
constexpr size_t kLargestTransfer = size_t{1} << 30;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// The path to which symbolic links lead, or the path itself where they lead nowhere.
std::string link_target(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) ? resolved : path;
}

std::string random_suffix() {
  std::random_device entropy;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", entropy(), entropy());
  return text;
}

}  // namespace

void Sink::skip(size_t nbytes) {
  const std::string zeros(std::min<size_t>(nbytes, 1 << 20), '\0');
  for (size_t part; nbytes; nbytes -= part) {
    part = std::min(nbytes, zeros.size());
    write(zeros.data(), part);
  }
}

void AtomicFile::fail_to(const char* what) const {
  fail(cat("unable to ", what, " file <", path_, ">: ", std::strerror(errno)));
}

AtomicFile::AtomicFile(const std::string& path) : path_(link_target(path)) {
  struct stat status {};
  const bool exists = stat(path_.c_str(), &status) == 0;
  // A user who may not change the file may not replace it either.
  if (exists && access(path_.c_str(), W_OK) != 0) fail_to("open");
  struct stat link {};
  const bool dangling = !exists && lstat(path_.c_str(), &link) == 0;
  if (exists ? S_ISREG(status.st_mode) : !dangling) open_beside();
  if (fd_ < 0) {
    temporary_.clear();
    fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd_ < 0) fail_to("open");
  } else if (exists) {
    // Where the system refuses this, the new file has the permissions of a file that did not exist before.
    if (fchown(fd_, status.st_uid, status.st_gid) == 0 || status.st_uid == geteuid()) [[maybe_unused]]
      const int refused = fchmod(fd_, status.st_mode & 07777);
  }
}

void AtomicFile::open_beside() {
  do {
    temporary_ = folder_of(path_) + "/.mica-" + random_suffix() + ".tmp";
    fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t nbytes) {
  const auto* p = static_cast<const char*>(data);
  while (nbytes) {
    const ssize_t n = ::write(fd_, p, std::min(nbytes, kLargestTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_to("write to");
    p += n;
    nbytes -= static_cast<size_t>(n);
  }
}

void AtomicFile::skip(size_t nbytes) {
  if (temporary_.empty()) return Sink::skip(nbytes);
  if (lseek(fd_, static_cast<off_t>(nbytes), SEEK_CUR) < 0) fail_to("write to");
}

void AtomicFile::commit() {
  const int fd = std::exchange(fd_, -1);
  if (close(fd) != 0 || (!temporary_.empty() && rename(temporary_.c_str(), path_.c_str()) != 0)) {
    const int reason = errno;
    if (!temporary_.empty()) unlink(temporary_.c_str());
    errno = reason;
    fail_to("finish");
  }
}

FileSource::FileSource(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  MICA_CHECK(fd >= 0, "unable to open file <", path, "> in read-only mode: ", std::strerror(errno));
  take(fd, 0);
}

FileSource::FileSource(int fd, uint64_t begin) { take(fcntl(fd, F_DUPFD_CLOEXEC, 0), begin); }

void FileSource::take(int fd, uint64_t begin) {
  fd_ = fd;
  struct stat status {};
  if (fd_ < 0 || fstat(fd_, &status) != 0) {
    const int reason = errno;
    if (fd_ >= 0) close(fd_);
    fail(cat("unable to stat the file: ", std::strerror(reason)));
  }
  begin_ = begin;
  const auto all = static_cast<uint64_t>(status.st_size);
  size_ = all > begin ? all - begin : 0;
}

FileSource::~FileSource() { close(fd_); }

void FileSource::read(uint64_t offset, void* out, size_t nbytes) const {
  auto* p = static_cast<char*>(out);
  offset += begin_;
  while (nbytes) {
    const ssize_t n = pread(fd_, p, std::min(nbytes, kLargestTransfer), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    MICA_CHECK(n >= 0, "unable to read: ", std::strerror(errno));
    MICA_CHECK(n > 0, "unexpected EOF, expected ", nbytes, " more bytes. The file might be corrupted.");
    p += n;
    offset += static_cast<uint64_t>(n);
    nbytes -= static_cast<size_t>(n);
  }
}

void MemorySource::read(uint64_t offset, void* out, size_t nbytes) const {
  MICA_CHECK(offset <= size_ && nbytes <= size_ - offset, "unexpected EOF, expected ", nbytes,
             " bytes. The data might be corrupted.");
  if (nbytes) std::memcpy(out, static_cast<const char*>(data_) + offset, nbytes);
}

}  // namespace mica::io
