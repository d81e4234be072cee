#include <algorithm>

#include "io/archive.h"
#include "io/crc32.h"
#include "io/zip_layout.h"
#include "mica/error.h"

namespace mica::io {

namespace {

// Whether `count` bytes from `begin` on lie within `size`, whatever the numbers.
bool within(uint64_t begin, uint64_t count, uint64_t size) { return begin <= size && count <= size - begin; }

constexpr const char* kFailed = "PytorchStreamReader failed reading zip archive: ";

}  // namespace

ArchiveReader::ArchiveReader(std::unique_ptr<Source> source, std::string file)
    : source_(std::move(source)), file_(std::move(file)) {
  read_directory();
}

void ArchiveReader::damaged(std::string_view what) const {
  fail(cat(kFailed, what, ": ", file_, " (", source_->size(), " bytes) is truncated or damaged"));
}

void ArchiveReader::read_directory() {
  const uint64_t size = source_->size();
  if (size < zip::kEndBytes) damaged("failed finding central directory");
  // The end stands before a comment of at most 64 KiB.
  const auto tail = static_cast<size_t>(std::min<uint64_t>(size, zip::kEndBytes + 0xffff));
  std::string last(tail, '\0');
  source_->read(size - tail, last.data(), tail);
  size_t end = tail - zip::kEndBytes + 1;
  do {
    if (end-- == 0) damaged("failed finding central directory");
  } while (zip::get<uint32_t>(&last[end]) != zip::kEnd);

  uint64_t count = zip::get<uint16_t>(&last[end + 10]);
  uint64_t directory_bytes = zip::get<uint32_t>(&last[end + 12]);
  uint64_t directory_begin = zip::get<uint32_t>(&last[end + 16]);
  const uint64_t end_position = size - tail + end;
  if (end >= zip::kEnd64LocatorBytes) {
    const char* locator = &last[end - zip::kEnd64LocatorBytes];
    if (zip::get<uint32_t>(locator) == zip::kEnd64Locator) {
      const auto position = zip::get<uint64_t>(locator + 8);
      if (!within(position, zip::kEnd64Bytes, end_position)) damaged("the end of the directory lies outside");
      char end64[zip::kEnd64Bytes];
      source_->read(position, end64, sizeof end64);
      if (zip::get<uint32_t>(end64) != zip::kEnd64) damaged("invalid header or archive is corrupted");
      count = zip::get<uint64_t>(end64 + 32);
      directory_bytes = zip::get<uint64_t>(end64 + 40);
      directory_begin = zip::get<uint64_t>(end64 + 48);
    }
  }
  if (!within(directory_begin, directory_bytes, end_position) || count > directory_bytes / zip::kDirectoryEntryBytes)
    damaged("failed finding central directory");

  std::string directory(directory_bytes, '\0');
  source_->read(directory_begin, directory.data(), directory.size());
  size_t at = 0;
  for (uint64_t i = 0; i < count; ++i) read_entry(directory, at);
  if (order_.empty()) damaged("it has no records");
  for (std::string& name : order_) name.erase(0, folder_.size() + 1);
}

void ArchiveReader::read_entry(const std::string& directory, size_t& at) {
  if (!within(at, zip::kDirectoryEntryBytes, directory.size()) ||
      zip::get<uint32_t>(&directory[at]) != zip::kDirectoryEntry)
    damaged("invalid header or archive is corrupted");
  const char* entry = &directory[at];
  Record record{};
  record.method = zip::get<uint16_t>(entry + 10);
  record.crc = zip::get<uint32_t>(entry + 16);
  record.nbytes = zip::get<uint32_t>(entry + 20);
  record.unpacked_nbytes = zip::get<uint32_t>(entry + 24);
  record.header = zip::get<uint32_t>(entry + 42);
  const size_t name_bytes = zip::get<uint16_t>(entry + 28), extra_bytes = zip::get<uint16_t>(entry + 30),
               comment_bytes = zip::get<uint16_t>(entry + 32);
  const size_t entry_bytes = zip::kDirectoryEntryBytes + name_bytes + extra_bytes + comment_bytes;
  if (!within(at, entry_bytes, directory.size())) damaged("invalid header or archive is corrupted");
  std::string name(entry + zip::kDirectoryEntryBytes, name_bytes);

  const char* extra = entry + zip::kDirectoryEntryBytes + name_bytes;
  const char* extra_end = extra + extra_bytes;
  while (extra_end - extra >= 4) {
    const auto id = zip::get<uint16_t>(extra);
    const char* field = extra + 4;
    const char* field_end = field + zip::get<uint16_t>(extra + 2);
    if (field_end > extra_end) break;
    if (id == zip::kExtra64) {
      for (uint64_t* number : {&record.unpacked_nbytes, &record.nbytes, &record.header}) {
        if (*number != zip::kIn64) continue;
        if (field_end - field < 8) damaged(cat("record ", name, " has no 64-bit size"));
        *number = zip::get<uint64_t>(field);
        field += 8;
      }
    }
    extra = field_end;
  }
  at += entry_bytes;

  const size_t slash = name.find('/');
  if (slash == std::string::npos) damaged(cat("file in archive is not in a subdirectory: ", name));
  if (order_.empty()) folder_ = name.substr(0, slash);
  if (name.compare(0, folder_.size() + 1, folder_ + "/") != 0)
    damaged(cat("file in archive is not in a subdirectory ", folder_, "/: ", name));
  if (name.back() == '/') return;  // a folder
  if (!within(record.header, zip::kLocalHeaderBytes, source_->size()) ||
      !within(record.header + zip::kLocalHeaderBytes, record.nbytes, source_->size()))
    damaged(cat("record ", name, " lies outside of the archive"));
  if (record.method == Record::kStored && record.nbytes != record.unpacked_nbytes)
    damaged(cat("record ", name, " has two sizes"));
  if (!records_.emplace(name, record).second) damaged(cat("record ", name, " is there twice"));
  order_.push_back(std::move(name));
}

const Record& ArchiveReader::record(std::string_view name) const {
  const auto found = records_.find(full_name(name));
  MICA_CHECK(found != records_.end(), "PytorchStreamReader failed locating file ", name, ": file not found in ", file_);
  return found->second;
}

std::vector<std::string> ArchiveReader::names() const { return order_; }

uint64_t ArchiveReader::offset(std::string_view name) const {
  const Record& r = record(name);
  char header[zip::kLocalHeaderBytes];
  source_->read(r.header, header, sizeof header);
  const uint64_t begin = r.header + sizeof header + zip::get<uint16_t>(header + 26) + zip::get<uint16_t>(header + 28);
  if (zip::get<uint32_t>(header) != zip::kLocalHeader || !within(begin, r.nbytes, source_->size()))
    damaged(cat("the header of record ", name, " is not one"));
  return begin;
}

void ArchiveReader::read(std::string_view name, void* out) const {
  const Record& r = record(name);
  const uint64_t begin = offset(name);
  // A piece at a time, so that it is still in the cache when its checksum is taken.
  constexpr size_t kPiece = size_t{1} << 20;
  uint32_t crc = 0;
  for (uint64_t done = 0; done < r.nbytes;) {
    const auto part = static_cast<size_t>(std::min<uint64_t>(kPiece, r.nbytes - done));
    char* piece = static_cast<char*>(out) + done;
    source_->read(begin + done, piece, part);
    if (r.crc) crc = crc32(crc, piece, part);
    done += part;
  }
  if (r.crc && r.method == Record::kStored && crc != r.crc)
    damaged(cat("record ", name, " does not match its checksum"));
}

std::string ArchiveReader::read(std::string_view name) const {
  std::string bytes(record(name).nbytes, '\0');
  read(name, bytes.data());
  return bytes;
}

}  // namespace mica::io
