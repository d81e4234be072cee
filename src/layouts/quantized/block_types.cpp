// The blocks of GGUF's types Q4_0, Q8_0, Q4_K and Q6_K. All numbers in them are little-endian.
#include "layouts/quantized/block_types.h"

#include <cstring>

#include "mica/dtype.h"

namespace mica {

namespace {

uint16_t half_at(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, 2);
  return bits;
}

// A scale, then 16 bytes whose lower halves are the numbers 0 to 15. The value is (number - 8) * scale.
void read_q4_0(const uint8_t* block, const BlockPlaces& to) {
  *to.halves = half_at(block);
  for (int i = 0; i < 16; ++i) {
    to.numbers[i] = block[2 + i] & 15;
    to.numbers[i + 16] = block[2 + i] >> 4;
  }
}

// A scale, then 32 signed bytes.
void read_q8_0(const uint8_t* block, const BlockPlaces& to) {
  *to.halves = half_at(block);
  for (int i = 0; i < 32; ++i) to.numbers[i] = block[2 + i] ^ 0x80;
}

// A scale of scales, a scale of offsets, 8 pairs of 6 bits in 12 bytes, then 128 bytes. In each 32 of these, the lower
// halves are one group and the upper halves the next. The value is number * scale - offset.
void read_q4_k(const uint8_t* block, const BlockPlaces& to) {
  const float scale = half_to_float(half_at(block)), least = half_to_float(half_at(block + 2));
  const uint8_t *pairs = block + 4, *halves = block + 16;
  for (int g = 0; g < 8; ++g) {
    const int factor = g < 4 ? pairs[g] & 63 : (pairs[g + 4] & 15) | (pairs[g - 4] >> 6) << 4;
    const int taken = g < 4 ? pairs[g + 4] & 63 : pairs[g + 4] >> 4 | (pairs[g] >> 6) << 4;
    float* pair = to.scales + g * to.stride;
    pair[0] = scale * static_cast<float>(factor);
    pair[1] = 8 * pair[0] - least * static_cast<float>(taken);
    for (int i = 0; i < 32; ++i) {
      const uint8_t both = halves[g / 2 * 32 + i];
      to.numbers[g * 32 + i] = g % 2 == 0 ? both & 15 : both >> 4;
    }
  }
}

// 128 bytes of lower halves, 64 of upper 2 bits, 16 signed factors, and a scale of these. The value is (number - 32) *
// scale.
void read_q6_k(const uint8_t* block, const BlockPlaces& to) {
  const float scale = half_to_float(half_at(block + 208));
  for (int g = 0; g < 16; ++g)
    to.scales[g * to.stride] = scale * static_cast<float>(static_cast<int8_t>(block[192 + g]));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, part = i % 128 / 32, at = i % 32;
    const int four = block[half * 64 + part % 2 * 32 + at] >> (part < 2 ? 0 : 4) & 15;
    const int two = block[128 + half * 32 + at] >> 2 * part & 3;
    to.numbers[i] = static_cast<uint8_t>((four | two << 4) - 32 + 128);
  }
}

constexpr BlockType kTypes[] = {
    {"Q4_0", 32, 18, 32, 4, 1, true, read_q4_0},
    {"Q8_0", 32, 34, 32, 8, 1, true, read_q8_0},
    {"Q4_K", 256, 144, 32, 4, 2, false, read_q4_k},
    {"Q6_K", 256, 210, 16, 8, 1, false, read_q6_k},
};

}  // namespace

const BlockType* find_block_type(std::string_view name) {
  for (const BlockType& type : kTypes)
    if (type.name == name) return &type;
  return nullptr;
}

}  // namespace mica
