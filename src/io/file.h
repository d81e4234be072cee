// The sources from which the bytes of an archive are read, and the sinks to which they are written.
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

// A file that appears under its name, complete, on commit(). Until then its bytes lie in a temporary file beside it,
// and an older file of that name stays as it was. Something that is not a regular file (a pipe, /dev/null) is written
// directly, and so is a file in a folder where no other can be made. An existing file's permissions are kept. The bytes
// are handed to the system, not forced to the disk.
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

  std::string path_;       // the path of the file itself, to which symbolic links lead
  std::string temporary_;  // empty where the file is written directly
  int fd_ = -1;
};

// Bytes that can be read at any offset, from several threads unless a subclass says otherwise.
class Source {
 public:
  virtual ~Source() = default;
  virtual uint64_t size() const = 0;
  // Reads all of them, within size(), or throws.
  virtual void read(uint64_t offset, void* out, size_t nbytes) const = 0;
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
