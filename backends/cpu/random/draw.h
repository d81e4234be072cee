// Draws the engine's words in blocks. The stream is serial, but the mapping of its words is not: kernels draw a block
// and map it, in parallel where the mapping costs more than the drawing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "mica/parallel.h"
#include "src/core/generator.h"

namespace mica::cpu {

inline constexpr int64_t kDrawBlockBytes = 8192;  // of words: within the first-level cache, and on the stack

// The next `count` words of the engine, as that many calls of draw() or draw64() would give them.
void draw_words(Mt19937& engine, uint32_t* out, int64_t count);
void draw_words(Mt19937& engine, uint64_t* out, int64_t count);

// Calls body(words, first, count) for consecutive blocks of items that cover [0, items), on the calling thread. An item
// takes PerItem words; those of item i of a block begin at words[i * PerItem].
template <class Word, int64_t PerItem = 1, class Body>
void draw_blocks(Mt19937& engine, int64_t items, const Body& body) {
  constexpr int64_t kBlock = kDrawBlockBytes / (sizeof(Word) * PerItem);
  alignas(64) Word words[kBlock * PerItem];
  for (int64_t first = 0; first < items; first += kBlock) {
    const int64_t block = std::min(kBlock, items - first);
    draw_words(engine, words, block * PerItem);
    body(words, first, block);
  }
}

// The same, with large blocks that all threads map; `grain` counts items, as in parallel_for.
template <class Word, int64_t PerItem = 1, class Body>
void draw_blocks_parallel(Mt19937& engine, int64_t items, int64_t grain, const Body& body) {
  if (items <= grain) return draw_blocks<Word, PerItem>(engine, items, body);
  constexpr int64_t kBlock = (1 << 19) / (sizeof(Word) * PerItem);
  const std::unique_ptr<Word[]> words(new Word[std::min(kBlock, items) * PerItem]);
  for (int64_t first = 0; first < items; first += kBlock) {
    const int64_t block = std::min(kBlock, items - first);
    draw_words(engine, words.get(), block * PerItem);
    parallel_for(0, block, grain, [&](int64_t begin, int64_t end) {
      body(static_cast<const Word*>(words.get()) + begin * PerItem, first + begin, end - begin);
    });
  }
}

// The uniform number in [0, 1) that torch makes of a word: its low 24 bits as a float, its low 53 as a double.
inline float unit_uniform(uint32_t word) { return static_cast<float>(word & 0xffffffu) * 0x1p-24f; }
inline double unit_uniform(uint64_t word) { return static_cast<double>(word & ((1ull << 53) - 1)) * 0x1p-53; }

}  // namespace mica::cpu
