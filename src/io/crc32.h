// The checksum of zip archives (CRC-32, reflected polynomial 0xEDB88320).
#pragma once

#include <cstddef>
#include <cstdint>

namespace mica::io {

// The checksum of what `crc` stands for followed by these bytes; 0 stands for nothing.
uint32_t crc32(uint32_t crc, const void* data, size_t nbytes);

// The checksum of two pieces, one after the other, from theirs.
uint32_t crc32_combine(uint32_t first, uint32_t second, uint64_t second_nbytes);

}  // namespace mica::io
