// The block types of GGUF files: how many bytes a block of a row has, and what its numbers and scales are.
#pragma once

#include <cstdint>
#include <string_view>

namespace mica {

// Where the numbers of one block go, and its scales: group g of the block stands at g * stride.
struct BlockPlaces {
  uint8_t* numbers;  // adjacent, from 0 to 15 (of 4 bits) or 255; 8 or 128 stand for zero
  uint16_t* halves;  // float16 scales, or null
  float* scales;     // float32 scales, `width` of them for a group: with what is added where there are two
  int64_t stride;    // in scales
};

struct BlockType {
  std::string_view name;
  int64_t numbers, bytes, group;  // of a block; numbers that share a scale
  int bits, width;                // 4 or 8; scales of a group
  bool halves;                    // whether scales are float16, as they are in the file
  void (*read)(const uint8_t* block, const BlockPlaces& to);
};

const BlockType* find_block_type(std::string_view name);  // or null

}  // namespace mica
