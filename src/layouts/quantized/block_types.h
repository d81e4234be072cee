// The block types of GGUF files: the bytes of a block, and the numbers and scales in it.
#pragma once

#include <cstdint>
#include <string_view>

namespace mica {

// Where the numbers and scales of one block are written. The scales of group g begin at g * stride.
struct BlockPlaces {
  uint8_t* numbers;  // adjacent, from 0 to 15 (of 4 bits) or 255; 8 or 128 stand for zero
  uint16_t* halves;  // float16 scales, or null
  float* scales;     // float32 scales, `width` for each group; with two, the second is the number that is added
  int64_t stride;    // counted in scales
};

struct BlockType {
  std::string_view name;
  int64_t numbers, bytes, group;  // numbers and bytes of a block, and numbers that share a scale
  int bits, width;                // 4 or 8 bits; scales of a group
  bool halves;                    // whether scales are float16, as they are in the file
  void (*read)(const uint8_t* block, const BlockPlaces& to);
};

const BlockType* find_block_type(std::string_view name);  // or null

}  // namespace mica
