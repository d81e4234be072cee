// Depthwise convolutions of float32 whose images have their channels side by side (core/interleaved.h). A vector of
// channels at a time is placed among zeros, and summed for some rows of the output at once: a vector of the source is
// read once for all taps of a column that it meets. Each output adds its taps in the order in which planes do, column
// by column, so that it has their bits.
#include "backends/cpu/convolution/depthwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/convolution/depthwise_interleaved.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "backends/cpu/convolution/correlation.h"
#include "backends/cpu/convolution/parts.h"
#include "core/kept.h"

HWY_BEFORE_NAMESPACE();
namespace mica::cpu::convolution {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Adds row J of the source to all outputs that it meets: to output y through the tap J - y * S.
template <int R, int K, int S, int J>
HWY_INLINE void add_interleaved_row(const float* at, int64_t step, const V (&weights)[K], V (&sums)[R]) {
  if constexpr (J < (R - 1) * S + K) {
    const V row = hn::LoadU(D(), at);
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) {
      if (J >= k && (J - k) % S == 0 && (J - k) / S < R)
        sums[(J - k) / S] = hn::MulAdd(row, weights[k], sums[(J - k) / S]);
    }
    add_interleaved_row<R, K, S, J + 1>(at + step, step, weights, sums);
  }
}

// Rows of an output, of one vector of channels.
struct ChannelTiles {
  const float* from;     // [row][column][lane], with zeros around the image
  int64_t from_step;     // floats between rows
  const float* weights;  // [tap][lane]
  const float* bias;     // may be null
  float* to;
  int64_t to_step, row_step, rows, width;  // floats between columns and between rows of the output
};

template <int R, int K, int S>
HWY_INLINE void tile(const ChannelTiles& t, int64_t y, int64_t x) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V sums[R];
  const V start = t.bias ? hn::LoadU(d, t.bias) : hn::Zero(d);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = start;
  float* to = t.to + y * t.row_step + x * t.to_step;
  constexpr int64_t kAhead = 4;  // columns; each vector of the result is a line that nothing else foresees
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) __builtin_prefetch(to + r * t.row_step + kAhead * t.to_step, 1);
  const float* from = t.from + y * S * t.from_step + x * S * lanes;
  for (int64_t kx = 0; kx < K; ++kx, from += lanes) {
    V weights[K];
#pragma GCC unroll 8
    for (int k = 0; k < K; ++k) weights[k] = hn::LoadU(d, t.weights + (k * K + kx) * lanes);
    add_interleaved_row<R, K, S, 0>(from, t.from_step, weights, sums);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) hn::StoreU(sums[r], d, to + r * t.row_step);
}

template <int K, int S>
void sum_tiles(const ChannelTiles& tiles) {
  const ChannelTiles t = tiles;  // a copy that stores to the target cannot change, so that it stays in registers
  int64_t y = 0;
  for (; y + 7 <= t.rows; y += 7)
    for (int64_t x = 0; x < t.width; ++x) tile<7, K, S>(t, y, x);
  for (; y + 3 <= t.rows; y += 3)
    for (int64_t x = 0; x < t.width; ++x) tile<3, K, S>(t, y, x);
  for (; y < t.rows; ++y)
    for (int64_t x = 0; x < t.width; ++x) tile<1, K, S>(t, y, x);
}

using SumTiles = void (*)(const ChannelTiles&);
SumTiles tiles_for(int64_t kernel, int64_t stride) {
  if (kernel == 3) return stride == 1 ? sum_tiles<3, 1> : sum_tiles<3, 2>;
  if (kernel == 5) return stride == 1 ? sum_tiles<5, 1> : sum_tiles<5, 2>;
  return stride == 1 ? sum_tiles<7, 1> : sum_tiles<7, 2>;
}

// Copies `count` columns of a row of the source to where they lie among zeros. The next vector of channels, which is
// placed next, is fetched meanwhile: its lines lie too far apart for a processor to foresee them.
void place_row(const float* from, int64_t from_step, int64_t count, float* to) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t x = 0; x < count; ++x) {
    const float* at = from + x * from_step;
    __builtin_prefetch(at + lanes, 0, 2);
    hn::StoreU(hn::LoadU(d, at), d, to + x * lanes);
  }
}

// How many of the vectors of channels a task takes. With one band for each image, threads share them. What follows is
// computed by four vectors at a time, and on long rows of them, so that the largest of the parts that divide the work
// best are taken.
int64_t part_of(int64_t slices, int64_t bands) {
  constexpr int64_t kTogether = 4, kLeastTasks = 2;
  const int64_t threads = get_num_threads();
  if (threads == 1) return slices;
  int64_t best = 0, least = 0;
  for (int64_t each = kLeastTasks; each <= kTasksPerThread; ++each) {
    const int64_t parts = std::min(slices, divide_up(each * threads, bands));
    const int64_t part = std::min(slices, round_up(divide_up(slices, parts), kTogether));
    const int64_t load = divide_up(bands * divide_up(slices, part), threads) * part;  // of the busiest thread
    if (best == 0 || load < least) best = part, least = load;
  }
  return best;
}

void correlate(const Correlation& c) {
  // A band of one vector of channels stays near the first cache. A whole plane may be larger: what sums its positions
  // then runs on it at once.
  constexpr int64_t kTileRows = 7, kBandFloats = 1 << 13, kPlaneFloats = 1 << 14;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D())), channels = c.groups, taps = c.kernel_y * c.kernel_x;
  const int64_t slices = channels / lanes, cols = (c.target.width - 1) * c.stride_x + c.kernel_x;

  const kept::Key key{
      c.weight, kept::Key::Kind::DepthwiseFilters, {channels, taps, c.weight_group, c.weight_y, c.weight_x, lanes}};
  kept::Memory weights(key, bytes_of_floats(slices * taps * lanes));
  if (!weights.is_filled()) {
    for (int64_t slice = 0; slice < slices; ++slice)
      for (int64_t t = 0; t < taps; ++t)
        for (int64_t i = 0; i < lanes; ++i)
          weights.as<float>()[(slice * taps + t) * lanes + i] =
              c.weight[(slice * lanes + i) * c.weight_group + t / c.kernel_x * c.weight_y +
                       t % c.kernel_x * c.weight_x];
    weights.set_filled();
  }

  const bool whole = ((c.target.height - 1) * c.stride_y + c.kernel_y) * cols * lanes <= kPlaneFloats;
  const int64_t fitting = std::max<int64_t>(1, kBandFloats / (cols * lanes * c.stride_y * kTileRows)) * kTileRows;
  const int64_t most = whole ? c.target.height : fitting;
  const int64_t rows = std::min(c.target.height, round_up(equal_part(c.target.height, most), kTileRows));
  const int64_t bands = divide_up(c.target.height, rows), source_rows = (rows - 1) * c.stride_y + c.kernel_y;
  const SumTiles sum = tiles_for(c.kernel_x, c.stride_x);
  const int64_t part = part_of(slices, c.batch * bands);
  const int64_t tasks = divide_up(slices, part);
  share_tasks(c.batch * bands * tasks, [&](const auto& each) {
    const Scratch band(bytes_of_floats(source_rows * cols * lanes));
    each([&](int64_t task) {
      const int64_t image = task / tasks / bands, y0 = task / tasks % bands * rows;
      const int64_t count = std::min(rows, c.target.height - y0), top = y0 * c.stride_y - c.pad_y;
      const int64_t begin = task % tasks * part, end = std::min(slices, begin + part);
      const int64_t left = std::min(c.pad_x, cols), width = std::min(c.source.width, cols - left);
      for (int64_t r = 0; r < source_rows; ++r) {  // the zeros, which all vectors of channels share
        float* row = band.as<float>() + r * cols * lanes;
        const bool inside = top + r >= 0 && top + r < c.source.height;
        std::fill_n(row, (inside ? left : cols) * lanes, 0.0f);
        if (inside) std::fill_n(row + (left + width) * lanes, (cols - left - width) * lanes, 0.0f);
      }
      for (int64_t slice = begin; slice < end; ++slice) {
        const int64_t channel = slice * lanes;
        const float* from = c.source.data + image * c.source.batch_stride + channel;
        for (int64_t r = std::max<int64_t>(0, -top); r < source_rows && top + r < c.source.height; ++r)
          place_row(from + (top + r) * c.source.row_stride, c.source.col_stride, width,
                    band.as<float>() + (r * cols + left) * lanes);
        sum({band.as<float>(), cols * lanes, weights.as<float>() + slice * taps * lanes,
             c.bias ? c.bias + channel : nullptr,
             c.target.data + image * c.target.batch_stride + y0 * c.target.row_stride + channel, c.target.col_stride,
             c.target.row_stride, count, c.target.width});
      }
      if (c.work)
        c.work->run({image, begin * lanes, (end - begin) * lanes, y0 * c.target.width, count * c.target.width});
    });
  });
  if (c.work) c.work->set_done();
}

int64_t vector_of_channels() { return static_cast<int64_t>(hn::Lanes(D())); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace mica::cpu::convolution
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mica::cpu::convolution {
HWY_EXPORT(correlate);
HWY_EXPORT(vector_of_channels);

// Only whole vectors of channels: they need no work twice.
bool suits_depthwise_interleaved(const Problem& p) {
  const auto is_one_of = [](int64_t k) { return k == 3 || k == 5 || k == 7; };
  return is_planar(p) && p.channels == 1 && p.filters == 1 && p.kernel[1] == p.kernel[2] && is_one_of(p.kernel[1]) &&
         p.stride[1] == p.stride[2] && p.stride[1] <= 2 && p.dilation[1] == 1 && p.dilation[2] == 1 &&
         p.padding[1] >= 0 && p.padding[2] >= 0 && p.groups % HWY_DYNAMIC_DISPATCH(vector_of_channels)() == 0;
}

void convolve_depthwise_interleaved(const Problem& p) { HWY_DYNAMIC_DISPATCH(correlate)(forward_correlation(p)); }
}  // namespace mica::cpu::convolution
#endif
