#include "backends/cpu/convolution/depthwise_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/convolution/depthwise_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "backends/cpu/simd/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::convolution {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using cpu::HWY_NAMESPACE::load_first;
using cpu::HWY_NAMESPACE::store_first;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Computes P positions from x on, for one vector of channels. All of them meet taps [first, last) of a row.
template <int P>
HWY_INLINE void sum_positions(const ChannelRows& r, int64_t c, int64_t x, int64_t first, int64_t last) {
  const D d;
  V sums[P];
  const V start = r.bias ? hn::LoadU(d, r.bias + c) : hn::Zero(d);
#pragma GCC unroll 8
  for (int i = 0; i < P; ++i) sums[i] = start;
  const int64_t step = r.stride_x * r.col_stride;
  for (int64_t y = r.first_y; y < r.last_y; ++y) {
    const float* row = r.source + r.top + y * r.dilated_row + (x * r.stride_x - r.pad_x) * r.col_stride + c;
    const float* weights = r.weights + y * r.kernel_x * r.channels + c;
    for (int64_t k = first; k < last; ++k) {
      const V w = hn::LoadU(d, weights + k * r.channels);
      const float* at = row + k * r.dilation_x * r.col_stride;
#pragma GCC unroll 8
      for (int i = 0; i < P; ++i) sums[i] = hn::MulAdd(hn::LoadU(d, at + i * step), w, sums[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < P; ++i) hn::StoreU(sums[i], d, r.target + (x + i) * r.target_stride + c);
}

// The same for the channels that do not fill a vector.
void sum_scalar(const ChannelRows& r, int64_t c, int64_t x, int64_t first, int64_t last) {
  float sum = r.bias ? r.bias[c] : 0;
  for (int64_t y = r.first_y; y < r.last_y; ++y) {
    const float* row = r.source + r.top + y * r.dilated_row + (x * r.stride_x - r.pad_x) * r.col_stride + c;
    const float* weights = r.weights + y * r.kernel_x * r.channels + c;
    for (int64_t k = first; k < last; ++k) sum += row[k * r.dilation_x * r.col_stride] * weights[k * r.channels];
  }
  r.target[x * r.target_stride + c] = sum;
}

void channel_row(const ChannelRows& r) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  const int64_t whole = r.channels / lanes * lanes;
  // The last channels are computed as a full vector, which computes some channels twice. Where there are fewer than a
  // vector in all, each is computed alone.
  const bool overlaps = whole > 0 && whole < r.channels;
  const int64_t alone = whole > 0 ? r.channels : 0;
  // The positions [low, high) that meet all taps of a row.
  const int64_t reach = (r.kernel_x - 1) * r.dilation_x;
  const int64_t low = std::min(r.count, (r.pad_x + r.stride_x - 1) / r.stride_x);
  const int64_t room = r.width - 1 - reach + r.pad_x;
  const int64_t high = std::clamp(room < 0 ? 0 : room / r.stride_x + 1, low, r.count);
  const auto edge = [&](int64_t x) {
    const int64_t at = x * r.stride_x - r.pad_x;
    const int64_t first = at >= 0 ? 0 : (-at + r.dilation_x - 1) / r.dilation_x;
    const int64_t last = std::min(r.kernel_x, at >= r.width ? 0 : (r.width - 1 - at) / r.dilation_x + 1);
    for (int64_t c = 0; c < whole; c += lanes) sum_positions<1>(r, c, x, first, last);
    if (overlaps) sum_positions<1>(r, r.channels - lanes, x, first, last);
    for (int64_t c = alone; c < r.channels; ++c) sum_scalar(r, c, x, first, last);
  };
  for (int64_t x = 0; x < low; ++x) edge(x);
  constexpr int kBlock = 6;
  int64_t x = low;
  for (; x + kBlock <= high; x += kBlock) {
    for (int64_t c = 0; c < whole; c += lanes) sum_positions<kBlock>(r, c, x, 0, r.kernel_x);
    if (overlaps) sum_positions<kBlock>(r, r.channels - lanes, x, 0, r.kernel_x);
    for (int64_t c = alone; c < r.channels; ++c)
      for (int i = 0; i < kBlock; ++i) sum_scalar(r, c, x + i, 0, r.kernel_x);
  }
  for (; x < high; ++x) {
    for (int64_t c = 0; c < whole; c += lanes) sum_positions<1>(r, c, x, 0, r.kernel_x);
    if (overlaps) sum_positions<1>(r, r.channels - lanes, x, 0, r.kernel_x);
    for (int64_t c = alone; c < r.channels; ++c) sum_scalar(r, c, x, 0, r.kernel_x);
  }
  for (x = high; x < r.count; ++x) edge(x);
}

void channel_terms(const ChannelTerm* terms, int64_t count, const float* bias, int64_t channels, float* target) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  const auto vector = [&]() HWY_ATTR {
    V sum = bias ? hn::LoadU(d, bias + c) : hn::Zero(d);
    for (int64_t i = 0; i < count; ++i)
      sum = hn::MulAdd(hn::LoadU(d, terms[i].source + c), hn::LoadU(d, terms[i].weights + c), sum);
    hn::StoreU(sum, d, target + c);
  };
  for (; c + lanes <= channels; c += lanes) vector();
  if (c > 0 && c < channels) {  // the last vector computes some channels twice
    c = channels - lanes;
    vector();
    return;
  }
  for (; c < channels; ++c) {
    float sum = bias ? bias[c] : 0;
    for (int64_t i = 0; i < count; ++i) sum += terms[i].source[c] * terms[i].weights[c];
    target[c] = sum;
  }
}

void channel_dot(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t count, int64_t channels,
                 float* sums) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  const auto product = [&](int64_t i, V sum) HWY_ATTR {
    return hn::MulAdd(hn::LoadU(d, a + i * a_stride + c), hn::LoadU(d, b + i * b_stride + c), sum);
  };
  const auto total = [&](V s0) HWY_ATTR {
    V s1 = hn::Zero(d), s2 = s1, s3 = s1;
    int64_t i = 0;
    for (; i + 4 <= count; i += 4)
      s0 = product(i, s0), s1 = product(i + 1, s1), s2 = product(i + 2, s2), s3 = product(i + 3, s3);
    for (; i < count; ++i) s0 = product(i, s0);
    return hn::Add(hn::Add(s0, s1), hn::Add(s2, s3));
  };
  for (; c + lanes <= channels; c += lanes) hn::StoreU(total(hn::LoadU(d, sums + c)), d, sums + c);
  if (c > 0 && c < channels) {  // the last vector leaves out the channels that are done
    const auto done = hn::FirstN(d, static_cast<size_t>(lanes - (channels - c)));
    c = channels - lanes;
    const V before = hn::LoadU(d, sums + c);
    hn::StoreU(hn::IfThenElse(done, before, total(before)), d, sums + c);
    return;
  }
  for (; c < channels; ++c)
    for (int64_t i = 0; i < count; ++i) sums[c] += a[i * a_stride + c] * b[i * b_stride + c];
}

template <int N>
HWY_INLINE void plane_block(const float* from, const int64_t* offsets, const float* weights, int64_t taps, float start,
                            bool add, float* to, int64_t count) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[N];
#pragma GCC unroll 4
  for (int v = 0; v < N; ++v) sums[v] = hn::Set(d, start);
  for (int64_t t = 0; t < taps; ++t) {
    const V w = hn::Set(d, weights[t]);
    const float* at = from + offsets[t];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) sums[v] = hn::MulAdd(hn::LoadU(d, at + v * lanes), w, sums[v]);
  }
  HWY_ALIGN float block[N * hn::MaxLanes(D())];
  const bool fits = count >= N * lanes;
  float* out = fits ? to : block;
  if (add && fits) {
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) sums[v] = hn::Add(sums[v], hn::LoadU(d, to + v * lanes));
  }
#pragma GCC unroll 4
  for (int v = 0; v < N; ++v) hn::StoreU(sums[v], d, out + v * lanes);
  if (fits) return;
  for (int64_t i = 0; i < count; ++i) to[i] = add ? to[i] + block[i] : block[i];
}

void plane_row(const float* from, const int64_t* offsets, const float* weights, int64_t taps, float start, bool add,
               float* to, int64_t count) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  int64_t i = 0;
  for (; i + 3 * lanes < count; i += 4 * lanes)
    plane_block<4>(from + i, offsets, weights, taps, start, add, to + i, count - i);
  for (; i + lanes < count; i += 2 * lanes)
    plane_block<2>(from + i, offsets, weights, taps, start, add, to + i, count - i);
  for (; i < count; i += lanes) plane_block<1>(from + i, offsets, weights, taps, start, add, to + i, count - i);
}

// Keeps a vector in its register. GCC reads it again from memory for each multiply-add otherwise, and a read of 64
// bytes that crosses lines costs as much as two multiply-adds.
HWY_INLINE void keep_in_register([[maybe_unused]] V& v) {
#if HWY_ARCH_X86
  asm("" : "+v"(v.raw));
#endif
}

// Adds row J of the source to all outputs that it meets: to output y through the tap J - y * S.
template <int R, int K, int S, int J>
HWY_INLINE void add_source_row(const float* at, int64_t step, const V (&weights)[K], V (&sums)[R]) {
  if constexpr (J < (R - 1) * S + K) {
    V row = hn::LoadU(D(), at);
    keep_in_register(row);
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
      if (J >= k && (J - k) % S == 0 && (J - k) / S < R)
        sums[(J - k) / S] = hn::MulAdd(row, weights[k], sums[(J - k) / S]);
    }
    add_source_row<R, K, S, J + 1>(at + step, step, weights, sums);
  }
}

// Computes R rows by one vector. A vector of the source is read once for all taps of a column that it meets.
template <int R, int K, int S>
HWY_INLINE void plane_tile(const PlaneRows& p, int64_t y, int64_t x, int64_t count) {
  const D d;
  V sums[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = hn::Set(d, p.start);
  const float* from = p.from + y * S * p.from_step + x;
  for (int64_t kx = 0; kx < p.kernel_x; ++kx) {
    V weights[K];
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) weights[k] = hn::Set(d, p.weights[k * p.kernel_x + kx]);
    add_source_row<R, K, S, 0>(from + p.columns[kx], p.from_step, weights, sums);
  }
  float* to = p.to + y * p.to_step + x;
  if (count == static_cast<int64_t>(hn::Lanes(d))) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      float* at = to + r * p.to_step;
      hn::StoreU(p.add ? hn::Add(sums[r], hn::LoadU(d, at)) : sums[r], d, at);
    }
    return;
  }
  const auto some = static_cast<size_t>(count);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    float* at = to + r * p.to_step;
    store_first(p.add ? hn::Add(sums[r], load_first(d, at, some)) : sums[r], d, at, some);
  }
}

template <int R, int K, int S>
void plane_band(const PlaneRows& rows, int64_t y) {
  const PlaneRows p = rows;  // a copy that stores to the target cannot change, so that it stays in registers
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  int64_t x = 0;
  for (; x + lanes <= p.count; x += lanes) plane_tile<R, K, S>(p, y, x, lanes);
  if (x == p.count) return;
  // The last vector begins earlier where that is allowed: some of its sums are then computed twice.
  const bool overlaps = !p.add && p.count >= lanes;
  plane_tile<R, K, S>(p, y, overlaps ? p.count - lanes : x, overlaps ? lanes : p.count - x);
}

template <int K, int S>
bool plane_bands(const PlaneRows& p) {
  int64_t y = 0;
  for (; y + 7 <= p.rows; y += 7) plane_band<7, K, S>(p, y);
  for (; y + 3 <= p.rows; y += 3) plane_band<3, K, S>(p, y);
  for (; y < p.rows; ++y) plane_band<1, K, S>(p, y);
  return true;
}

bool plane_rows(const PlaneRows& p, int64_t kernel_y, int64_t stride_y) {
  if (stride_y == 1) {
    if (kernel_y == 3) return plane_bands<3, 1>(p);
    if (kernel_y == 5) return plane_bands<5, 1>(p);
    if (kernel_y == 7) return plane_bands<7, 1>(p);
  } else if (stride_y == 2) {
    if (kernel_y == 3) return plane_bands<3, 2>(p);
    if (kernel_y == 5) return plane_bands<5, 2>(p);
    if (kernel_y == 7) return plane_bands<7, 2>(p);
  }
  return false;
}

void place_rows(const float* from, int64_t from_step, int64_t rows, int64_t count, float* to, int64_t to_step) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t y = 0; y < rows; ++y, from += from_step, to += to_step) {
    if (count < lanes) {
      store_first(load_first(d, from, static_cast<size_t>(count)), d, to, static_cast<size_t>(count));
      continue;
    }
    for (int64_t x = 0; x + lanes < count; x += lanes) hn::StoreU(hn::LoadU(d, from + x), d, to + x);
    hn::StoreU(hn::LoadU(d, from + count - lanes), d, to + count - lanes);
  }
}

void split_rows(const float* from, int64_t from_step, int64_t rows, int64_t count, float* even, float* odd,
                int64_t to_step) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t y = 0; y < rows; ++y, from += from_step, even += to_step, odd += to_step) {
    int64_t x = 0;
    for (; x + 2 * lanes <= count; x += 2 * lanes) {
      const V low = hn::LoadU(d, from + x), high = hn::LoadU(d, from + x + lanes);
      hn::StoreU(hn::ConcatEven(d, high, low), d, even + x / 2);
      hn::StoreU(hn::ConcatOdd(d, high, low), d, odd + x / 2);
    }
    const int64_t left = count - x;
    if (left == 0) continue;
    const V low = left >= lanes ? hn::LoadU(d, from + x) : load_first(d, from + x, static_cast<size_t>(left));
    const V high = left > lanes ? load_first(d, from + x + lanes, static_cast<size_t>(left - lanes)) : hn::Zero(d);
    store_first(hn::ConcatEven(d, high, low), d, even + x / 2, static_cast<size_t>((left + 1) / 2));
    store_first(hn::ConcatOdd(d, high, low), d, odd + x / 2, static_cast<size_t>(left / 2));
  }
}

float dot(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t rows, int64_t count) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  float rest = 0;
  for (int64_t r = 0; r < rows; ++r, a += a_stride, b += b_stride) {
    int64_t i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
      s1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), s1);
      s2 = hn::MulAdd(hn::LoadU(d, a + i + 2 * lanes), hn::LoadU(d, b + i + 2 * lanes), s2);
      s3 = hn::MulAdd(hn::LoadU(d, a + i + 3 * lanes), hn::LoadU(d, b + i + 3 * lanes), s3);
    }
    for (; i + lanes <= count; i += lanes) s0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s0);
#if !HWY_MEM_OPS_MIGHT_FAULT
    if (i < count) {
      const auto mask = hn::FirstN(d, static_cast<size_t>(count - i));
      s1 = hn::MulAdd(hn::MaskedLoad(mask, d, a + i), hn::MaskedLoad(mask, d, b + i), s1);
    }
#else
    for (; i < count; ++i) rest += a[i] * b[i];
#endif
  }
  return rest + hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

DepthwiseLoops describe_rows() {
  return {channel_row, channel_terms, channel_dot, plane_row, plane_rows, place_rows, split_rows, dot};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::convolution
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu::convolution {
HWY_EXPORT(describe_rows);
const DepthwiseLoops& depthwise_loops() {
  static const DepthwiseLoops loops = HWY_DYNAMIC_DISPATCH(describe_rows)();
  return loops;
}
}  // namespace mica::cpu::convolution
#endif
