// The tile of few_bits.h, once for every machine. Whoever includes it has defined MICA_FEW_BITS_TARGET, the
// instructions that functions may use, and gives a class M:
//   Sums, Floats      vectors of M::kLanes columns
//   Activations       16 adjacent activations of a row, of which `dot` takes the four of one lane
//   numbers           weights as bytes, kTimes<kBits> what they are, and more by kMore<kBits>
#if !defined(MICA_FEW_BITS_TARGET)
#error "define the instructions first"
#endif

// Vectors of columns whose sums stay in registers together: few rows leave room for more.
template <class M, int kRows>
constexpr int few_bits_together() {
  constexpr int kParts = kFewBitsColumns / M::kLanes;
  constexpr int kRoom = M::kMostSums / kRows;
  return kRoom < 1 ? 1 : kRoom < kParts ? kRoom : kParts;
}

template <class M, int kBits, int kRows, int kTogether>
MICA_FEW_BITS_TARGET inline __attribute__((always_inline)) void few_bits_chunk_products(
    typename M::Sums (&sum)[kRows][kTogether], const uint8_t* weights, const int8_t* activations, int64_t row_stride) {
  constexpr int kHalves = kBits == 4 ? 2 : 1;
#pragma GCC unroll 2
  for (int half = 0; half < kHalves; ++half) {
    typename M::Activations left[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) left[r] = M::activations(activations + r * row_stride + 16 * half);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
      for (int t = 0; t < kTogether; ++t) {
        const typename M::Bytes right =
            M::template numbers<kBits>(weights + kFewBitsRecord * i + 4 * M::kLanes * t, half);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r][t] = M::template dot<kBits>(sum[r][t], right, left[r], i);
      }
  }
}

template <class M, int kBits, int kPlanes, int kRows>
MICA_FEW_BITS_TARGET void few_bits_tile(const FewBitsTile& tile) {
  constexpr int kTogether = few_bits_together<M, kRows>();
  constexpr int64_t kChunk = few_bits_chunk(kBits);
  constexpr float kTimes = M::template kTimes<kBits>;
  constexpr int32_t kMore = M::template kMore<kBits>;
  const int64_t depth = tile.groups * tile.group;
  for (int first = 0; first < kFewBitsColumns; first += kTogether * M::kLanes) {
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
        for (int r = 0; r < kRows; ++r) {
          const auto start = M::all(kMore ? -kMore * tile.plane_sums[plane][r * tile.groups + g] : 0);
#pragma GCC unroll 4
          for (int t = 0; t < kTogether; ++t)
            sum[r][t] = plane == 0 ? start : M::add(start, M::times(sum[r][t], kPlaneBase));
        }
        const uint8_t* from = weights;
        const int8_t* activations = tile.planes[plane] + g * tile.group;
        for (int64_t k = 0; k < tile.group; k += kChunk, from += 4 * kFewBitsRecord)
          few_bits_chunk_products<M, kBits, kRows, kTogether>(sum, from, activations + k, depth);
      }
      weights += tile.group / kChunk * 4 * kFewBitsRecord;
      const float* scales = tile.scales + g * kFewBitsColumns + first;
#pragma GCC unroll 4
      for (int t = 0; t < kTogether; ++t) {
        const typename M::Floats scale = M::load(scales + M::kLanes * t);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          total[r][t] =
              M::add_product(total[r][t], M::floats(sum[r][t]), M::times(scale, tile.steps[r * tile.groups + g]));
      }
      if (tile.least) {
#pragma GCC unroll 4
        for (int t = 0; t < kTogether; ++t) {
          const typename M::Floats least = M::load(tile.least + g * kFewBitsColumns + first + M::kLanes * t);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r)
            total[r][t] = M::add_product(total[r][t], least, M::all(kTimes * tile.sums[r * tile.groups + g]));
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (int t = 0; t < kTogether; ++t)
        M::store(tile.out + r * tile.out_stride + first + M::kLanes * t, M::times(total[r][t], 1 / kTimes));
  }
}

template <class M>
constexpr FewBits make_few_bits() {
  constexpr int kMost = M::kMostRows;  // a tile of 8 rows that does not fit is never asked for
  return {kMost,
          M::kWidens,
          {{{few_bits_tile<M, 4, 1, 1>, few_bits_tile<M, 4, 1, 2>, few_bits_tile<M, 4, 1, 4>,
             few_bits_tile<M, 4, 1, kMost>},
            {few_bits_tile<M, 4, 2, 1>, few_bits_tile<M, 4, 2, 2>, few_bits_tile<M, 4, 2, 4>,
             few_bits_tile<M, 4, 2, kMost>}},
           {{few_bits_tile<M, 8, 1, 1>, few_bits_tile<M, 8, 1, 2>, few_bits_tile<M, 8, 1, 4>,
             few_bits_tile<M, 8, 1, kMost>},
            {few_bits_tile<M, 8, 2, 1>, few_bits_tile<M, 8, 2, 2>, few_bits_tile<M, 8, 2, 4>,
             few_bits_tile<M, 8, 2, kMost>}}}};
}
