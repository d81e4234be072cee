// The checksum of zip archives (CRC-32, reflected polynomial 0xEDB88320).
#pragma once

#include <cstddef>
#include <cstdint>

namespace mica::io {

// Continues the checksum `crc` of earlier bytes with these bytes. 0 is the checksum of no bytes.
uint32_t crc32(uint32_t crc, const void* data, size_t nbytes);

}  // namespace mica::io
