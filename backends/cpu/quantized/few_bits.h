// Products of rows of activations, as 8-bit integers, with packed weights of 4 or 8 bits in groups: the functions that
// are written for each kind of machine, and the order in which weights are packed for all of them.
//
// Weights are numbers from -8 to 7 or from -128 to 127; what they stand for is number * scale + least, with a scale and
// a least number for each group of depths of a row. Rows of weights are the columns of the product. A block
// is 16 of them. A record has of each of the 16 columns 4 adjacent depths, so that one instruction multiplies
// them with the same 4 activations and adds the products to the sum of its column. A chunk is the 4 records of 16
// depths.
//   8 bits: a record is 64 bytes, column by column.
//   4 bits: a record is 32 bytes. The lower half of a byte is a number of one of the first 8 columns, plus 8; the upper
//   half is the number of the column 8 further on, with its sign. As both meet the same activation, the sum of products
//   with whole bytes is 16 times the sum of the second column and the sum of the first one: a machine that has
//   multiplied the lower halves needs not take the upper ones out.
//
// Activations have one or two planes (split_rows.h).
#pragma once

#include <cstdint>

#include "backends/cpu/quantized/split_rows.h"

namespace mica::cpu {

constexpr int kFewBitsColumns = 16;
constexpr int kFewBitsChunk = 16;  // depths that are packed together

constexpr int64_t few_bits_record(int bits) { return 4 * kFewBitsColumns * bits / 8; }  // bytes

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

// One row of activations with one plane, and a block of columns in groups of 32 that have float16 scales.
struct FewBitsRow {
  const uint8_t* weights;
  const uint16_t* scales;  // [groups][16]
  int64_t groups;
  const int8_t* numbers;
  const float* steps;
  // [groups][4], equal ones: kFewBitsStart, of 4 bits less 8 times the sum of a group's numbers.
  const int32_t* starts;
  float* out;
};

// One row of activations with two planes, and a block of columns of 4 bits whose scales and least numbers are pairs of
// bfloat16 numbers, as torch has them.
struct FewBitsPairsRow {
  const uint8_t* weights;
  const char* pairs;  // 16 of each group, which lie pairs_stride bytes apart
  int64_t pairs_stride, groups, group;
  const int8_t* planes[2];
  const float *steps, *sums;  // as in FewBitsTile
  const int32_t* plane_sums[2];
  float* out;
};

constexpr int kFewBitsRowGroup = 32;
// The bits of 1.5 * 2^23. A float with these bits and a small integer added to them is greater by that integer.
constexpr int32_t kFewBitsStart = 0x4b400000;

struct FewBits {
  using Tile = void(const FewBitsTile& tile);
  using Row = void(const FewBitsRow& row);
  using PairsRow = void(const FewBitsPairsRow& row);
  static constexpr int kSteps = 4;  // 1, 2, 4 and 8 rows
  int most_rows;                    // 4 or 8
  bool widens;                      // whether tiles of 8 bits are faster, so that unpacking pays for many rows
  Tile* tile[2][2][kSteps];         // for 4 and 8 bits, with one and two planes
  Row* row[2];                      // for 4 and 8 bits, where tiles of one row are not the fastest; else null
  PairsRow* pairs_row;              // the same
};

const FewBits& few_bits();

// The versions for one kind of machine, or null where it is another.
const FewBits* neon_few_bits();  // aarch64 with sdot
const FewBits* vnni_few_bits();  // x86-64 with AVX512_VNNI
const FewBits* avx2_few_bits();  // x86-64

}  // namespace mica::cpu
