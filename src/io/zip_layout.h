// The numbers of the zip format that reader and writer share. All integers are little-endian.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

namespace mica::io::zip {

inline constexpr uint32_t kLocalHeader = 0x04034b50;
inline constexpr uint32_t kDescriptor = 0x08074b50;
inline constexpr uint32_t kDirectoryEntry = 0x02014b50;
inline constexpr uint32_t kEnd64 = 0x06064b50;
inline constexpr uint32_t kEnd64Locator = 0x07064b50;
inline constexpr uint32_t kEnd = 0x06054b50;

inline constexpr size_t kLocalHeaderBytes = 30;
inline constexpr size_t kDirectoryEntryBytes = 46;
inline constexpr size_t kEnd64Bytes = 56;
inline constexpr size_t kEnd64LocatorBytes = 20;
inline constexpr size_t kEndBytes = 22;

inline constexpr uint16_t kNamesAreUtf8 = 0x0800;
inline constexpr uint16_t kSizesFollow = 0x0008;   // in a descriptor behind the data
inline constexpr uint16_t kExtra64 = 0x0001;       // the extra field with 64-bit sizes and offset
inline constexpr uint16_t kExtraPadding = 0x4246;  // "FB": the extra field that aligns the data
inline constexpr uint32_t kIn64 = 0xffffffff;      // stands for a number that the 64-bit extra field holds
inline constexpr uint16_t kCountIn64 = 0xffff;

inline void put16(std::string& out, uint16_t v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); }
inline void put32(std::string& out, uint32_t v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); }
inline void put64(std::string& out, uint64_t v) { out.append(reinterpret_cast<const char*>(&v), sizeof v); }

template <class T>
T get(const char* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

}  // namespace mica::io::zip
