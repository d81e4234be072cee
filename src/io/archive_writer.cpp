#include <algorithm>
#include <cstdio>

#include "io/archive.h"
#include "io/crc32.h"
#include "io/zip_layout.h"
#include "mica/error.h"

namespace mica::io {

namespace {

uint32_t in_32_bits(uint64_t v) { return v >= zip::kIn64 ? zip::kIn64 : static_cast<uint32_t>(v); }

// The extra field for numbers that do not fit 32 bits; empty when all do.
std::string extra64(uint64_t nbytes, uint64_t offset) {
  std::string numbers;
  if (nbytes >= zip::kIn64) {
    zip::put64(numbers, nbytes);
    zip::put64(numbers, nbytes);
  }
  if (offset >= zip::kIn64) zip::put64(numbers, offset);
  if (numbers.empty()) return {};
  std::string field;
  zip::put16(field, zip::kExtra64);
  zip::put16(field, static_cast<uint16_t>(numbers.size()));
  return field + numbers;
}

uint16_t flags_of(uint64_t nbytes) { return zip::kNamesAreUtf8 | (nbytes ? zip::kSizesFollow : 0); }

}  // namespace

std::string archive_folder(std::string_view path) {
  std::string name(path.substr(path.rfind('/') + 1));
  const size_t dot = name.rfind('.');
  if (dot != std::string::npos) name.resize(dot);
  return name.empty() ? "archive" : name;
}

ArchiveWriter::ArchiveWriter(Sink& sink, std::string folder, bool with_checksums, uint32_t alignment)
    : sink_(sink), folder_(std::move(folder)), with_checksums_(with_checksums), alignment_(alignment) {
  MICA_CHECK(alignment_ > 0, "the alignment of an archive's records must be positive");
}

void ArchiveWriter::put(const std::string& bytes) {
  sink_.write(bytes.data(), bytes.size());
  position_ += bytes.size();
}

void ArchiveWriter::write(std::string_view name, const void* data, size_t nbytes) { add(name, data, nbytes); }

void ArchiveWriter::reserve(std::string_view name, size_t nbytes) { add(name, nullptr, nbytes); }

void ArchiveWriter::add(std::string_view name, const void* data, size_t nbytes) {
  MICA_CHECK(!finished_, "the archive is finished; record ", name, " comes too late");
  Entry entry{folder_ + "/" + std::string(name), position_, nbytes, 0};
  MICA_CHECK(entry.name.size() < 0xffff, "the name of record ", name.substr(0, 64), "... is too long");
  MICA_CHECK(names_.insert(entry.name).second, "Tried to serialize file twice: ", name);

  const std::string long_numbers = extra64(nbytes, position_);
  const size_t unpadded = position_ + zip::kLocalHeaderBytes + entry.name.size() + long_numbers.size() + 4;
  const auto padding = static_cast<uint16_t>((alignment_ - unpadded % alignment_) % alignment_);
  std::string header;
  zip::put32(header, zip::kLocalHeader);
  zip::put16(header, 0);  // version needed
  zip::put16(header, flags_of(nbytes));
  header.resize(26, '\0');  // stored; no time; checksum and sizes follow in the descriptor
  zip::put16(header, static_cast<uint16_t>(entry.name.size()));
  zip::put16(header, static_cast<uint16_t>(long_numbers.size() + 4 + padding));
  header += entry.name;
  header += long_numbers;
  zip::put16(header, zip::kExtraPadding);
  zip::put16(header, padding);
  header.append(padding, 'Z');
  put(header);

  if (data) {
    if (with_checksums_) entry.crc = crc32(0, data, nbytes);
    sink_.write(data, nbytes);
  } else {
    sink_.skip(nbytes);
  }
  position_ += nbytes;
  if (nbytes) {
    std::string descriptor;
    zip::put32(descriptor, zip::kDescriptor);
    zip::put32(descriptor, entry.crc);
    for (int i = 0; i < 2; ++i) {
      if (long_numbers.empty()) {
        zip::put32(descriptor, static_cast<uint32_t>(nbytes));
      } else {
        zip::put64(descriptor, nbytes);
      }
    }
    put(descriptor);
  }
  content_crc_ = crc32(content_crc_, &entry.crc, sizeof entry.crc);
  entries_.push_back(std::move(entry));
}

std::string ArchiveWriter::directory_entry(const Entry& entry) const {
  const std::string long_numbers = extra64(entry.nbytes, entry.offset);
  std::string out;
  zip::put32(out, zip::kDirectoryEntry);
  zip::put32(out, 0);  // version made by, version needed
  zip::put16(out, flags_of(entry.nbytes));
  zip::put16(out, Record::kStored);
  zip::put32(out, 0);  // time, date
  zip::put32(out, entry.crc);
  zip::put32(out, in_32_bits(entry.nbytes));
  zip::put32(out, in_32_bits(entry.nbytes));
  zip::put16(out, static_cast<uint16_t>(entry.name.size()));
  zip::put16(out, static_cast<uint16_t>(long_numbers.size()));
  out.append(10, '\0');  // comment, disk, attributes
  zip::put32(out, in_32_bits(entry.offset));
  return out + entry.name + long_numbers;
}

void ArchiveWriter::finish() {
  if (finished_) return;
  add("version", "3\n", 2);
  // A fingerprint of the names and the contents.
  uint64_t names = 0xcbf29ce484222325;
  for (const Entry& entry : entries_)
    for (const char c : entry.name) names = (names ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  char id[41];
  std::snprintf(id, sizeof id, "%020llu%020llu", static_cast<unsigned long long>(names),
                static_cast<unsigned long long>(content_crc_));
  add(".data/serialization_id", id, 40);

  const uint64_t begin = position_;
  for (const Entry& entry : entries_) put(directory_entry(entry));
  const uint64_t size = position_ - begin;
  const uint64_t count = entries_.size();
  std::string end;
  zip::put32(end, zip::kEnd64);
  zip::put64(end, zip::kEnd64Bytes - 12);
  zip::put16(end, 0x031e);  // made by a Unix of version 3.0, as torch writes
  zip::put16(end, 0x002d);  // needs version 4.5: 64-bit numbers
  zip::put64(end, 0);       // disks
  for (const uint64_t number : {count, count, size, begin}) zip::put64(end, number);
  zip::put32(end, zip::kEnd64Locator);
  zip::put32(end, 0);
  zip::put64(end, position_);
  zip::put32(end, 1);
  zip::put32(end, zip::kEnd);
  zip::put32(end, 0);
  const auto short_count = static_cast<uint16_t>(std::min<uint64_t>(count, zip::kCountIn64));
  zip::put16(end, short_count);
  zip::put16(end, short_count);
  zip::put32(end, in_32_bits(size));
  zip::put32(end, in_32_bits(begin));
  zip::put16(end, 0);
  put(end);
  finished_ = true;
}

}  // namespace mica::io
