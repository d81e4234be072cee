// Products of matrices of 8-bit integers in the tile unit of x86-64 (AMX).
#pragma once

#include <cstdint>

namespace mica::cpu {

// Whether the machine has the unit for such products, and whether a product of these sizes is worth the packing.
bool int8_tiles_there();
bool worth_int8_tiles(int64_t rows, int64_t columns, int64_t depth);

// out[r, c] = a[r] . b[c], all matrices dense by rows; sums wrap around in 32 bits. Needs int8_tiles_there().
void int8_tile_products(const int8_t* a, int64_t rows, const int8_t* b, int64_t columns, int64_t depth, int32_t* out);

}  // namespace mica::cpu
