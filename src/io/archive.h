// The container of torch's checkpoints: a zip archive whose records lie uncompressed and aligned in one top folder, so
// that a storage can be mapped where it lies.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "io/file.h"

namespace mica::io {

inline constexpr uint32_t kRecordAlignment = 64;

class ArchiveWriter {
 public:
  // Records are named `folder`/name.
  ArchiveWriter(Sink& sink, std::string folder, bool with_checksums = true, uint32_t alignment = kRecordAlignment);

  void write(std::string_view name, const void* data, size_t nbytes);
  // Leaves room for a record whose bytes are written later. It has no checksum.
  void reserve(std::string_view name, size_t nbytes);
  // Writes the records that every archive ends with, and the directory.
  void finish();
  bool finished() const { return finished_; }

 private:
  struct Entry {
    std::string name;
    uint64_t offset, nbytes;
    uint32_t crc;
  };
  void add(std::string_view name, const void* data, size_t nbytes);
  void put(const std::string& bytes);
  std::string directory_entry(const Entry& entry) const;

  Sink& sink_;
  std::string folder_;
  bool with_checksums_;
  uint32_t alignment_;
  uint64_t position_ = 0;
  std::vector<Entry> entries_;
  std::unordered_set<std::string> names_;
  uint32_t content_crc_ = 0;
  bool finished_ = false;
};

struct Record {
  uint64_t header;  // where its local header begins
  uint64_t nbytes;  // in the archive
  uint64_t unpacked_nbytes;
  uint32_t crc;  // 0: not recorded
  uint16_t method;
  static constexpr uint16_t kStored = 0, kDeflated = 8;
};

class ArchiveReader {
 public:
  // `file` names the archive in errors. Throws if the directory is damaged or points outside of the archive.
  ArchiveReader(std::unique_ptr<Source> source, std::string file);

  bool has(std::string_view name) const { return records_.count(full_name(name)) != 0; }
  const Record& record(std::string_view name) const;  // throws if there is none
  std::vector<std::string> names() const;             // in the order of the directory, without the folder
  const std::string& file() const { return file_; }
  const Source& source() const { return *source_; }

  // Where the record's bytes begin.
  uint64_t offset(std::string_view name) const;
  // The record's bytes as they lie in the archive; those of an uncompressed one are checked against its checksum.
  void read(std::string_view name, void* out) const;
  std::string read(std::string_view name) const;

 private:
  [[noreturn]] void damaged(std::string_view what) const;
  void read_directory();
  void read_entry(const std::string& directory, size_t& at);
  std::string full_name(std::string_view name) const { return folder_ + "/" + std::string(name); }

  std::unique_ptr<Source> source_;
  std::string file_;
  std::string folder_;
  std::vector<std::string> order_;
  std::unordered_map<std::string, Record> records_;
};

// The folder that torch gives an archive written to a path: the file's name without its last extension.
std::string archive_folder(std::string_view path);

}  // namespace mica::io
