// The checksum of zip archives (CRC-32, reflected polynomial 0xEDB88320).
#pragma once

#include <cstddef>
#include <cstdint>

namespace mica::io {

// The checksum of what `crc` stands for followed by these bytes; 0 stands for nothing.
uint32_t crc32(uint32_t crc, const void* data, size_t nbytes);

}  // namespace mica::io
