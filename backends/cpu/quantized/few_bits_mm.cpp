// Packs weights of 4 or 8 bits in groups, and multiplies rows of activations with them: what a weight stands for is
// (number - 8, or 128 of 8 bits) * scale + zero. With torch's pairs [groups, columns, 2] activations are rounded to 16
// bits in each group; with scales block by block, [columns / 16, groups, 16] or pairs of them, to 8 bits. Of 4 bits a
// group is a multiple of 32, of 8 bits of 16; at most 256. Rows that have no steps
// (infinities, NaN, the smallest numbers) are multiplied as float32 numbers.
#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__F16C__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "backends/cpu/gemm/kernels.h"
#include "backends/cpu/quantized/few_bits.h"
#include "backends/cpu/register.h"
#include "backends/cpu/scratch.h"
#include "backends/cpu/visit_dtype.h"
#include "mica/backend/kernel_types.h"
#include "mica/parallel.h"

namespace mica::cpu {

namespace {

constexpr int kColumns = kFewBitsColumns;
constexpr int kMostRows = 8;
constexpr int64_t kTaskBytes = 32 * 1024;  // bytes of weights that are worth a thread
constexpr int64_t kRowsToWiden = 16;
constexpr int64_t kRowsBytes = 256 * 1024;  // bytes of activations that stay in the second cache

// Where the number of column j and depth k of a block lies: in the lower or the upper half of a byte, or all of it. The
// last chunk may be shorter: there the numbers of a column follow each other.
struct Place {
  Place(int bits, int64_t j, int64_t k, int64_t depth) {
    const int64_t begin = k / kFewBitsChunk * kFewBitsChunk, within = k - begin;
    const int64_t count = std::min<int64_t>(kFewBitsChunk, depth - begin), in_row = kColumns * bits / 8;
    half = static_cast<int>(j / in_row);
    const int64_t at = j % in_row;
    byte = begin * in_row +
           (count == kFewBitsChunk ? within / 4 * few_bits_record(bits) + 4 * at + within % 4 : at * count + within);
  }
  int64_t byte;
  int half;
};

int number_at(const uint8_t* block, int bits, int64_t j, int64_t k, int64_t depth) {
  const Place place(bits, j, k, depth);
  const auto byte = static_cast<int8_t>(block[place.byte]);
  if (bits == 8) return byte;
  return place.half == 1 ? byte >> 4 : (byte & 15) - 8;
}

// float16 numbers of some times 16 columns; both kinds of machine have an instruction for it.
void convert_halves(const char* from, float* to, int64_t count) {
#if defined(__aarch64__)
  const auto* halves = reinterpret_cast<const __fp16*>(from);
  for (int64_t j = 0; j < count; j += 8) {
    const float16x8_t eight = vld1q_f16(halves + j);
    vst1q_f32(to + j, vcvt_f32_f16(vget_low_f16(eight)));
    vst1q_f32(to + j + 4, vcvt_high_f32_f16(eight));
  }
#elif defined(__F16C__)
  for (int64_t j = 0; j < count; j += 8)
    _mm256_storeu_ps(to + j, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 2 * j))));
#else
  for (int64_t j = 0; j < count; ++j) {
    uint16_t bits;
    std::memcpy(&bits, from + 2 * j, 2);
    to[j] = half_to_float(bits);
  }
#endif
}

int bits_of(const TensorView& weights, int64_t depth) { return weights.sizes[1] == depth ? 8 : 4; }

// Scales lie block by block, [blocks, groups, 16], or with the least numbers [blocks, groups, 16, 2]; or as torch has
// both, [groups, columns, 2].
bool by_block(const TensorView& scales) { return scales.ndim == 4 || scales.size(-1) != 2; }

// What the numbers of a block of columns stand for: number * scale + least.
class Meaning {
 public:
  Meaning(const TensorView& scales, int64_t groups)
      : from_(scales),
        groups_(groups),
        width_(scales.size(-1) == 2 ? 2 : 1),
        copy_(gemm_impl::copy_to_sums(scales.dtype)),
        scales_(groups * kColumns),
        least_(groups * kColumns) {}

  void read(int64_t block) {
    const bool near = by_block(from_);
    const int64_t here = kColumns * width_ * element_size(from_.dtype);
    const int64_t row_bytes = near ? here : from_.sizes[1] * width_ * element_size(from_.dtype);
    const char* next = static_cast<const char*>(from_.data) + block * (near ? groups_ * here : here);
    // The scales of a block lie together, and are read in one pass: with one row they are a quarter of the work.
    if (width_ == 1 && near && from_.dtype == DType::Float16)
      return convert_halves(next, scales_.data(), groups_ * kColumns);
    uint32_t any = 0;
    for (int64_t g = 0; g < groups_; ++g, next += row_bytes) {
      float *scales = scales_.data() + g * kColumns, *least = least_.data() + g * kColumns;
      // Prefetches the next block, because no processor foresees such strides.
      if (!near) __builtin_prefetch(next + here);
      if (width_ == 1)
        read_scales(next, scales);
      else if (from_.dtype == DType::BFloat16)
        any |= read_bfloat16_pairs(next, scales, least);
      else
        any |= read_pairs(next, scales, least);
    }
    has_least_ = any << 1 != 0;  // whether any of them is not zero, of either sign
  }

  float value(int number, int64_t g, int64_t j) const {
    const float scaled = static_cast<float>(number) * scales_[g * kColumns + j];
    return has_least_ ? scaled + least_[g * kColumns + j] : scaled;
  }

  const float* scales() const { return scales_.data(); }
  const float* least() const { return has_least_ ? least_.data() : nullptr; }

 private:
  void read_scales(const char* from, float* to) const {
    if (from_.dtype == DType::Float16) return convert_halves(from, to, kColumns);
    copy_(from, to, {1, kColumns, kColumns, 1, kColumns, 1});
  }

  // These two return the bits that any of the least numbers has.
  static uint32_t read_bfloat16_pairs(const char* from, float* scales, float* least) {
    uint32_t pairs[kColumns], any = 0;
    std::memcpy(pairs, from, sizeof pairs);
    for (int j = 0; j < kColumns; ++j) {
      const uint32_t upper = pairs[j] & 0xffff0000u;
      scales[j] = std::bit_cast<float>(pairs[j] << 16);
      least[j] = std::bit_cast<float>(upper);
      any |= upper;
    }
    return any;
  }

  uint32_t read_pairs(const char* from, float* scales, float* least) const {
    float pairs[2 * kColumns];
    copy_(from, pairs, {1, 2 * kColumns, 2 * kColumns, 1, 2 * kColumns, 1});
    uint32_t any = 0;
    for (int j = 0; j < kColumns; ++j) {
      scales[j] = pairs[2 * j];
      least[j] = pairs[2 * j + 1];
      any |= std::bit_cast<uint32_t>(pairs[2 * j + 1]);
    }
    return any;
  }

  TensorView from_;
  int64_t groups_;
  int64_t width_;
  gemm_impl::CopyFn copy_;
  Scratch<float> scales_, least_;
  bool has_least_ = false;
};

// ---- products

struct Products {
  TensorView out, self, weights, scales;
  int64_t group;
  int planes;
};

template <class T>
void store(const float* sums, int rows, T* to, int64_t stride, int64_t columns) {
  for (int r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; ++j) to[r * stride + j] = static_cast<T>(sums[r * kColumns + j]);
}

// A row of self with a block of weights, one number after the other.
template <class T>
void plain_row(const T* row, const uint8_t* block, int bits, int64_t depth, int64_t group, const Meaning& meaning,
               float* sums) {
  for (int j = 0; j < kColumns; ++j) {
    sums[j] = 0;
    for (int64_t k = 0; k < depth; ++k)
      sums[j] += static_cast<float>(row[k]) * meaning.value(number_at(block, bits, j, k, depth), k / group, j);
  }
}

// Turns a block of 4-bit numbers into one of 8-bit numbers.
void widen(const uint8_t* from, int64_t depth, uint8_t* to) {
  constexpr int64_t kRecord = few_bits_record(4);
  for (int64_t k = 0; k < depth; k += 4, from += kRecord, to += 2 * kRecord)
    for (int64_t i = 0; i < kRecord; ++i) {
      to[i] = static_cast<uint8_t>((from[i] & 15) - 8);
      to[kRecord + i] = static_cast<uint8_t>(static_cast<int8_t>(from[i]) >> 4);
    }
}

// Whether the function for one row and groups of 32 with float16 scales is there and can be used.
bool takes_row(const FewBits& machine, const Products& p, int bits) {
  return machine.row[bits == 8] && p.out.sizes[0] == 1 && p.planes == 1 && p.group == kFewBitsRowGroup &&
         p.scales.dtype == DType::Float16 && p.scales.size(-1) != 2;
}

template <class T>
void row_products(const FewBits& machine, const Products& p, const SplitRows& split, int bits) {
  const int64_t columns = p.out.sizes[1], depth = p.self.sizes[1], groups = split.groups;
  const int64_t blocks = (columns + kColumns - 1) / kColumns, block_bytes = kColumns * depth * bits / 8;
  const int32_t more = bits == 4 ? 8 : 0;
  const Scratch<int32_t> starts(4 * groups);
  for (int64_t i = 0; i < 4 * groups; ++i) starts[i] = kFewBitsStart - more * split.sums(0)[i / 4];
  parallel_for(0, blocks, 1 + kTaskBytes / (block_bytes + 1), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      float sums[kColumns];
      T* const out = p.out.ptr<T>() + block * kColumns;
      const int64_t count = std::min<int64_t>(kColumns, columns - block * kColumns);
      bool straight = false;
      if constexpr (std::is_same_v<T, float>) straight = count == kColumns;
      machine.row[bits == 8]({p.weights.ptr<const uint8_t>() + block * block_bytes,
                              p.scales.ptr<const uint16_t>() + block * groups * kColumns, groups, split.plane(0),
                              split.steps.data(), starts.data(), straight ? reinterpret_cast<float*>(out) : sums});
      if (!straight) store(sums, 1, out, columns, count);
    }
  });
}

// Whether the function for one row and pairs of bfloat16 numbers is there and can be used.
bool takes_pairs_row(const FewBits& machine, const Products& p, int bits) {
  return machine.pairs_row && p.out.sizes[0] == 1 && p.planes == 2 && bits == 4 && p.scales.dtype == DType::BFloat16 &&
         !by_block(p.scales);
}

template <class T>
void pairs_row_products(const FewBits& machine, const Products& p, const SplitRows& split) {
  const int64_t columns = p.out.sizes[1], blocks = (columns + kColumns - 1) / kColumns;
  const int64_t block_bytes = kColumns * p.self.sizes[1] / 2, pair_bytes = 2 * element_size(p.scales.dtype);
  parallel_for(0, blocks, 1 + kTaskBytes / (block_bytes + 1), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      float sums[kColumns];
      machine.pairs_row({p.weights.ptr<const uint8_t>() + block * block_bytes,
                         static_cast<const char*>(p.scales.data) + block * kColumns * pair_bytes,
                         columns * pair_bytes,
                         split.groups,
                         p.group,
                         {split.plane(0), split.plane(1)},
                         split.steps.data(),
                         split.group_sums.data(),
                         {split.sums(0), split.sums(1)},
                         sums});
      store(sums, 1, p.out.ptr<T>() + block * kColumns, columns,
            std::min<int64_t>(kColumns, columns - block * kColumns));
    }
  });
}

template <class T>
void few_bits_products(const Products& p) {
  static const FewBits& machine = few_bits();
  const int64_t all_rows = p.out.sizes[0], columns = p.out.sizes[1], depth = p.self.sizes[1];
  const int64_t groups = depth / p.group, blocks = (columns + kColumns - 1) / kColumns;
  const int bits = bits_of(p.weights, depth);
  const int64_t block_bytes = kColumns * depth * bits / 8;
  const int64_t rows_at_once = std::max<int64_t>(16, kRowsBytes / (depth * p.planes + 1) / kMostRows * kMostRows);
  for (int64_t row = 0; row < all_rows; row += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, all_rows - row);
    const T* const self = p.self.ptr<const T>() + row * depth;
    T* const out = p.out.ptr<T>() + row * columns;
    const SplitRows split(self, p.self.dtype, rows, depth, p.group, p.planes);
    if (takes_row(machine, p, bits) && split.has_steps[0]) return row_products<T>(machine, p, split, bits);
    if (takes_pairs_row(machine, p, bits) && split.has_steps[0]) return pairs_row_products<T>(machine, p, split);
    const bool widens = bits == 4 && machine.widens && rows >= kRowsToWiden;
    parallel_for(0, blocks, 1 + kTaskBytes / (block_bytes + 1), [&](int64_t begin, int64_t end) {
      Meaning meaning(p.scales, groups);
      const Scratch<uint8_t> wide(widens ? kColumns * depth : 0);
      float sums[kMostRows * kColumns];
      for (int64_t block = begin; block < end; ++block) {
        meaning.read(block);
        const uint8_t* weights = p.weights.ptr<const uint8_t>() + block * block_bytes;
        const int64_t count = std::min<int64_t>(kColumns, columns - block * kColumns);
        if (widens) widen(weights, depth, wide.data());
        const uint8_t* from = widens ? wide.data() : weights;
        FewBitsTile tile{from, meaning.scales(), meaning.least(), groups, p.group, {}, nullptr, nullptr, {},
                         sums, kColumns};
        for (int64_t r = 0; r < rows;) {
          int step = rows - r >= machine.most_rows ? FewBits::kSteps - 1 : rows - r >= 4 ? 2 : rows - r >= 2 ? 1 : 0;
          const int here = step == FewBits::kSteps - 1 ? machine.most_rows : 1 << step;
          for (int plane = 0; plane < p.planes; ++plane) {
            tile.planes[plane] = split.plane(plane) + r * depth;
            tile.plane_sums[plane] = split.sums(plane) + r * groups;
          }
          tile.steps = split.steps.data() + r * groups;
          tile.sums = split.group_sums.data() + r * groups;
          machine.tile[bits == 8 || widens][p.planes - 1][step](tile);
          for (int i = 0; i < here; ++i)
            if (!split.has_steps[r + i])
              plain_row(self + (r + i) * depth, weights, bits, depth, p.group, meaning, sums + i * kColumns);
          store(sums, here, out + r * columns + block * kColumns, columns, count);
          r += here;
        }
      }
    });
  }
}

// ---- slots

// Flipping one bit turns a number that counts from 0 into a signed one.
template <class T>
uint8_t turned(T number, int bits, int half) {
  return static_cast<uint8_t>(bits == 8 ? (number & 255) ^ 128 : half == 0 ? number & 15 : ((number & 15) ^ 8) << 4);
}

template <class T>
void pack(const TensorView& out, const TensorView& self) {
  const int64_t rows = self.sizes[0], depth = self.sizes[1], blocks = out.sizes[0] / kColumns;
  const int bits = bits_of(out, depth);
  const int64_t block_bytes = kColumns * depth * bits / 8;
  parallel_for(0, blocks, 1 + 32768 / (kColumns * depth + 1), [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      uint8_t* to = out.ptr<uint8_t>() + block * block_bytes;
      std::memset(to, 0, static_cast<size_t>(block_bytes));
      for (int64_t j = 0; j < std::min<int64_t>(kColumns, rows - block * kColumns); ++j) {
        const T* row = self.ptr<const T>() + (block * kColumns + j) * depth;
        // Whole chunks are written in the order of their bytes, the rest by its places.
        const int64_t whole = depth / kFewBitsChunk * kFewBitsChunk, record = few_bits_record(bits);
        const int half = static_cast<int>(j / (kColumns * bits / 8));
        for (int64_t k = 0; k < whole; k += kFewBitsChunk) {
          uint8_t* const records = to + Place(bits, j, k, depth).byte;
          for (int64_t i = 0; i < kFewBitsChunk; ++i) records[i / 4 * record + i % 4] |= turned(row[k + i], bits, half);
        }
        for (int64_t k = whole; k < depth; ++k) to[Place(bits, j, k, depth).byte] |= turned(row[k], bits, half);
      }
    }
  });
}

void int4_pack_kernel(const TensorView& out, const TensorView& self) {
  if (self.dtype == DType::UInt8) return pack<uint8_t>(out, self);
  pack<int32_t>(out, self);
}

void int4_mm_kernel(const TensorView& out, const TensorView& self, const TensorView& weights, const TensorView& scales,
                    int64_t group) {
  const Products products{out, self, weights, scales, group, by_block(scales) ? 1 : 2};
  visit_floating("int4_mm", self.dtype, [&](auto tag) { few_bits_products<typename decltype(tag)::type>(products); });
}

MICA_REGISTER_CPU(int4_pack, int4_pack_kernel);
MICA_REGISTER_CPU(int4_mm, int4_mm_kernel);

}  // namespace
}  // namespace mica::cpu
