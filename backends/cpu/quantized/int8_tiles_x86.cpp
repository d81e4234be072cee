// A tile of the left matrix holds 64 depths of 16 rows; one of the right matrix 64 depths of 16 columns, in rows of
// four depths of each column side by side. An instruction adds their product to a tile of 16 x 16 sums. Both matrices
// are packed into such tiles, filled up with zeros.
#include "backends/cpu/quantized/int8_tiles.h"

#include "backends/cpu/tile_unit_x86.h"

#if defined(__x86_64__) && defined(__linux__)
#include <algorithm>

#include "backends/cpu/scratch.h"
#include "backends/cpu/transpose_words_x86.h"
#include "mica/parallel.h"

#define MICA_INT8_TILES __attribute__((target("amx-tile,amx-int8")))

namespace mica::cpu {

namespace {

constexpr int64_t kTile = 16;   // rows or columns of a tile
constexpr int64_t kDepth = 64;  // depths of a tile
constexpr int64_t kTileBytes = kTile * kDepth;
constexpr int64_t kBlock = 2 * kTile;  // rows and columns of sums that are held in tiles
constexpr int64_t kStepBytes = 2 * kTileBytes;
constexpr int64_t kSteps = 8;    // steps of depth after which sums go back: two such blocks fit the nearest cache
constexpr int64_t kGroup = 128;  // rows that share a block of the right matrix

MICA_AVX512 inline __m512i some_bytes(const int8_t* from, int64_t count) {
  if (count <= 0) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi8(count >= kDepth ? ~__mmask64{0} : (__mmask64{1} << count) - 1, from);
}

// A block of rows: for every step of depth the tile of its first 16 rows, then that of the others.
MICA_AVX512 void pack_left(const int8_t* from, int64_t rows, int64_t depth, int8_t* to) {
  for (int64_t k = 0; k < depth; k += kDepth, to += kStepBytes)
    for (int64_t r = 0; r < kBlock; ++r)
      _mm512_store_si512(to + r * kDepth, some_bytes(from + r * depth + k, r < rows ? depth - k : 0));
}

// A block of columns, which are rows in memory.
MICA_AVX512 void pack_right(const int8_t* from, int64_t columns, int64_t depth, int8_t* to) {
  for (int64_t k = 0; k < depth; k += kDepth)
    for (int64_t first = 0; first < kBlock; first += kTile, to += kTileBytes) {
      __m512i words[kTile];
#pragma GCC unroll 16
      for (int64_t c = 0; c < kTile; ++c)
        words[c] = some_bytes(from + (first + c) * depth + k, first + c < columns ? depth - k : 0);
      transpose_words(words);
#pragma GCC unroll 16
      for (int64_t q = 0; q < kTile; ++q) _mm512_store_si512(to + q * kDepth, words[q]);
    }
}

// The compiler does not know what tile instructions read and write, so memory must be written before them and read
// after them.
inline void order_memory() { asm volatile("" ::: "memory"); }

// Tiles 0 to 3 hold the sums, 4 and 5 rows of the left matrix, 6 and 7 columns of the right one.
MICA_INT8_TILES __attribute__((noinline)) void run_block(const int8_t* a, const int8_t* b, int64_t steps, int32_t* c,
                                                         int64_t stride, bool add) {
  int32_t* const lower = c + kTile * stride;
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(int32_t));
  order_memory();
  if (add) {
    _tile_loadd(0, c, bytes);
    _tile_loadd(1, c + kTile, bytes);
    _tile_loadd(2, lower, bytes);
    _tile_loadd(3, lower + kTile, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (; steps > 0; --steps, a += kStepBytes, b += kStepBytes) {
    _tile_loadd(4, a, kDepth);
    _tile_loadd(6, b, kDepth);
    _tile_dpbssd(0, 4, 6);
    _tile_loadd(7, b + kTileBytes, kDepth);
    _tile_dpbssd(1, 4, 7);
    _tile_loadd(5, a + kTileBytes, kDepth);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_stored(0, c, bytes);
  _tile_stored(1, c + kTile, bytes);
  _tile_stored(2, lower, bytes);
  _tile_stored(3, lower + kTile, bytes);
  order_memory();
}

// The sums of some packed rows and columns. Sums of an incomplete block go through a buffer.
void run_group(const int8_t* left, int64_t rows, const int8_t* right, int64_t columns, int64_t steps, int32_t* out,
               int64_t stride) {
  alignas(64) int32_t sums[kBlock * kBlock];
  for (int64_t k = 0; k < steps; k += kSteps) {
    const int64_t count = std::min(kSteps, steps - k);
    for (int64_t c = 0; c < columns; c += kBlock)
      for (int64_t r = 0; r < rows; r += kBlock) {
        const int8_t *const a = left + (r / kBlock * steps + k) * kStepBytes, *const b =
                                                                                  right +
                                                                                  (c / kBlock * steps + k) * kStepBytes;
        int32_t* const to = out + r * stride + c;
        const int64_t height = std::min(kBlock, rows - r), width = std::min(kBlock, columns - c);
        if (height == kBlock && width == kBlock) {
          run_block(a, b, count, to, stride, k > 0);
          continue;
        }
        run_block(a, b, count, sums, kBlock, false);
        for (int64_t i = 0; i < height; ++i)
          for (int64_t j = 0; j < width; ++j) {
            const uint32_t before = k > 0 ? static_cast<uint32_t>(to[i * stride + j]) : 0;
            to[i * stride + j] = static_cast<int32_t>(before + static_cast<uint32_t>(sums[i * kBlock + j]));
          }
      }
  }
}

}  // namespace

bool int8_tiles_there() { return has_int8_tiles(); }

bool worth_int8_tiles(int64_t rows, int64_t columns, int64_t depth) {
  // Packing a matrix that only a few rows use once costs more than it gains, unless it stays in the second cache.
  const bool reused = rows >= 2 * kTile || columns * depth <= 1 << 20;
  return rows >= kTile && columns >= kTile && depth >= kDepth && reused && has_int8_tiles();
}

void int8_tile_products(const int8_t* a, int64_t rows, const int8_t* b, int64_t columns, int64_t depth, int32_t* out) {
  const int64_t steps = (depth + kDepth - 1) / kDepth, block_bytes = steps * kStepBytes;
  const int64_t panels = (columns + kBlock - 1) / kBlock, groups = (rows + kGroup - 1) / kGroup;
  const Scratch<int8_t> right(panels * block_bytes);
  parallel_for(0, panels, 1 + 65536 / block_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      pack_right(b + p * kBlock * depth, columns - p * kBlock, depth, right.data() + p * block_bytes);
  });
  // Where there are fewer groups of rows than threads, several threads share a group by its columns, and each packs the
  // rows itself.
  const int64_t spans = std::min(panels, groups >= get_num_threads() ? 1 : (get_num_threads() + groups - 1) / groups);
  const int64_t work = kGroup * columns * depth / spans;
  parallel_for(0, groups * spans, 1 + 4194304 / (work + 1), [&](int64_t begin, int64_t end) {
    const Scratch<int8_t> left(kGroup / kBlock * block_bytes);
    enter_tiles();
    for (int64_t w = begin, packed = -1; w < end; ++w) {
      const int64_t group = w / spans, row = group * kGroup, height = std::min(kGroup, rows - row);
      if (group != packed)
        for (int64_t r = 0; r < height; r += kBlock)
          pack_left(a + (row + r) * depth, height - r, depth, left.data() + r / kBlock * block_bytes);
      packed = group;
      const int64_t first = w % spans * panels / spans, last = (w % spans + 1) * panels / spans;
      run_group(left.data(), height, right.data() + first * block_bytes,
                std::min(columns, last * kBlock) - first * kBlock, steps, out + row * columns + first * kBlock,
                columns);
    }
    leave_tiles();
  });
}

}  // namespace mica::cpu

#else

namespace mica::cpu {
bool int8_tiles_there() { return false; }
bool worth_int8_tiles(int64_t, int64_t, int64_t) { return false; }
void int8_tile_products(const int8_t*, int64_t, const int8_t*, int64_t, int64_t, int32_t*) {}
}  // namespace mica::cpu

#endif
