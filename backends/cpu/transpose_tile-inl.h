// Squares of elements in registers: rows become columns.
#if defined(MICA_TRANSPOSE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_TRANSPOSE_TILE_INL_H_
#undef MICA_TRANSPOSE_TILE_INL_H_
#else
#define MICA_TRANSPOSE_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Rows become columns within each block of 16 bytes, for as many vectors as a block has elements.
template <class D, class V>
HWY_INLINE void transpose_blocks(D d, V* rows) {
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    const V a = hn::InterleaveLower(d, rows[0], rows[1]), b = hn::InterleaveUpper(d, rows[0], rows[1]);
    rows[0] = a;
    rows[1] = b;
  } else {
    const hn::RepartitionToWide<D> wide;
    const V a = hn::InterleaveLower(d, rows[0], rows[1]), b = hn::InterleaveLower(d, rows[2], rows[3]);
    const V c = hn::InterleaveUpper(d, rows[0], rows[1]), e = hn::InterleaveUpper(d, rows[2], rows[3]);
    const auto lower = [&](V x, V y) {
      return hn::BitCast(d, hn::InterleaveLower(wide, hn::BitCast(wide, x), hn::BitCast(wide, y)));
    };
    const auto upper = [&](V x, V y) {
      return hn::BitCast(d, hn::InterleaveUpper(wide, hn::BitCast(wide, x), hn::BitCast(wide, y)));
    };
    rows[0] = lower(a, b);
    rows[1] = upper(a, b);
    rows[2] = lower(c, e);
    rows[3] = upper(c, e);
  }
}

// Block b of vector a becomes block a of vector b, for four vectors of four blocks.
template <class D, class V>
HWY_INLINE void exchange_blocks(D d, V& r0, V& r1, V& r2, V& r3) {
#if HWY_TARGET == HWY_AVX3  // two blocks of each of two vectors in one instruction
  const hn::Repartition<float, D> f;
  const auto blocks = [&](V x, V y, auto control) {
    return hn::BitCast(d, hn::Vec<decltype(f)>{_mm512_shuffle_f32x4(hn::BitCast(f, x).raw, hn::BitCast(f, y).raw,
                                                                    decltype(control)::value)});
  };
  const std::integral_constant<int, 0x88> even;
  const std::integral_constant<int, 0xDD> odd;
  const V even01 = blocks(r0, r1, even), even23 = blocks(r2, r3, even);
  const V odd01 = blocks(r0, r1, odd), odd23 = blocks(r2, r3, odd);
  r0 = blocks(even01, even23, even);
  r1 = blocks(odd01, odd23, even);
  r2 = blocks(even01, even23, odd);
  r3 = blocks(odd01, odd23, odd);
#else
  const V low_even = hn::ConcatLowerLower(d, r2, r0), high_even = hn::ConcatUpperUpper(d, r2, r0);
  const V low_odd = hn::ConcatLowerLower(d, r3, r1), high_odd = hn::ConcatUpperUpper(d, r3, r1);
  r0 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(low_odd), low_even);
  r1 = hn::OddEvenBlocks(low_odd, hn::SwapAdjacentBlocks(low_even));
  r2 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(high_odd), high_even);
  r3 = hn::OddEvenBlocks(high_odd, hn::SwapAdjacentBlocks(high_even));
#endif
}

// Turns rows into columns, for as many vectors as a vector has lanes: first within squares of one block (16 bytes),
// then by blocks.
template <class D, class V>
HWY_INLINE void transpose_tile(D d, V* rows) {
  constexpr int kSide = 16 / sizeof(hn::TFromD<D>), kBlocks = hn::MaxLanes(D()) / kSide;
  static_assert(kBlocks == 1 || kBlocks == 2 || kBlocks == 4);
#pragma GCC unroll 4
  for (int g = 0; g < kBlocks; ++g) transpose_blocks(d, rows + g * kSide);
  if constexpr (kBlocks == 2) {
#pragma GCC unroll 4
    for (int j = 0; j < kSide; ++j) {
      const V a = rows[j], b = rows[kSide + j];
      rows[j] = hn::ConcatLowerLower(d, b, a);
      rows[kSide + j] = hn::ConcatUpperUpper(d, b, a);
    }
  }
  if constexpr (kBlocks == 4) {
#pragma GCC unroll 4
    for (int j = 0; j < kSide; ++j)
      exchange_blocks(d, rows[j], rows[kSide + j], rows[2 * kSide + j], rows[3 * kSide + j]);
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
