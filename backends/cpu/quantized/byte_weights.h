// Rows of activations, as planes of 8-bit integers (split_rows.h), with weights of 8 bits that lie row by row:
// functions that keep sums in lanes to the end of a row. A row of weights is a column of the product.
#pragma once

#include <cstdint>

#include "backends/cpu/quantized/split_rows.h"

namespace mica::cpu {

constexpr int kByteColumns = 16;  // columns of a tile
constexpr int kByteStreams = 16;  // planes of rows that a tile multiplies together
constexpr int kByteRecord = 4;    // depths that lie together in what is arranged
constexpr int kByteDepths = 64;   // what is arranged has zeros up to a multiple of it

// One row of activations with `columns` adjacent rows of weights.
struct ByteRow {
  const int8_t* weights;
  int64_t columns, depth, group;  // of `group` depths, a multiple of kByteDepths, each has a step
  const int8_t* planes[kMostPlanes];
  const float* steps;
  float* out;
};

// Some rows of activations with 16 columns, both arranged.
struct ByteTile {
  const uint8_t* weights;
  const int8_t* streams;                   // row by row, the planes of a row together
  int64_t depth, group;                    // as arranged
  int64_t groups;                          // of a row's steps and sums
  const float* steps;                      // [rows][groups]
  const int32_t* plane_sums[kMostPlanes];  // [rows][groups]
  float* out;                              // [rows][16]
};

constexpr int byte_rows(int planes) { return kByteStreams / planes; }  // of a tile

struct ByteWeights {
  // From row i of 16 (`rows` of them are there), 4 adjacent numbers into place i of each record; with `flip` 128 more
  // than they are, as a machine takes numbers without a sign.
  void (*arrange)(const int8_t* const* from, int rows, int64_t depth, bool flip, uint8_t* to);
  void (*row[2])(const ByteRow& row);     // for 2 and 3 planes
  void (*tile[2])(const ByteTile& tile);  // for 2 and 3 planes, byte_rows of them
  void (*half[2])(const ByteTile& tile);  // half as many rows
};

// For this machine, or null where dot_products.h is as good.
const ByteWeights* byte_weights();

}  // namespace mica::cpu
