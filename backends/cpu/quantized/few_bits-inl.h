// The tile of few_bits.h, once for every machine. Whoever includes it has defined MICA_FEW_BITS_TARGET, the
// instructions that functions may use, and gives a class M, or two, for each width of weights:
//   Sums, Floats      vectors of M::kLanes columns
//   Activations       16 adjacent activations of a row, of which `dot` takes the four of one lane
//   numbers           8-bit weights as bytes, more than they are by kMore
//   pairs, low, high  4-bit weights: the bytes of a record, and the two columns in them, more by kMoreLow and
//   kMoreHigh.
//                     With kJoined, high still has the number of low in it, and 16 times its own.
//   kAddsToFloats     whether sums are added to the bits of a float (kFewBitsStart), because that is faster than to
//                     convert them. One plane and groups of at most 128 have sums that are small enough for it.
#if !defined(MICA_FEW_BITS_TARGET)
#error "define the instructions first"
#endif

// Vectors of columns whose sums stay in registers together: few rows leave room for more.
// Of 4 bits the first half of them are lower halves of bytes, the second half the upper ones.
template <class M, int kBits, int kRows>
constexpr int few_bits_together() {
  constexpr int kParts = kFewBitsColumns / M::kLanes, kLeast = kBits == 4 ? 2 : 1;
  constexpr int kRoom = M::kMostSums / kRows;
  return kRoom < kLeast ? kLeast : kRoom < kParts ? kRoom : kParts;
}

template <class M, int kBits, int kRows, int kTogether>
MICA_FEW_BITS_TARGET inline __attribute__((always_inline)) void few_bits_chunk_products(
    typename M::Sums (&sum)[kRows][kTogether], const uint8_t* weights, const int8_t* activations, int64_t row_stride) {
  constexpr int64_t kRecord = few_bits_record(kBits);
  typename M::Activations left[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) left[r] = M::activations(activations + r * row_stride);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i)
    if constexpr (kBits == 8) {
#pragma GCC unroll 4
      for (int t = 0; t < kTogether; ++t) {
        const typename M::Bytes right = M::numbers(weights + kRecord * i + 4 * M::kLanes * t);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r][t] = M::template dot<8>(sum[r][t], right, left[r], i);
      }
    } else {
      constexpr int kHalf = kTogether / 2;
#pragma GCC unroll 4
      for (int t = 0; t < kHalf; ++t) {
        const typename M::Bytes both = M::pairs(weights + kRecord * i + 4 * M::kLanes * t);
        const typename M::Bytes low = M::low(both), high = M::high(both);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          sum[r][t] = M::template dot<4>(sum[r][t], low, left[r], i);
          sum[r][kHalf + t] = M::template dot<4>(sum[r][kHalf + t], high, left[r], i);
        }
      }
    }
}

// The first of the columns of vector t.
template <class M, int kBits, int kTogether>
MICA_FEW_BITS_TARGET inline __attribute__((always_inline)) constexpr int few_bits_column(int first, int t) {
  constexpr int kHalf = kTogether / 2;
  return first + (kBits == 4 && t >= kHalf ? kFewBitsColumns / 2 + M::kLanes * (t - kHalf) : M::kLanes * t);
}

template <class M, int kBits, int kPlanes, int kRows>
MICA_FEW_BITS_TARGET void few_bits_tile(const FewBitsTile& tile) {
  constexpr int kTogether = few_bits_together<M, kBits, kRows>(), kHalf = kTogether / 2;
  constexpr bool kPairs = kBits == 4, kJoined = kPairs && M::kJoined, kAdds = kPlanes == 1 && M::kAddsToFloats;
  constexpr int kFirsts = kPairs ? kFewBitsColumns / 2 : kFewBitsColumns;
  const int64_t depth = tile.groups * tile.group;
  for (int first = 0; first < kFirsts; first += (kPairs ? kHalf : kTogether) * M::kLanes) {
    typename M::Floats total[kRows][kTogether];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int t = 0; t < kTogether; ++t) total[r][t] = M::all(0.0f);
    const uint8_t* weights = tile.weights + 4 * first;
    for (int64_t g = 0; g < tile.groups; ++g) {
      typename M::Sums sum[kRows][kTogether];
#pragma GCC unroll 2
      for (int plane = 0; plane < kPlanes; ++plane) {
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
          for (int t = 0; t < kTogether; ++t) {
            const int32_t more = !kPairs ? M::kMore : t < kHalf ? M::kMoreLow : M::kMoreHigh;
            const auto start =
                M::all((kAdds ? kFewBitsStart : 0) - (more ? more * tile.plane_sums[plane][r * tile.groups + g] : 0));
            sum[r][t] = plane == 0 ? start : M::add(start, M::times(sum[r][t], kPlaneBase));
          }
        const uint8_t* from = weights;
        const int8_t* activations = tile.planes[plane] + g * tile.group;
        for (int64_t k = 0; k < tile.group; k += kFewBitsChunk, from += 4 * few_bits_record(kBits))
          few_bits_chunk_products<M, kBits, kRows, kTogether>(sum, from, activations + k, depth);
      }
      weights += tile.group / kFewBitsChunk * 4 * few_bits_record(kBits);
      const float* scales = tile.scales + g * kFewBitsColumns;
#pragma GCC unroll 4
      for (int t = 0; t < kTogether; ++t) {
        const typename M::Floats scale = M::load(scales + few_bits_column<M, kBits, kTogether>(first, t));
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          typename M::Floats value;
          if constexpr (kAdds)
            value = M::difference(sum[r][t], kJoined && t >= kHalf ? sum[r][t - kHalf] : M::all(kFewBitsStart));
          else if constexpr (kJoined)
            value = M::floats(t >= kHalf ? M::subtract(sum[r][t], sum[r][t - kHalf]) : sum[r][t]);
          else
            value = M::floats(sum[r][t]);
          total[r][t] = M::add_product(total[r][t], value, M::times(scale, tile.steps[r * tile.groups + g]));
        }
      }
      if (tile.least) {
#pragma GCC unroll 4
        for (int t = 0; t < kTogether; ++t) {
          const typename M::Floats least =
              M::load(tile.least + g * kFewBitsColumns + few_bits_column<M, kBits, kTogether>(first, t));
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const float sums = tile.sums[r * tile.groups + g];
            total[r][t] = M::add_product(total[r][t], least, M::all((kJoined && t >= kHalf) ? 16 * sums : sums));
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int t = 0; t < kTogether; ++t)
        M::store(tile.out + r * tile.out_stride + few_bits_column<M, kBits, kTogether>(first, t),
                 (kJoined && t >= kHalf) ? M::times(total[r][t], 1.0f / 16) : total[r][t]);
  }
}

// M4 and M8 are the classes for weights of 4 and of 8 bits.
template <class M4, class M8>
constexpr FewBits make_few_bits(FewBits::Row* row4 = nullptr, FewBits::Row* row8 = nullptr,
                                FewBits::PairsRow* pairs_row = nullptr) {
  constexpr int kMost = M8::kMostRows;  // a tile of 8 rows that does not fit is never asked for
  return {kMost,
          M8::kWidens,
          {{{few_bits_tile<M4, 4, 1, 1>, few_bits_tile<M4, 4, 1, 2>, few_bits_tile<M4, 4, 1, 4>,
             few_bits_tile<M4, 4, 1, kMost>},
            {few_bits_tile<M4, 4, 2, 1>, few_bits_tile<M4, 4, 2, 2>, few_bits_tile<M4, 4, 2, 4>,
             few_bits_tile<M4, 4, 2, kMost>}},
           {{few_bits_tile<M8, 8, 1, 1>, few_bits_tile<M8, 8, 1, 2>, few_bits_tile<M8, 8, 1, 4>,
             few_bits_tile<M8, 8, 1, kMost>},
            {few_bits_tile<M8, 8, 2, 1>, few_bits_tile<M8, 8, 2, 2>, few_bits_tile<M8, 8, 2, 4>,
             few_bits_tile<M8, 8, 2, kMost>}}},
          {row4, row8},
          pairs_row};
}
