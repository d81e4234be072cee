// Products of rows of activations, as 8-bit integers, with packed weights of 4 or 8 bits in groups: the functions that
// are written for each kind of machine, and the order in which weights are packed for all of them.
//
// Weights are numbers from -8 to 7 or from -128 to 127; what they stand for is number * scale + least, with a scale and
// a least number for each group of depths of a row. Rows of weights are the columns of the product. A block
// is 16 of them. A record is 64 bytes: of each of the 16 columns 4 adjacent depths, so that one instruction multiplies
// them with the same 4 activations and adds the products to the sum of its column.
//   8 bits: chunks of 16 depths, 4 records: record i has the depths 4 i to 4 i + 3.
//   4 bits: chunks of 32 depths, 4 records: in record i the lower halves of bytes are the depths 4 i to 4 i + 3, the
//   upper ones those 16 further on.
//
// Activations have one or two planes (split_rows.h).
#pragma once

#include <cstdint>

#include "backends/cpu/quantized/split_rows.h"

namespace mica::cpu {

constexpr int kFewBitsColumns = 16;
constexpr int64_t kFewBitsRecord = 4 * kFewBitsColumns;  // bytes

constexpr int64_t few_bits_chunk(int bits) { return bits == 4 ? 32 : 16; }  // depths that are packed together

// Some rows of activations and a block of columns. In every list that has an entry for each row and group, the rows lie
// `groups` apart.
struct FewBitsTile {
  const uint8_t* weights;
  const float *scales, *least;  // [groups][16]; least may be null
  int64_t groups, group;        // how many, and the depths of one: a multiple of the chunk
  const int8_t* planes[2];      // high and low numbers; rows lie groups * group apart
  const float* steps;
  const float* sums;             // sums of the activations of a group, for `least`
  const int32_t* plane_sums[2];  // sums of the numbers of a group, for machines that take weights as unsigned numbers
  float* out;
  int64_t out_stride;
};

struct FewBits {
  using Tile = void(const FewBitsTile& tile);
  static constexpr int kSteps = 4;  // 1, 2, 4 and 8 rows
  int most_rows;                    // 4 or 8
  bool widens;                      // whether tiles of 8 bits are faster, so that unpacking pays for many rows
  Tile* tile[2][2][kSteps];         // for 4 and 8 bits, with one and two planes
};

const FewBits& few_bits();

// The versions for one kind of machine, or null where it is another.
const FewBits* neon_few_bits();  // aarch64 with sdot
const FewBits* vnni_few_bits();  // x86-64 with AVX512_VNNI
const FewBits* avx2_few_bits();  // x86-64

}  // namespace mica::cpu
