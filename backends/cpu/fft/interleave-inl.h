// Pairs of numbers in memory as two vectors, real and imaginary parts, which change places where a transform goes
// backward.
#if defined(MICA_FFT_INTERLEAVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_FFT_INTERLEAVE_INL_H_
#undef MICA_FFT_INTERLEAVE_INL_H_
#else
#define MICA_FFT_INTERLEAVE_INL_H_
#endif

#include <hwy/highway.h>

#include <utility>

#include "backends/cpu/fft/butterflies-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// The lane of pair `pair` in vectors whose halves are made by `lower_pairs` and `upper_pairs`: these are in the order
// of memory where lane l is pair pair_of_lane(l).
template <class T, int kLanes>
constexpr int pair_of_lane(int lane) {
  constexpr int kSide = 16 / sizeof(T), kHalf = kSide / 2;
  const int block = lane / kSide, at = lane % kSide;
  return at < kHalf ? kHalf * block + at : kLanes / 2 + kHalf * block + at - kHalf;
}

#if HWY_TARGET == HWY_AVX3

// With vectors of 64 bytes the permutation is itself a vector, so that both directions are the same instructions.
template <class T>
struct Order {
  alignas(64) static constexpr int32_t kParts32[2][16] = {{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30},
                                                          {1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31}};
  alignas(64) static constexpr int64_t kParts64[2][8] = {{0, 2, 4, 6, 8, 10, 12, 14}, {1, 3, 5, 7, 9, 11, 13, 15}};
  alignas(64) static constexpr int32_t kLower32[2][16] = {{0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29},
                                                          {16, 0, 17, 1, 20, 4, 21, 5, 24, 8, 25, 9, 28, 12, 29, 13}};
  alignas(64) static constexpr int32_t kUpper32[2][16] = {{2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31},
                                                          {18, 2, 19, 3, 22, 6, 23, 7, 26, 10, 27, 11, 30, 14, 31, 15}};
  alignas(64) static constexpr int64_t kLower64[2][8] = {{0, 8, 2, 10, 4, 12, 6, 14}, {8, 0, 10, 2, 12, 4, 14, 6}};
  alignas(64) static constexpr int64_t kUpper64[2][8] = {{1, 9, 3, 11, 5, 13, 7, 15}, {9, 1, 11, 3, 13, 5, 15, 7}};

  alignas(64) static constexpr int32_t kFront32[2][16] = {{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23},
                                                          {16, 0, 17, 1, 18, 2, 19, 3, 20, 4, 21, 5, 22, 6, 23, 7}};
  alignas(64) static constexpr int32_t kBack32[2][16] = {
      {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31},
      {24, 8, 25, 9, 26, 10, 27, 11, 28, 12, 29, 13, 30, 14, 31, 15}};
  alignas(64) static constexpr int64_t kFront64[2][8] = {{0, 8, 1, 9, 2, 10, 3, 11}, {8, 0, 9, 1, 10, 2, 11, 3}};
  alignas(64) static constexpr int64_t kBack64[2][8] = {{4, 12, 5, 13, 6, 14, 7, 15}, {12, 4, 13, 5, 14, 6, 15, 7}};

  __m512i first, second, lower, upper, front, back;
  explicit Order(bool backward) {
    constexpr bool kWide = sizeof(T) == 8;
    const int at = backward ? 1 : 0;
    const auto chosen = [](const int64_t* wide, const int32_t* narrow) {
      return kWide ? _mm512_load_si512(wide) : _mm512_load_si512(narrow);
    };
    first = chosen(kParts64[at], kParts32[at]);
    second = chosen(kParts64[1 - at], kParts32[1 - at]);
    lower = chosen(kLower64[at], kLower32[at]);
    upper = chosen(kUpper64[at], kUpper32[at]);
    front = chosen(kFront64[at], kFront32[at]);
    back = chosen(kBack64[at], kBack32[at]);
  }

  static HWY_INLINE hn::Vec<hn::ScalableTag<T>> pick(hn::Vec<hn::ScalableTag<T>> a, __m512i order,
                                                     hn::Vec<hn::ScalableTag<T>> b) {
    if constexpr (sizeof(T) == 8) {
      return {_mm512_permutex2var_pd(a.raw, order, b.raw)};
    } else {
      return {_mm512_permutex2var_ps(a.raw, order, b.raw)};
    }
  }
  HWY_INLINE Parts<hn::Vec<hn::ScalableTag<T>>> parts(const T* from) const {
    const hn::ScalableTag<T> d;
    const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + hn::Lanes(d));
    return {pick(a, first, b), pick(a, second, b)};
  }
  // Pair l is lane l.
  HWY_INLINE void put(Parts<hn::Vec<hn::ScalableTag<T>>> x, T* to) const {
    const hn::ScalableTag<T> d;
    hn::StoreU(pick(x.re, front, x.im), d, to);
    hn::StoreU(pick(x.re, back, x.im), d, to + hn::Lanes(d));
  }
  HWY_INLINE auto lower_pairs(Parts<hn::Vec<hn::ScalableTag<T>>> x) const { return pick(x.re, lower, x.im); }
  HWY_INLINE auto upper_pairs(Parts<hn::Vec<hn::ScalableTag<T>>> x) const { return pick(x.re, upper, x.im); }
};

#else

template <class T>
struct Order {
  bool backward;
  explicit Order(bool exchanged) : backward(exchanged) {}

  HWY_INLINE Parts<hn::Vec<hn::ScalableTag<T>>> parts(const T* from) const {
    const hn::ScalableTag<T> d;
    hn::Vec<decltype(d)> re, im;
    hn::LoadInterleaved2(d, from, re, im);
    return backward ? Parts<decltype(re)>{im, re} : Parts<decltype(re)>{re, im};
  }
  HWY_INLINE void put(Parts<hn::Vec<hn::ScalableTag<T>>> x, T* to) const {
    if (backward) std::swap(x.re, x.im);
    hn::StoreInterleaved2(x.re, x.im, hn::ScalableTag<T>(), to);
  }
  HWY_INLINE auto lower_pairs(Parts<hn::Vec<hn::ScalableTag<T>>> x) const {
    if (backward) std::swap(x.re, x.im);
    return hn::InterleaveLower(hn::ScalableTag<T>(), x.re, x.im);
  }
  HWY_INLINE auto upper_pairs(Parts<hn::Vec<hn::ScalableTag<T>>> x) const {
    if (backward) std::swap(x.re, x.im);
    return hn::InterleaveUpper(hn::ScalableTag<T>(), x.re, x.im);
  }
};

#endif

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
