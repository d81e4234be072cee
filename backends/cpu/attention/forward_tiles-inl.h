// The classes that compute the products of attention's forward pass: VectorTiles by the kernels of matrix products,
// SplitTiles by the tile unit, InPlaceTiles for a few queries. The first and the last are in files of their own. Each
// holds a thread's queries, a block of keys and values, a tile of scores and the sums of values.

#if defined(MICA_CPU_ATTENTION_FORWARD_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_CPU_ATTENTION_FORWARD_TILES_INL_H_
#undef MICA_CPU_ATTENTION_FORWARD_TILES_INL_H_
#else
#define MICA_CPU_ATTENTION_FORWARD_TILES_INL_H_
#endif

#include "backends/cpu/attention/in_place_tiles-inl.h"
#include "backends/cpu/attention/operands.h"
#include "backends/cpu/attention/scores-inl.h"
#include "backends/cpu/attention/split_tiles.h"
#include "backends/cpu/attention/vector_tiles-inl.h"
#include "backends/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {
namespace {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

using Floats = hn::FixedTag<float, 16>;
using Words = hn::FixedTag<uint32_t, 16>;

// Two vectors of floats as pairs of bfloat16 parts: element i of the first beside element i of the second. The parts
// lie `part_stride` words apart. Three are exact; the last of two is rounded.
template <int64_t kParts>
HWY_INLINE void split_pairs(hn::VFromD<Floats> x, hn::VFromD<Floats> y, uint32_t* to, int64_t part_stride) {
  const Floats d;
  const Words w;
  const auto high = hn::Set(w, 0xffff0000u), half = hn::Set(w, 0x8000u);
#pragma GCC unroll 3
  for (int64_t p = 0; p < kParts; ++p) {
    auto a = hn::BitCast(w, x), b = hn::BitCast(w, y);
    if (kParts == 2 && p == 1) a = hn::Add(a, half), b = hn::Add(b, half);
    a = hn::And(a, high), b = hn::And(b, high);
    hn::StoreU(hn::Or(hn::ShiftRight<16>(a), b), w, to + p * part_stride);
    x = hn::Sub(x, hn::BitCast(d, a));
    y = hn::Sub(y, hn::BitCast(d, b));
  }
}

// A 16 x 16 block of words, transposed.
HWY_INLINE void transpose_words(const uint32_t* from, int64_t from_stride, uint32_t* to, int64_t to_stride) {
  const Words w;
  const hn::Repartition<uint64_t, Words> d64;
  hn::VFromD<Words> t[16], s[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; i += 4) {
    const auto r0 = hn::LoadU(w, from + i * from_stride), r1 = hn::LoadU(w, from + (i + 1) * from_stride);
    const auto r2 = hn::LoadU(w, from + (i + 2) * from_stride), r3 = hn::LoadU(w, from + (i + 3) * from_stride);
    const auto a = hn::BitCast(d64, hn::InterleaveLower(w, r0, r1)),
               b = hn::BitCast(d64, hn::InterleaveUpper(w, r0, r1));
    const auto c = hn::BitCast(d64, hn::InterleaveLower(w, r2, r3)),
               e = hn::BitCast(d64, hn::InterleaveUpper(w, r2, r3));
    t[i] = hn::BitCast(w, hn::InterleaveLower(d64, a, c));
    t[i + 1] = hn::BitCast(w, hn::InterleaveUpper(d64, a, c));
    t[i + 2] = hn::BitCast(w, hn::InterleaveLower(d64, b, e));
    t[i + 3] = hn::BitCast(w, hn::InterleaveUpper(d64, b, e));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // t[4g + i], block l: word 4l + i of rows 4g..4g+3
    const __m512i a = _mm512_shuffle_i32x4(t[i].raw, t[4 + i].raw, 0x88);
    const __m512i b = _mm512_shuffle_i32x4(t[8 + i].raw, t[12 + i].raw, 0x88);
    const __m512i c = _mm512_shuffle_i32x4(t[i].raw, t[4 + i].raw, 0xdd);
    const __m512i e = _mm512_shuffle_i32x4(t[8 + i].raw, t[12 + i].raw, 0xdd);
    s[i].raw = _mm512_shuffle_i32x4(a, b, 0x88);
    s[8 + i].raw = _mm512_shuffle_i32x4(a, b, 0xdd);
    s[4 + i].raw = _mm512_shuffle_i32x4(c, e, 0x88);
    s[12 + i].raw = _mm512_shuffle_i32x4(c, e, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) hn::StoreU(s[i], w, to + i * to_stride);
}

// Queries and weights are sums of kLeft bfloat16 numbers, keys and values of kRight: three for floats; two and one
// where the inputs are bfloat16.
template <int64_t kLeft, int64_t kRight>
class SplitTiles {
 public:
  using Element = float;
  static constexpr int64_t kKeys = 128;  // scores and weights of a tile stay in the nearest cache

  SplitTiles(DType dtype, int64_t depth, int64_t width, int64_t queries)
      : packer_(dtype),
        depth_(depth),
        units_(blocks(depth)),
        panels_(blocks(width)),
        width_(width),
        query_(blocks(queries) * units_ * kLeftUnit),
        keys_(blocks(kKeys) * units_ * kRightUnit),
        values_(panels_ * blocks(kKeys) * kRightUnit),
        weights_(blocks(kKeys) * kLeftUnit),
        sums_(blocks(queries) * kSplitBlock * panels_ * kSplitBlock),
        scores_(kSplitBlock * kStride),
        rows_(kKeys * std::max(units_, panels_) * kSplitBlock) {}

  // Splitting pays when every element is used often and few columns are padding.
  static bool suit(int64_t length, int64_t source, int64_t depth, int64_t width) {
    const int64_t columns = depth + width, padded_columns = (blocks(depth) + blocks(width)) * kSplitBlock;
    const int64_t least = kRight == 1 ? 48 : 192;
    return length >= least && source >= least && columns >= 96 && 3 * padded_columns <= 4 * columns;
  }

  bool fits() const { return fits_; }  // whether everything that was read could be split
  static int64_t rows() { return kSplitBlock; }
  float* scores(int64_t i) const { return scores_.data() + i * kStride; }
  float* sums(int64_t r) const { return sums_.data() + r * panels_ * kSplitBlock; }

  void read_queries(const Head& query, int64_t first, int64_t count, float factor) {
    const auto scale = hn::Set(Floats(), factor);
    for (int64_t r = 0; r < count; r += kSplitBlock) {
      const Rows rows = read_rows(query, first + r, std::min(kSplitBlock, count - r), kSplitBlock, depth_);
      for (int64_t u = 0; u < units_; ++u) {
        uint32_t* to = pairs(query_.data() + (r / kSplitBlock * units_ + u) * kLeftUnit);
        for (int64_t i = 0; i < kSplitBlock; ++i) {
          const float* at = rows.data + i * rows.stride + u * kSplitBlock;
          const auto x = hn::Mul(hn::LoadU(Floats(), at), scale), y = hn::Mul(hn::LoadU(Floats(), at + 16), scale);
          split_input<kLeft>(x, y, to + i * 16, kSplitPart / 2);
        }
      }
    }
  }
  void read_keys(const Head& key, const Head& value, int64_t begin, int64_t count) {
    const int64_t used = padded(count);
    Rows rows = read_rows(key, begin, count, used, depth_);
    alignas(64) uint32_t words[kRight][16 * 16];
    for (int64_t k = 0; k < used; k += 16) {
      for (int64_t u = 0; u < units_; ++u) {
        for (int64_t i = 0; i < 16; ++i) {
          const float* at = rows.data + (k + i) * rows.stride + u * kSplitBlock;
          split_input<kRight>(hn::LoadU(Floats(), at), hn::LoadU(Floats(), at + 16), words[0] + i * 16, 16 * 16);
        }
        uint32_t* to = pairs(keys_.data() + (k / kSplitBlock * units_ + u) * kRightUnit) + k % kSplitBlock;
        for (int64_t p = 0; p < kRight; ++p) transpose_words(words[p], 16, to + p * kSplitPart / 2, kSplitBlock);
      }
    }
    rows = read_rows(value, begin, count, used, width_);
    for (int64_t k = 0; k < used; k += kSplitBlock) {
      for (int64_t i = 0; i < 16; ++i) {
        const float* at = rows.data + (k + i) * rows.stride;
        for (int64_t c = 0; c < panels_ * kSplitBlock; c += 16) {
          uint32_t* to = pairs(values_.data() + (c / kSplitBlock * blocks(kKeys) + k / kSplitBlock) * kRightUnit);
          split_input<kRight>(hn::LoadU(Floats(), at + c), hn::LoadU(Floats(), at + 16 * rows.stride + c),
                              to + i * kSplitBlock + c % kSplitBlock, kSplitPart / 2);
        }
      }
    }
  }

  void score(int64_t r, int64_t, int64_t seen) const {
    const uint16_t* query = query_.data() + r / kSplitBlock * units_ * kLeftUnit;
    for (int64_t c = 0; c < seen; c += kSplitBlock)
      multiply(query, keys_.data() + c / kSplitBlock * units_ * kRightUnit, units_, scores_.data() + c, kStride, false);
  }
  hn::VFromD<Floats> weigh(int64_t i, int64_t n, int64_t seen, float shift) const {
    const Floats d;
    const auto vshift = hn::Set(d, shift);
    auto sums = hn::Zero(d);
    const float* row = scores(i);
    uint32_t* to = pairs(weights_.data()) + i * 16;
    for (int64_t k = 0; k < seen; k += kSplitBlock, row += kSplitBlock, to += kLeftUnit / 2) {
      auto x = hn::Zero(d), y = x;
      if (k < n) {
        x = power_of_two(d, hn::Sub(hn::LoadU(d, row), vshift));
        y = power_of_two(d, hn::Sub(hn::LoadU(d, row + 16), vshift));
      }
      if (k + kSplitBlock > n) {
        x = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(n - k, 0, 16))), x);
        y = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(std::clamp<int64_t>(n - k - 16, 0, 16))), y);
      }
      sums = hn::Add(sums, hn::Add(x, y));
      split_pairs<kLeft>(x, y, to, kSplitPart / 2);
    }
    return sums;
  }
  void add_values(int64_t r, int64_t, int64_t seen, bool first) const {
    for (int64_t c = 0; c < panels_; ++c)
      multiply(weights_.data(), values_.data() + c * blocks(kKeys) * kRightUnit, blocks(seen),
               sums(r) + c * kSplitBlock, panels_ * kSplitBlock, !first);
  }

 private:
  static constexpr int64_t kStride = kKeys + 16;
  static constexpr int64_t kLeftUnit = kLeft * kSplitPart, kRightUnit = kRight * kSplitPart;
  static constexpr auto multiply = kRight == 1 ? multiply_two_by_one : multiply_split_tiles;

  static int64_t blocks(int64_t n) { return (n + kSplitBlock - 1) / kSplitBlock; }
  static int64_t padded(int64_t n) { return blocks(n) * kSplitBlock; }
  static uint32_t* pairs(uint16_t* p) { return reinterpret_cast<uint32_t*>(p); }

  struct Rows {
    const float* data;
    int64_t stride;
  };
  // `count` rows of floats, with zeros behind them up to `rows` rows and whole blocks of columns.
  Rows read_rows(const Head& head, int64_t first, int64_t count, int64_t rows, int64_t columns) const {
    const int64_t stride = padded(columns);
    const bool whole = columns == stride && count == rows;
    if (whole && head.element_size == 4) return {reinterpret_cast<const float*>(head.row(first)), head.row_stride};
    if (!whole) std::fill_n(rows_.data(), rows * stride, 0.0f);
    packer_.rows(head, first, count, columns, rows_.data(), stride);
    return {rows_.data(), stride};
  }
  // An infinity cannot be split: its parts do not add up to it.
  template <int64_t kParts>
  void split_input(hn::VFromD<Floats> x, hn::VFromD<Floats> y, uint32_t* to, int64_t part_stride) {
    const auto largest = hn::Set(Floats(), std::numeric_limits<float>::max());
    split_pairs<kParts>(x, y, to, part_stride);
    fits_ &= hn::AllFalse(Floats(), hn::Gt(hn::Max(hn::Abs(x), hn::Abs(y)), largest));
  }

  const SplitTilesScope scope_;
  bool fits_ = true;
  Packer<float> packer_;
  int64_t depth_, units_, panels_, width_;
  Scratch<uint16_t> query_, keys_, values_, weights_;
  Scratch<float> sums_, scores_, rows_;
};

#endif

}  // namespace
}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // MICA_CPU_ATTENTION_FORWARD_TILES_INL_H_
