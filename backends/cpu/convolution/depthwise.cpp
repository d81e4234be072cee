#include "backends/cpu/convolution/depthwise.h"

#include <algorithm>
#include <vector>

#include "backends/cpu/convolution/depthwise_rows.h"
#include "backends/cpu/convolution/padded_plane.h"
#include "backends/cpu/convolution/parts.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

namespace {

constexpr int64_t kGrain = 1 << 15;  // products that are worth a thread
constexpr int64_t kFewChannels = 8;  // fewer channels do not fill a vector, except four
constexpr int64_t kPlanes = 16;      // planes that are taken out of an image with channels last at a time

int64_t grain(int64_t products) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, products)); }

// The planes of some channels one after the other: in the image itself where channels are first, otherwise in
// `scratch`.
const float* planes_of(const Plane& source, int64_t image, int64_t channel, int64_t count, float* scratch) {
  const float* at = source.data + image * source.batch_stride + channel * source.channel_stride;
  if (!source.channels_last()) return at;
  const int64_t positions = source.height * source.width;
  transpose_floats(at, source.col_stride, scratch, positions, positions, count);
  return scratch;
}

// Calls body(image, first channel, count) for all channels of all images, in threads. `count` is one, or some where
// planes are small or have to be copied out of an image.
template <class Body>
void for_planes(const Correlation& c, bool some, int64_t products, const Body& body) {
  const int64_t step = some && c.groups >= kFewChannels ? kPlanes : 1, blocks = divide_up(c.groups, step);
  parallel_for(0, c.batch * blocks, grain(products * step), [&](int64_t begin, int64_t end) {
    body([&](const auto& visit) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t first = task % blocks * step;
        visit(task / blocks, first, std::min(step, c.groups - first));
      }
    });
  });
}

void copy_taps(const Correlation& c, const float* weight, float* to) {
  for (int64_t y = 0; y < c.kernel_y; ++y)
    for (int64_t x = 0; x < c.kernel_x; ++x) *to++ = weight[y * c.weight_y + x * c.weight_x];
}

std::vector<int64_t> tap_offsets(const Correlation& c, const PaddedPlane& plane) {
  std::vector<int64_t> offsets;
  for (int64_t y = 0; y < c.kernel_y; ++y)
    for (int64_t x = 0; x < c.kernel_x; ++x) offsets.push_back(plane.offset(y * c.dilation_y, x * c.dilation_x));
  return offsets;
}

// Where channels are last and every channel has one filter, vectors run along channels, if there are enough to fill
// one. The weight is then [tap][channel].
bool along_channels(const Problem& p) {
  const bool fill = p.groups >= kFewChannels || p.groups % 4 == 0;
  return p.filters == 1 && p.input.channels_last() && p.output.channels_last() && fill;
}

void order_weight(const Correlation& c, float* to) {
  for (int64_t t = 0; t < c.kernel_y * c.kernel_x; ++t)
    for (int64_t g = 0; g < c.groups; ++g)
      *to++ = c.weight[g * c.weight_group + t / c.kernel_x * c.weight_y + t % c.kernel_x * c.weight_x];
}

void correlate_channels(const Correlation& c) {
  const int64_t taps = c.kernel_y * c.kernel_x, channels = c.groups;
  const Scratch weights(bytes_of_floats(taps * channels));
  order_weight(c, weights.as<float>());
  const DepthwiseLoops& loops = depthwise_loops();
  parallel_for(0, c.batch * c.target.height, grain(c.target.width * channels * taps), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / c.target.height, y = i % c.target.height, top = y * c.stride_y - c.pad_y;
      ChannelRows rows;
      rows.source = c.source.data + image * c.source.batch_stride;
      rows.col_stride = c.source.col_stride;
      rows.width = c.source.width;
      rows.weights = weights.as<float>();
      rows.bias = c.bias;
      rows.channels = channels;
      rows.kernel_x = c.kernel_x;
      rows.stride_x = c.stride_x;
      rows.pad_x = c.pad_x;
      rows.dilation_x = c.dilation_x;
      rows.dilated_row = c.dilation_y * c.source.row_stride;
      rows.first_y = top >= 0 ? 0 : std::min(c.kernel_y, (-top + c.dilation_y - 1) / c.dilation_y);
      rows.last_y = top >= c.source.height
                        ? rows.first_y
                        : std::clamp((c.source.height - 1 - top) / c.dilation_y + 1, rows.first_y, c.kernel_y);
      rows.top = top * c.source.row_stride;
      rows.target = c.target.data + image * c.target.batch_stride + y * c.target.row_stride;
      rows.target_stride = c.target.col_stride;
      rows.count = c.target.width;
      loops.channel_row(rows);
    }
  });
}

// The gradient of a strided convolution's input, pixel by pixel from the outputs that read it. `c` is the convolution.
void spread_channels(const Correlation& c) {
  const int64_t channels = c.groups;
  const Scratch weights(bytes_of_floats(c.kernel_y * c.kernel_x * channels));
  order_weight(c, weights.as<float>());
  const DepthwiseLoops& loops = depthwise_loops();
  // The output that reads a pixel through a tap, or -1.
  const auto seen = [](int64_t pixel, int64_t tap, int64_t pad, int64_t stride, int64_t dilation, int64_t count) {
    const int64_t at = pixel + pad - tap * dilation;
    return at >= 0 && at % stride == 0 && at / stride < count ? at / stride : -1;
  };
  parallel_for(0, c.batch * c.source.height, grain(c.source.width * channels * 4), [&](int64_t begin, int64_t end) {
    std::vector<ChannelTerm> terms;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / c.source.height, y = i % c.source.height;
      for (int64_t x = 0; x < c.source.width; ++x) {
        terms.clear();
        for (int64_t ky = 0; ky < c.kernel_y; ++ky) {
          const int64_t row = seen(y, ky, c.pad_y, c.stride_y, c.dilation_y, c.target.height);
          for (int64_t kx = 0; kx < c.kernel_x && row >= 0; ++kx) {
            const int64_t col = seen(x, kx, c.pad_x, c.stride_x, c.dilation_x, c.target.width);
            if (col < 0) continue;
            terms.push_back(
                {c.target.data + image * c.target.batch_stride + row * c.target.row_stride + col * c.target.col_stride,
                 weights.as<float>() + (ky * c.kernel_x + kx) * channels});
          }
        }
        loops.channel_terms(
            terms.data(), static_cast<int64_t>(terms.size()), c.bias, channels,
            c.source.data + image * c.source.batch_stride + y * c.source.row_stride + x * c.source.col_stride);
      }
    }
  });
}

void weight_gradient_channels(const Correlation& c, float* weight) {
  const int64_t channels = c.groups, taps = c.kernel_y * c.kernel_x, rows = c.batch * c.target.height;
  const int64_t shares = std::min<int64_t>(rows, get_num_threads()), size = taps * channels;
  const Scratch all(bytes_of_floats(shares * size));
  const DepthwiseLoops& loops = depthwise_loops();
  parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) {
      float* sums = all.as<float>() + share * size;
      std::fill_n(sums, size, 0.0f);
      for (int64_t i = share * rows / shares; i < (share + 1) * rows / shares; ++i) {
        const int64_t image = i / c.target.height, y = i % c.target.height;
        const float* grad = c.target.data + image * c.target.batch_stride + y * c.target.row_stride;
        for (int64_t ky = 0; ky < c.kernel_y; ++ky) {
          const int64_t row = y * c.stride_y + ky * c.dilation_y - c.pad_y;
          if (row < 0 || row >= c.source.height) continue;
          const float* source = c.source.data + image * c.source.batch_stride + row * c.source.row_stride;
          for (int64_t kx = 0; kx < c.kernel_x; ++kx) {
            const int64_t shift = kx * c.dilation_x - c.pad_x;
            const int64_t low = shift >= 0 ? 0 : divide_up(-shift, c.stride_x);
            const int64_t last = c.source.width - 1 - shift;
            const int64_t high = last < 0 ? 0 : std::min(c.target.width, last / c.stride_x + 1);
            if (high <= low) continue;
            loops.channel_dot(grad + low * c.target.col_stride, c.target.col_stride,
                              source + (low * c.stride_x + shift) * c.source.col_stride,
                              c.stride_x * c.source.col_stride, high - low, channels,
                              sums + (ky * c.kernel_x + kx) * channels);
          }
        }
      }
    }
  });
  for (int64_t t = 0; t < taps; ++t) {
    for (int64_t g = 0; g < channels; ++g) {
      float sum = 0;
      for (int64_t s = 0; s < shares; ++s) sum += all.as<float>()[s * size + t * channels + g];
      weight[g * c.weight_group + t / c.kernel_x * c.weight_y + t % c.kernel_x * c.weight_x] = sum;
    }
  }
}

// Sums planes with vectors along their rows. For the gradient of an input, a channel of the target is the sum over
// several planes; for a convolution, several planes of the target come from one of the source.
struct PlaneSum {
  const Correlation& c;
  PaddedPlane padded;
  int64_t spread_y, spread_x;  // how far apart pixels of the source lie, with zeros between them
  std::vector<int64_t> offsets = tap_offsets(c, padded);
  const DepthwiseLoops& loops = depthwise_loops();
  PaddedPlane::Placing placing = padded.placing(c.source.height, c.source.width, c.pad_y, c.pad_x, spread_y, spread_x);
  int64_t row_step = padded.offset(1, 0);

  // Sums `rows` rows of the target. `room` is memory for a copy of the filter, where its taps do not lie one after the
  // other.
  void add(const float* buffer, const float* weight, float start, bool add, float* target, int64_t rows,
           float* room) const {
    const bool dense = c.weight_x == 1 && c.weight_y == c.kernel_x;
    if (!dense) copy_taps(c, weight, room);
    const float* taps = dense ? weight : room;
    if (c.dilation_y == 1) {
      // The offsets of the first row of taps are those of the columns.
      const PlaneRows plane{buffer, row_step, offsets.data(), c.kernel_x, taps,          start,
                            add,    target,   c.target.width, rows,       c.target.width};
      if (loops.plane_rows(plane, c.kernel_y, c.stride_y)) return;
    }
    for (int64_t y = 0; y < rows; ++y)
      loops.plane_row(buffer + padded.offset(y * c.stride_y, 0), offsets.data(), taps, c.kernel_y * c.kernel_x, start,
                      add, target + y * c.target.width, c.target.width);
  }
  void load(const float* plane, float* buffer) const { padded.load(plane, placing, buffer); }
};

// The plane that `rows` rows of the target read.
PaddedPlane padded_for(const Correlation& c, int64_t rows) {
  return PaddedPlane((rows - 1) * c.stride_y + (c.kernel_y - 1) * c.dilation_y + 1,
                     (c.target.width - 1) * c.stride_x + (c.kernel_x - 1) * c.dilation_x + 1, c.stride_x);
}

void store_planes(const Plane& target, int64_t image, int64_t channel, int64_t count, const float* planes) {
  float* at = target.data + image * target.batch_stride + channel * target.channel_stride;
  const int64_t positions = target.height * target.width;
  transpose_floats(planes, positions, at, target.col_stride, count, positions);
}

// Gathers planes that are finished one after the other, until they are enough to run the block work on them.
class FinishedPlanes {
 public:
  FinishedPlanes(recording::BlockWork* work, int64_t size) : work_(work), size_(size) {}
  void add(int64_t image, int64_t channel, int64_t count) {
    constexpr int64_t kEnough = 4096;  // so many floats are still in the first cache
    if (!work_) return;
    if (image != block_.image) run();
    if (block_.channels == 0) block_ = {image, channel, 0, 0, size_};
    block_.channels += count;
    if (block_.channels * size_ >= kEnough) run();
  }
  void run() {
    if (work_ && block_.channels > 0) work_->run(block_);
    block_.channels = 0;
  }

 private:
  recording::BlockWork* work_;
  int64_t size_;
  recording::Block block_{};
};

// How many rows of the target are summed at a time: as many as read a part of the first cache, and whole tiles.
int64_t band_rows(const Correlation& c) {
  constexpr int64_t kTileRows = 7, kBandFloats = 4096;
  const int64_t width = padded_for(c, 1).phases * padded_for(c, 1).cols;
  const int64_t most = std::max<int64_t>(1, kBandFloats / (width * c.stride_y * kTileRows)) * kTileRows;
  return round_up(equal_part(c.target.height, most), kTileRows);
}

// A large plane band by band, with the block work on each band: so what is placed among zeros and what is summed stays
// in the first cache.
void correlate_bands(const Correlation& c, int64_t rows) {
  const PlaneSum sum{c, padded_for(c, rows), 1, 1};
  const int64_t bands = divide_up(c.target.height, rows), extent = sum.padded.phases * sum.padded.cols;
  const int64_t filters = c.filters;
  std::vector<PaddedPlane::Placing> placings;
  for (int64_t i = 0; i < bands; ++i)
    placings.push_back(
        sum.padded.placing(c.source.height, c.source.width, c.pad_y - i * rows * c.stride_y, c.pad_x, 1, 1));
  for_planes(c, false, c.target.height * c.target.width * c.kernel_y * c.kernel_x, [&](const auto& planes) {
    const Scratch memory(bytes_of_floats(sum.padded.size())), taps(bytes_of_floats(c.kernel_y * c.kernel_x));
    float* buffer = memory.as<float>();
    sum.padded.clear(buffer);
    planes([&](int64_t image, int64_t group, int64_t) {
      const float* from = c.source.data + image * c.source.batch_stride + group * c.source.channel_stride;
      for (int64_t band = 0; band < bands; ++band) {
        const PaddedPlane::Placing& placing = placings[static_cast<size_t>(band)];
        const int64_t first = band * rows, count = std::min(rows, c.target.height - first);
        // Rows outside of the image are zeros: another band has written there.
        std::fill_n(buffer, placing.row, 0.0f);
        const int64_t end = placing.row + placing.rows * extent;
        std::fill_n(buffer + end, sum.padded.rows * extent - end, 0.0f);
        sum.padded.load(from, placing, buffer);
        for (int64_t t = 0; t < filters; ++t) {
          const int64_t channel = group * filters + t;
          sum.add(buffer, c.weight_at(group, t, 0), c.bias ? c.bias[channel] : 0.0f, false,
                  c.target.data + image * c.target.batch_stride + channel * c.target.channel_stride +
                      first * c.target.width,
                  count, taps.as<float>());
          if (c.work) c.work->run({image, channel, 1, first * c.target.width, count * c.target.width});
        }
      }
    });
  });
  if (c.work) c.work->set_done();
}

// Computes both directions: a group has `sources` planes of the source and `targets` of the target, one of which is
// one.
void correlate_planes(const Correlation& c, int64_t spread_y, int64_t spread_x, int64_t sources, int64_t targets) {
  const PlaneSum sum{c, padded_for(c, c.target.height), spread_y, spread_x};
  const bool in_last = c.source.channels_last(), out_last = c.target.channels_last();
  const int64_t in_size = c.source.height * c.source.width, out_size = c.target.height * c.target.width;
  const bool works = c.work && !out_last;
  // A plane that is read right after it was written is waited for, until the writes have reached the cache. So the next
  // small plane is written before this one is read.
  constexpr int64_t kSmallPlane = 2048;
  const int64_t room = sum.padded.size(), buffers = room <= kSmallPlane ? 2 : 1;
  for_planes(c, in_last || out_last || buffers > 1, out_size * c.kernel_y * c.kernel_x, [&](const auto& planes) {
    const Scratch memory(bytes_of_floats(buffers * room));
    const Scratch taps(bytes_of_floats(c.kernel_y * c.kernel_x));
    const auto buffer = [&](int64_t plane) { return memory.as<float>() + (buffers > 1 ? plane & 1 : 0) * room; };
    for (int64_t i = 0; i < buffers; ++i) sum.padded.clear(buffer(i));
    const int64_t held = std::min(kPlanes, c.groups);
    const Scratch in(in_last ? bytes_of_floats(held * sources * in_size) : 0);
    const Scratch out(out_last ? bytes_of_floats(held * targets * out_size) : 0);
    FinishedPlanes finished(works ? c.work : nullptr, out_size);
    planes([&](int64_t image, int64_t first, int64_t count) {
      const float* from = planes_of(c.source, image, first * sources, count * sources, in.as<float>());
      const int64_t from_step = in_last ? in_size : c.source.channel_stride;
      float* to = out_last ? out.as<float>()
                           : c.target.data + image * c.target.batch_stride + first * targets * c.target.channel_stride;
      const int64_t to_step = out_last ? out_size : c.target.channel_stride;
      int64_t loaded = 0;  // how many planes of the source were written to a buffer
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t s = 0; s < sources; ++s) {
          const int64_t plane = i * sources + s;
          for (; loaded < std::min(plane + buffers, count * sources); ++loaded)
            sum.load(from + loaded * from_step, buffer(loaded));
          for (int64_t t = 0; t < targets; ++t) {
            const int64_t channel = (first + i) * targets + t;
            sum.add(buffer(plane), c.weight_at(first + i, sources == 1 ? t : 0, sources == 1 ? 0 : s),
                    s == 0 && c.bias ? c.bias[channel] : 0.0f, s > 0, to + (i * targets + t) * to_step, c.target.height,
                    taps.as<float>());
          }
        }
      }
      if (out_last) store_planes(c.target, image, first * targets, count * targets, to);
      finished.add(image, first * targets, count * targets);
    });
    finished.run();
  });
  if (works) c.work->set_done();
}

}  // namespace

void convolve_depthwise(const Problem& p) {
  const Correlation c = forward_correlation(p);
  if (along_channels(p)) return correlate_channels(c);
  // Without a stride rows of a large plane are copied as they are, which costs less than reading some of them twice.
  constexpr int64_t kLargePlane = 6144;
  const bool sorted = c.stride_x > 1 && !c.source.channels_last() && !c.target.channels_last();
  if (sorted && padded_for(c, c.target.height).size() > kLargePlane) {
    if (const int64_t rows = band_rows(c); rows < c.target.height) return correlate_bands(c, rows);
  }
  correlate_planes(c, 1, 1, 1, p.filters);
}

void input_gradient_depthwise(const Problem& p) {
  Correlation c = input_gradient_correlation(p);
  const int64_t spread_y = c.stride_y, spread_x = c.stride_x;
  c.stride_y = c.stride_x = 1;
  if (along_channels(p)) {
    const bool plain = spread_y == 1 && spread_x == 1 && c.pad_y >= 0 && c.pad_x >= 0;
    return plain ? correlate_channels(c) : spread_channels(forward_correlation(p));
  }
  correlate_planes(c, spread_y, spread_x, p.filters, 1);
}

void weight_gradient_depthwise(const Problem& p) {
  const Correlation c = forward_correlation(p);
  if (along_channels(p)) return weight_gradient_channels(c, reinterpret_cast<float*>(p.weight));
  const PaddedPlane padded = padded_for(c, c.target.height);
  const std::vector<int64_t> offsets = tap_offsets(c, padded);
  const DepthwiseLoops& loops = depthwise_loops();
  const bool in_last = c.source.channels_last(), out_last = c.target.channels_last();
  const int64_t in_size = c.source.height * c.source.width, out_size = c.target.height * c.target.width;
  const PaddedPlane::Placing placing = padded.placing(c.source.height, c.source.width, c.pad_y, c.pad_x, 1, 1);
  const int64_t taps = c.kernel_y * c.kernel_x, step = in_last || out_last ? kPlanes : 1;
  const int64_t blocks = divide_up(c.groups, step);
  float* weight = reinterpret_cast<float*>(p.weight);
  parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    const Scratch buffer(bytes_of_floats(padded.size()));
    padded.clear(buffer.as<float>());
    const Scratch in(in_last ? bytes_of_floats(kPlanes * in_size) : 0);
    const Scratch out(out_last ? bytes_of_floats(kPlanes * p.filters * out_size) : 0);
    std::vector<float> sums;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * step, count = std::min(step, c.groups - first);
      sums.assign(static_cast<size_t>(count * p.filters * taps), 0.0f);
      for (int64_t image = 0; image < c.batch; ++image) {
        const float* x = planes_of(c.source, image, first, count, in.as<float>());
        const float* g = planes_of(c.target, image, first * p.filters, count * p.filters, out.as<float>());
        const int64_t x_step = in_last ? in_size : c.source.channel_stride;
        const int64_t g_step = out_last ? out_size : c.target.channel_stride;
        float* sum = sums.data();
        for (int64_t i = 0; i < count; ++i) {
          padded.load(x + i * x_step, placing, buffer.as<float>());
          for (int64_t f = 0; f < p.filters; ++f) {
            for (int64_t t = 0; t < taps; ++t, ++sum)
              *sum += loops.dot(g + (i * p.filters + f) * g_step, c.target.width,
                                buffer.as<float>() + offsets[static_cast<size_t>(t)], padded.offset(c.stride_y, 0),
                                c.target.height, c.target.width);
          }
        }
      }
      const float* sum = sums.data();
      for (int64_t f = first * p.filters; f < (first + count) * p.filters; ++f)
        for (int64_t y = 0; y < c.kernel_y; ++y)
          for (int64_t x = 0; x < c.kernel_x; ++x)
            weight[f * c.weight_filter + y * c.weight_y + x * c.weight_x] = *sum++;
    }
  });
}

}  // namespace mica::cpu::convolution
