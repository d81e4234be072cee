// Where the bytes of an archive come from and go to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace mica::io {

class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const void* data, size_t nbytes) = 0;
  virtual void skip(size_t nbytes);  // bytes that are zero, or become so
};

// A file that appears under its name, whole, on commit(): until then the bytes lie in a temporary file beside it, and
// what had the name before stays as it was. What is not a regular file (a pipe, /dev/null) is written to directly, and
// so is a file in a folder where none can be made. An existing file's permissions are kept. The bytes are handed to the
// system, not forced to the disk.
class AtomicFile : public Sink {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile() override;  // without a commit, removes the temporary file
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t nbytes) override;
  void skip(size_t nbytes) override;
  void commit();

 private:
  void open_beside();
  [[noreturn]] void fail_to(const char* what) const;

  std::string path_;       // of the file itself, where a symbolic link leads
  std::string temporary_;  // empty: written to directly
  int fd_ = -1;
};

// Bytes that can be read at any offset, from several threads unless a subclass says otherwise.
class Source {
 public:
  virtual ~Source() = default;
  virtual uint64_t size() const = 0;
  virtual void read(uint64_t offset, void* out, size_t nbytes) const = 0;  // all of them, within size(), or throws
};

// The part of an open file from `begin` on; keeps a duplicate of the descriptor.
class FileSource : public Source {
 public:
  explicit FileSource(const std::string& path);
  FileSource(int fd, uint64_t begin);
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  uint64_t size() const override { return size_; }
  void read(uint64_t offset, void* out, size_t nbytes) const override;

 private:
  void take(int fd, uint64_t begin);

  int fd_ = -1;
  uint64_t begin_ = 0;
  uint64_t size_ = 0;
};

// Memory that outlives the source.
class MemorySource : public Source {
 public:
  MemorySource(const void* data, size_t nbytes) : data_(data), size_(nbytes) {}
  uint64_t size() const override { return size_; }
  void read(uint64_t offset, void* out, size_t nbytes) const override;

 private:
  const void* data_;
  size_t size_;
};

}  // namespace mica::io
