// Sequences between memory and lanes. Three cases: lanes that lie side by side in memory, sequences whose elements do
// (a transpose in registers), and any other.
#if defined(MICA_FFT_LANE_IO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MICA_FFT_LANE_IO_INL_H_
#undef MICA_FFT_LANE_IO_INL_H_
#else
#define MICA_FFT_LANE_IO_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "backends/cpu/fft/passes-inl.h"
#include "backends/cpu/transpose_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::HWY_NAMESPACE {

// Where the lanes' sequences begin; lanes without one repeat the first.
struct LaneOffsets {
  int64_t at[HWY_MAX_BYTES / 4] = {};
  int64_t used, lanes;
  LaneOffsets(const int64_t* offsets, int64_t count, size_t width) : used(count), lanes(static_cast<int64_t>(width)) {
    for (int64_t l = 0; l < lanes; ++l) at[l] = offsets[l < used ? l : 0];
  }
  bool adjacent(int64_t step) const {
    if (used != lanes) return false;
    for (int64_t l = 1; l < lanes; ++l)
      if (at[l] != at[0] + step * l) return false;
    return true;
  }
};

// Reads pairs of numbers that lie side by side, a cache line of each lane at a time: pairs are exchanged as wholes, and
// their parts are separated last. Returns how many elements were read; none where vectors are short, which have their
// own way. `next` is where the lanes after these begin, or null: their lines are prefetched meanwhile.
template <class T>
int64_t load_pair_tiles(const T* in, const LaneOffsets& lanes, int64_t n, Sequence<T> to, const int64_t* next) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = hn::MaxLanes(d), kPairs = kLanes / 2;
  int64_t k = 0;
  if constexpr (sizeof(T) == 4 && kLanes > 4) {
    const hn::ScalableTag<double> pairs;
    using V = hn::Vec<decltype(pairs)>;
    for (; k + kPairs <= n; k += kPairs) {
      V low[kPairs], high[kPairs];
#pragma GCC unroll 8
      for (int64_t l = 0; l < kPairs; ++l) {
        low[l] = hn::BitCast(pairs, hn::LoadU(d, in + lanes.at[l] + 2 * k));
        high[l] = hn::BitCast(pairs, hn::LoadU(d, in + lanes.at[kPairs + l] + 2 * k));
      }
      if (next)
        for (int64_t l = 0; l < kLanes; ++l) hwy::Prefetch(in + next[l] + 2 * k);
      transpose_tile(pairs, low);
      transpose_tile(pairs, high);
#pragma GCC unroll 8
      for (int64_t r = 0; r < kPairs; ++r) {
        const auto a = hn::BitCast(d, low[r]), b = hn::BitCast(d, high[r]);
        hn::Store(hn::ConcatEven(d, b, a), d, to.re + (k + r) * kLanes);
        hn::Store(hn::ConcatOdd(d, b, a), d, to.im + (k + r) * kLanes);
      }
    }
  }
  if constexpr (sizeof(T) == 8 && kLanes == 8) {
    for (; k + 4 <= n; k += 4) {  // a pair is a block
      hn::Vec<decltype(d)> low[4], high[4];
#pragma GCC unroll 4
      for (int64_t l = 0; l < 4; ++l) {
        low[l] = hn::LoadU(d, in + lanes.at[l] + 2 * k);
        high[l] = hn::LoadU(d, in + lanes.at[4 + l] + 2 * k);
      }
      if (next)
        for (int64_t l = 0; l < kLanes; ++l) hwy::Prefetch(in + next[l] + 2 * k);
      exchange_blocks(d, low[0], low[1], low[2], low[3]);
      exchange_blocks(d, high[0], high[1], high[2], high[3]);
#pragma GCC unroll 4
      for (int64_t r = 0; r < 4; ++r) {
        hn::Store(hn::ConcatEven(d, high[r], low[r]), d, to.re + (k + r) * kLanes);
        hn::Store(hn::ConcatOdd(d, high[r], low[r]), d, to.im + (k + r) * kLanes);
      }
    }
  }
  return k;
}

// Elements in lanes that are to be written. The elements of all lanes lie `step` numbers from the next ones; the step
// is negative where they are written in the opposite order. Their parts are multiplied by factors.
template <class T>
struct Written {
  const T *re, *im;
  int64_t step;
  T re_factor, im_factor;

  Written(Sequence<T> from, T scale)
      : re(from.re), im(from.im), step(hn::MaxLanes(hn::ScalableTag<T>())), re_factor(scale), im_factor(scale) {}
};

template <class T>
int64_t store_pair_tiles(T* out, const LaneOffsets& lanes, int64_t n, const Written<T>& from) {
  const hn::ScalableTag<T> d;
  constexpr int64_t kLanes = hn::MaxLanes(d), kPairs = kLanes / 2;
  int64_t k = 0;
  if constexpr (sizeof(T) == 4 && kLanes > 4) {
    const hn::ScalableTag<double> pairs;
    using V = hn::Vec<decltype(pairs)>;
    const auto re_factor = hn::Set(d, from.re_factor), im_factor = hn::Set(d, from.im_factor);
    for (; k + kPairs <= n; k += kPairs) {
      V low[kPairs], high[kPairs];
#pragma GCC unroll 8
      for (int64_t r = 0; r < kPairs; ++r) {
        const auto re = hn::Mul(hn::Load(d, from.re + (k + r) * from.step), re_factor),
                   im = hn::Mul(hn::Load(d, from.im + (k + r) * from.step), im_factor);
        low[r] = hn::BitCast(pairs, hn::InterleaveLower(d, re, im));
        high[r] = hn::BitCast(pairs, hn::InterleaveUpper(d, re, im));
      }
      transpose_tile(pairs, low);
      transpose_tile(pairs, high);
      // Interleaving works within blocks of four lanes: the lower pairs are of lanes 0, 1, 4, 5 and so on.
#pragma GCC unroll 8
      for (int64_t l = 0; l < kPairs; ++l) {
        const int64_t lane = l / 2 * 4 + l % 2;
        hn::StoreU(hn::BitCast(d, low[l]), d, out + lanes.at[lane] + 2 * k);
        hn::StoreU(hn::BitCast(d, high[l]), d, out + lanes.at[lane + 2] + 2 * k);
      }
    }
  }
  if constexpr (sizeof(T) == 8 && kLanes == 8) {
    const auto re_factor = hn::Set(d, from.re_factor), im_factor = hn::Set(d, from.im_factor);
    for (; k + 4 <= n; k += 4) {
      hn::Vec<decltype(d)> even[4], odd[4];  // pairs of even and of odd lanes
#pragma GCC unroll 4
      for (int64_t r = 0; r < 4; ++r) {
        const auto re = hn::Mul(hn::Load(d, from.re + (k + r) * from.step), re_factor),
                   im = hn::Mul(hn::Load(d, from.im + (k + r) * from.step), im_factor);
        even[r] = hn::InterleaveLower(d, re, im);
        odd[r] = hn::InterleaveUpper(d, re, im);
      }
      exchange_blocks(d, even[0], even[1], even[2], even[3]);
      exchange_blocks(d, odd[0], odd[1], odd[2], odd[3]);
#pragma GCC unroll 4
      for (int64_t l = 0; l < 4; ++l) {
        hn::StoreU(even[l], d, out + lanes.at[2 * l] + 2 * k);
        hn::StoreU(odd[l], d, out + lanes.at[2 * l + 1] + 2 * k);
      }
    }
  }
  return k;
}

// Pairs of numbers, `stride` apart from pair to pair, the second number right after the first.
template <class T>
void load_complex(const T* in, const LaneOffsets& lanes, int64_t stride, int64_t n, Sequence<T> to,
                  const int64_t* next = nullptr) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t width = lanes.lanes;
  if (lanes.adjacent(2)) {
    const T* from = in + lanes.at[0];
    for (int64_t k = 0; k < n; ++k, from += stride) {
      V re, im;
      hn::LoadInterleaved2(d, from, re, im);
      hn::Store(re, d, to.re + k * width);
      hn::Store(im, d, to.im + k * width);
    }
    return;
  }
  int64_t k = stride == 2 ? load_pair_tiles(in, lanes, n, to, next) : 0;
  if (stride == 2) {
    const hn::CappedTag<T, 16 / sizeof(T)> block;
    constexpr int64_t kSide = 16 / sizeof(T);
    for (; k + kSide <= n; k += kSide)
      for (int64_t l = 0; l < width; l += kSide) {
        hn::Vec<decltype(block)> re[kSide], im[kSide];
        for (int64_t r = 0; r < kSide; ++r) hn::LoadInterleaved2(block, in + lanes.at[l + r] + 2 * k, re[r], im[r]);
        transpose_blocks(block, re);
        transpose_blocks(block, im);
        for (int64_t r = 0; r < kSide; ++r) {
          hn::StoreU(re[r], block, to.re + (k + r) * width + l);
          hn::StoreU(im[r], block, to.im + (k + r) * width + l);
        }
      }
  }
  for (; k < n; ++k)
    for (int64_t l = 0; l < width; ++l) {
      const T* const from = in + lanes.at[l] + k * stride;
      to.re[k * width + l] = from[0];
      to.im[k * width + l] = from[1];
    }
}

template <class T>
void store_complex(T* out, const LaneOffsets& lanes, int64_t stride, int64_t n, const Written<T>& from) {
  const hn::ScalableTag<T> d;
  const int64_t width = lanes.lanes;
  if (lanes.adjacent(2)) {
    T* to = out + lanes.at[0];
    const auto re_factor = hn::Set(d, from.re_factor), im_factor = hn::Set(d, from.im_factor);
    for (int64_t k = 0; k < n; ++k, to += stride)
      hn::StoreInterleaved2(hn::Mul(hn::Load(d, from.re + k * from.step), re_factor),
                            hn::Mul(hn::Load(d, from.im + k * from.step), im_factor), d, to);
    return;
  }
  const bool dense = stride == 2 && lanes.used == width;
  int64_t k = dense ? store_pair_tiles(out, lanes, n, from) : 0;
  if (dense) {
    const hn::CappedTag<T, 16 / sizeof(T)> block;
    constexpr int64_t kSide = 16 / sizeof(T);
    const auto re_factor = hn::Set(block, from.re_factor), im_factor = hn::Set(block, from.im_factor);
    for (; k + kSide <= n; k += kSide)
      for (int64_t l = 0; l < width; l += kSide) {
        hn::Vec<decltype(block)> re[kSide], im[kSide];
        for (int64_t r = 0; r < kSide; ++r) {
          re[r] = hn::Mul(hn::LoadU(block, from.re + (k + r) * from.step + l), re_factor);
          im[r] = hn::Mul(hn::LoadU(block, from.im + (k + r) * from.step + l), im_factor);
        }
        transpose_blocks(block, re);
        transpose_blocks(block, im);
        for (int64_t r = 0; r < kSide; ++r) hn::StoreInterleaved2(re[r], im[r], block, out + lanes.at[l + r] + 2 * k);
      }
  }
  for (; k < n; ++k)
    for (int64_t l = 0; l < lanes.used; ++l) {
      T* const to = out + lanes.at[l] + k * stride;
      to[0] = from.re[k * from.step + l] * from.re_factor;
      to[1] = from.im[k * from.step + l] * from.im_factor;
    }
}
template <class T>
void store_complex(T* out, const LaneOffsets& lanes, int64_t stride, int64_t n, Sequence<T> from, T scale) {
  store_complex(out, lanes, stride, n, Written<T>(from, scale));
}

// Writes all n elements of the spectrum of reals from `from`, which has the first half. The others are conjugates of
// these in the opposite order.
template <class T>
void store_mirrored(T* out, const LaneOffsets& lanes, int64_t stride, int64_t n, Sequence<T> from, T scale) {
  const int64_t bins = n / 2 + 1;
  Written<T> half(from, scale);
  store_complex(out, lanes, stride, bins, half);
  half.re += (n - bins) * half.step;
  half.im += (n - bins) * half.step;
  half.step = -half.step;
  half.im_factor = -scale;
  store_complex(out + bins * stride, lanes, stride, n - bins, half);
}

// Real sequences of even length: elements 2 k and 2 k + 1 are the parts of number k.
template <class T>
void load_pairs(const T* in, const LaneOffsets& lanes, int64_t stride, int64_t pairs, Sequence<T> to,
                const int64_t* next) {
  if (stride == 1) return load_complex(in, lanes, 2, pairs, to, next);
  const hn::ScalableTag<T> d;
  const int64_t width = lanes.lanes;
  const bool adjacent = lanes.adjacent(1);
  for (int64_t k = 0; k < pairs; ++k) {
    if (adjacent) {
      const T* const from = in + lanes.at[0] + 2 * k * stride;
      hn::Store(hn::LoadU(d, from), d, to.re + k * width);
      hn::Store(hn::LoadU(d, from + stride), d, to.im + k * width);
      continue;
    }
    for (int64_t l = 0; l < width; ++l) {
      const T* const from = in + lanes.at[l] + 2 * k * stride;
      to.re[k * width + l] = from[0];
      to.im[k * width + l] = from[stride];
    }
  }
}

template <class T>
void store_pairs(T* out, const LaneOffsets& lanes, int64_t stride, int64_t pairs, Sequence<T> from, T scale) {
  if (stride == 1) return store_complex(out, lanes, 2, pairs, from, scale);
  const hn::ScalableTag<T> d;
  const int64_t width = lanes.lanes;
  const bool adjacent = lanes.adjacent(1);
  const auto s = hn::Set(d, scale);
  for (int64_t k = 0; k < pairs; ++k) {
    if (adjacent) {
      T* const to = out + lanes.at[0] + 2 * k * stride;
      hn::StoreU(hn::Mul(hn::Load(d, from.re + k * width), s), d, to);
      hn::StoreU(hn::Mul(hn::Load(d, from.im + k * width), s), d, to + stride);
      continue;
    }
    for (int64_t l = 0; l < lanes.used; ++l) {
      T* const to = out + lanes.at[l] + 2 * k * stride;
      to[0] = from.re[k * width + l] * scale;
      to[stride] = from.im[k * width + l] * scale;
    }
  }
}

// Real sequences, whose elements are `stride` apart.
template <class T>
void load_real(const T* in, const LaneOffsets& lanes, int64_t stride, int64_t n, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t width = lanes.lanes;
  if (lanes.adjacent(1)) {
    for (int64_t k = 0; k < n; ++k) hn::Store(hn::LoadU(d, in + lanes.at[0] + k * stride), d, to + k * width);
    return;
  }
  int64_t k = 0;
  if (stride == 1) {
    const hn::CappedTag<T, 16 / sizeof(T)> block;
    constexpr int64_t kSide = 16 / sizeof(T);
    for (; k + kSide <= n; k += kSide)
      for (int64_t l = 0; l < width; l += kSide) {
        hn::Vec<decltype(block)> x[kSide];
        for (int64_t r = 0; r < kSide; ++r) x[r] = hn::LoadU(block, in + lanes.at[l + r] + k);
        transpose_blocks(block, x);
        for (int64_t r = 0; r < kSide; ++r) hn::StoreU(x[r], block, to + (k + r) * width + l);
      }
  }
  for (; k < n; ++k)
    for (int64_t l = 0; l < width; ++l) to[k * width + l] = in[lanes.at[l] + k * stride];
}

template <class T>
void store_real(T* out, const LaneOffsets& lanes, int64_t stride, int64_t n, const T* from, T scale) {
  const hn::ScalableTag<T> d;
  const int64_t width = lanes.lanes;
  if (lanes.adjacent(1)) {
    const auto s = hn::Set(d, scale);
    for (int64_t k = 0; k < n; ++k)
      hn::StoreU(hn::Mul(hn::Load(d, from + k * width), s), d, out + lanes.at[0] + k * stride);
    return;
  }
  int64_t k = 0;
  if (stride == 1 && lanes.used == width) {
    const hn::CappedTag<T, 16 / sizeof(T)> block;
    constexpr int64_t kSide = 16 / sizeof(T);
    const auto s = hn::Set(block, scale);
    for (; k + kSide <= n; k += kSide)
      for (int64_t l = 0; l < width; l += kSide) {
        hn::Vec<decltype(block)> x[kSide];
        for (int64_t r = 0; r < kSide; ++r) x[r] = hn::Mul(hn::LoadU(block, from + (k + r) * width + l), s);
        transpose_blocks(block, x);
        for (int64_t r = 0; r < kSide; ++r) hn::StoreU(x[r], block, out + lanes.at[l + r] + k);
      }
  }
  for (; k < n; ++k)
    for (int64_t l = 0; l < lanes.used; ++l) out[lanes.at[l] + k * stride] = from[k * width + l] * scale;
}

// The second half of a real sequence's spectrum, of odd length: conjugates of the first.
template <class T>
void mirror_spectrum(Sequence<T> x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t width = static_cast<int64_t>(hn::Lanes(d));
  hn::Store(hn::Zero(d), d, x.im);
  for (int64_t k = 1; k <= n / 2; ++k) {
    hn::Store(hn::Load(d, x.re + k * width), d, x.re + (n - k) * width);
    hn::Store(hn::Neg(hn::Load(d, x.im + k * width)), d, x.im + (n - k) * width);
  }
}

template <class T>
void multiply_by_table(Sequence<T> x, int64_t n, const T* table, int64_t columns, int64_t used) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t width = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t k = 0; k < n; ++k) {
    const T *const re = table + 2 * k * columns, *const im = re + columns;
    if (used == width) {
      const Parts<V> v = times(Parts<V>{hn::Load(d, x.re + k * width), hn::Load(d, x.im + k * width)},
                               Parts<V>{hn::LoadU(d, re), hn::LoadU(d, im)});
      hn::Store(v.re, d, x.re + k * width);
      hn::Store(v.im, d, x.im + k * width);
      continue;
    }
    for (int64_t l = 0; l < used; ++l) {
      const T a = x.re[k * width + l], b = x.im[k * width + l];
      x.re[k * width + l] = a * re[l] - b * im[l];
      x.im[k * width + l] = a * im[l] + b * re[l];
    }
  }
}

}  // namespace mica::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
