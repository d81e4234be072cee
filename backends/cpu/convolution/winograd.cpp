#include "backends/cpu/convolution/winograd.h"

#include <algorithm>
#include <atomic>

#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/convolution/winograd_transforms.h"
#include "backends/cpu/gemm/kernels.h"
#include "core/kept.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

namespace {

using gemm_impl::MicroKernel;
using gemm_impl::MicroTile;

constexpr int64_t kBlockBytes = 1 << 20;  // the coefficients of a block, which stay in the second cache
constexpr int64_t kLeastTiles = 112;      // with fewer tiles, reading the filters' coefficients costs too much
// What the coefficients of a filter for one channel cost beyond its plain taps, in multiply-adds.
#if defined(__aarch64__)
constexpr int64_t kFilterWork = 100;
#else
constexpr int64_t kFilterWork = 700;
#endif

// How tiles are taken: some rows of tiles at a time, counted through all images.
struct Tiling {
  const WinogradTransforms& transforms = winograd_transforms();
  const MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  int64_t rows, cols;         // the tiles of an image
  int64_t block, blocks;      // how many rows of tiles a block has, and how many blocks there are
  int64_t channels, filters;  // their numbers, padded to whole vectors
  int64_t band_cols;

  explicit Tiling(const Correlation& c) {
    rows = divide_up(c.target.height, 2);
    cols = divide_up(c.target.width, 2);
    channels = padded(c.channels);
    filters = padded(c.filters);
    const int64_t bytes = kCoefficients * cols * (channels + filters) * static_cast<int64_t>(sizeof(float));
    const int64_t fitting = std::max(kBlockBytes / bytes, divide_up(kLeastTiles, cols));
    const int64_t share = divide_up(c.batch * rows, kTasksPerThread * get_num_threads());
    const int64_t least = std::min(divide_up(kLeastTiles, cols), divide_up(c.batch * rows, get_num_threads()));
    block = std::max(std::min(fitting, share), least);
    blocks = divide_up(c.batch * rows, block);
    band_cols = 2 * cols + 2;
  }

  // Rows that lie a power of two apart would fall into few sets of the cache.
  int64_t padded(int64_t n) const {
    const int64_t whole = round_up(n, transforms.lanes);
    return whole % 512 == 0 ? whole + transforms.lanes : whole;
  }
  int64_t image_rows() const { return std::min(block, rows); }  // the most rows of a block that lie in one image
  int64_t coefficients(int64_t width) const { return kCoefficients * block * cols * width + transforms.lanes; }
  int64_t band_floats(int64_t c) const { return (2 * image_rows() + 2) * band_cols * c + transforms.lanes; }
  int64_t target_floats(const Correlation& c) const { return 2 * image_rows() * c.target.width * c.filters; }

  // Calls body(image, its first row of tiles, count, rows before) for what a block has of each image.
  template <class Body>
  void for_each_image(int64_t first, int64_t count, const Body& body) const {
    for (int64_t done = 0; done < count;) {
      const int64_t image = (first + done) / rows, row = (first + done) % rows, n = std::min(count - done, rows - row);
      body(image, row, n, done);
      done += n;
    }
  }

  // Computes the coefficients of a block's inputs.
  void transform_source(const Correlation& c, int64_t first, int64_t count, float* band_data, float* to) const {
    const int64_t plane = count * cols * channels, row = band_cols * c.channels;
    for_each_image(first, count, [&](int64_t image, int64_t top, int64_t n, int64_t before) {
      load_band(c.source, image, 0, c.channels, {band_data, 2 * top - c.pad_y, 2 * n + 2, -c.pad_x, band_cols, true});
      for (int64_t y = 0; y < n; ++y)
        transforms.input(band_data + 2 * y * row, row, c.channels, cols, to + (before + y) * cols * channels, channels,
                         plane);
    });
  }
};

// Rows of an image's target: in place where channels are last, otherwise in `rows`.
struct TargetRows {
  float* data;
  int64_t row, column;

  TargetRows(const Correlation& c, int64_t image, int64_t first_row, float* rows) {
    const Plane& to = c.target;
    const bool direct = to.channels_last();
    data = direct ? to.data + image * to.batch_stride + first_row * to.row_stride : rows;
    column = direct ? to.col_stride : c.filters;
    row = direct ? to.row_stride : to.width * c.filters;
  }
};

// The filters' coefficients as the products take them: [coefficient][panel][channel][filter of the panel].
struct WinogradPanels {
  int64_t width, panels, panel_size;
  int64_t
      plane;  // floats of a coefficient: one line more than whole pages, so that the 16 fall into different cache sets

  WinogradPanels(const Correlation& c, int64_t width)
      : width(width), panels(divide_up(c.filters, width)), panel_size(c.channels * width) {
    constexpr int64_t kPage = 1024, kLine = 16;
    plane = round_up(panels * panel_size, kPage) + kLine;
  }
  int64_t at(int64_t coefficient, int64_t panel) const { return coefficient * plane + panel * panel_size; }
};

// The taps of some channels of a panel's filters: [channel][tap][filter].
void gather_taps(const Correlation& c, int64_t first, int64_t count, int64_t channel, int64_t channels, int64_t width,
                 float* to) {
  if (c.weight_x == 1 && c.weight_y == 3 && c.weight_channel == 9)
    return transpose_floats(c.weight_at(0, first, channel), c.weight_filter, to, width, count, 9 * channels);
  for (int64_t ch = 0; ch < channels; ++ch, to += 9 * width) {
    for (int64_t f = 0; f < count; ++f) {
      const float* from = c.weight_at(0, first + f, channel + ch);
      for (int k = 0; k < 9; ++k) to[k * width + f] = from[k / 3 * c.weight_y + k % 3 * c.weight_x];
    }
  }
}

void transform_filters(const Correlation& c, const WinogradTransforms& transforms, const WinogradPanels& p, float* to) {
  constexpr int64_t kTogether = 16;  // channels whose taps stay in the first cache
  const int64_t parts = divide_up(c.channels, kTogether);
  parallel_for(0, p.panels * parts, divide_up(int64_t{1 << 8}, p.width), [&](int64_t begin, int64_t end) {
    const Scratch taps(bytes_of_floats(kTogether * 9 * p.width));
    std::fill_n(taps.as<float>(), kTogether * 9 * p.width, 0.0f);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t panel = i / parts, first = panel * p.width, count = std::min(p.width, c.filters - first);
      const int64_t channel = i % parts * kTogether, channels = std::min(kTogether, c.channels - channel);
      if (count < p.width)
        std::fill_n(taps.as<float>(), kTogether * 9 * p.width, 0.0f);  // removes those of the panel before
      gather_taps(c, first, count, channel, channels, p.width, taps.as<float>());
      for (int64_t ch = 0; ch < channels; ++ch)
        transforms.filters(taps.as<float>() + ch * 9 * p.width, p.width, p.width,
                           to + p.at(0, panel) + (channel + ch) * p.width, p.plane);
    }
  });
}

}  // namespace

bool suits_winograd(const Correlation& c) {
  if (c.kernel_y != 3 || c.kernel_x != 3 || c.stride_y != 1 || c.stride_x != 1 || c.dilation_y != 1 ||
      c.dilation_x != 1 || c.groups != 1 || c.pad_y < 0 || c.pad_x < 0 || c.channels < 16 || c.filters < 16)
    return false;
  const int64_t tiles = c.batch * divide_up(c.target.height, 2) * divide_up(c.target.width, 2);
  const int64_t plain = 9 * c.batch * c.target.height * c.target.width;  // multiply-adds of a filter and a channel
  return kCoefficients * tiles + kFilterWork < plain - plain / 8;
}

void convolve_winograd(const Correlation& c) {
  const Tiling t(c);
  const WinogradPanels panels(c, t.kernel.cols);
  const kept::Key key{c.weight,
                      kept::Key::Kind::WinogradFilters,
                      {c.channels, c.filters, c.weight_filter, c.weight_channel, c.weight_y, c.weight_x}};
  kept::Memory filters(key, bytes_of_floats(kCoefficients * panels.plane));
  if (!filters.is_filled()) {
    transform_filters(c, t.transforms, panels, filters.as<float>());
    filters.set_filled();
  }
  const bool direct = c.target.channels_last();
  const int64_t whole = round_up(c.filters, t.transforms.lanes);
  std::atomic<bool> finite{true};
  share_tasks(t.blocks, [&](const auto& tasks) {
    const Scratch band(bytes_of_floats(t.band_floats(c.channels))), source(bytes_of_floats(t.coefficients(t.channels))),
        products(bytes_of_floats(t.coefficients(t.filters))), rows(direct ? 0 : bytes_of_floats(t.target_floats(c)));
    tasks([&](int64_t block) {
      const int64_t first = block * t.block, count = std::min(t.block, c.batch * t.rows - first);
      const int64_t tiles = count * t.cols;
      t.transform_source(c, first, count, band.as<float>(), source.as<float>());

      const int64_t step = t.kernel.turns ? t.kernel.in_place_rows : equal_part(tiles, t.kernel.in_place_rows);
      MicroTile tile;
      tile.a_row_stride = t.channels;
      tile.a_k_stride = 1;
      tile.b_k_stride = panels.width;
      tile.c_row_stride = t.filters;
      tile.k = c.channels;
      tile.store = gemm_impl::Store::Overwrite;
      tile.epilogue = nullptr;
      for (int64_t k = 0; k < kCoefficients; ++k) {
        for (int64_t panel = 0; panel < panels.panels; ++panel) {
          tile.b = filters.as<float>() + panels.at(k, panel);
          tile.cols = static_cast<int>(std::min(panels.width, whole - panel * panels.width));
          const bool ends = panel + 1 == panels.panels;
          const bool another = !ends || k + 1 < kCoefficients;
          NextPanel next(another ? filters.as<float>() + panels.at(ends ? k + 1 : k, ends ? 0 : panel + 1) : nullptr,
                         panels.panel_size, divide_up(tiles, step), c.channels);
          for (int64_t i = 0; i < tiles; i += step) {
            next.give_to(tile);
            tile.rows = static_cast<int>(std::min(step, tiles - i));
            tile.a = source.as<float>() + (k * tiles + i) * t.channels;
            tile.c = products.as<float>() + (k * tiles + i) * t.filters + panel * panels.width;
            t.kernel.run(tile);
          }
        }
      }

      t.for_each_image(first, count, [&](int64_t image, int64_t top, int64_t n, int64_t before) {
        const TargetRows to(c, image, 2 * top, rows.as<float>());
        const int64_t height = std::min(2 * n, c.target.height - 2 * top);
        for (int64_t y = 0; y < n; ++y) {
          if (!t.transforms.output(products.as<float>() + (before + y) * t.cols * t.filters, t.filters,
                                   tiles * t.filters, t.cols, c.filters, c.bias, to.data + 2 * y * to.row, to.row,
                                   to.column, std::min<int64_t>(2, height - 2 * y), c.target.width))
            finite.store(false, std::memory_order_relaxed);
        }
        if (!direct)
          store_positions(c.target, image, 0, c.filters, 2 * top * c.target.width, height * c.target.width,
                          rows.as<float>());
        if (c.work) c.work->run({image, 0, c.filters, 2 * top * c.target.width, height * c.target.width});
      });
    });
  });
  if (c.work) c.work->set_done();
  // The transforms subtract. Where a number is infinite or overflows, the result is not what plain sums would give.
  if (!finite) convolve_direct(c);
}

void weight_gradient_winograd(const Problem& p) {
  const Correlation c = forward_correlation(p);
  const Tiling t(c);
  const bool direct = c.target.channels_last();
  const int64_t width = round_up(c.filters, t.transforms.lanes);
  const int64_t plane = c.channels * width, size = kCoefficients * plane;
  const int64_t shares = std::min<int64_t>(t.blocks, get_num_threads());
  const Scratch all(bytes_of_floats(shares * size));
  parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    const Scratch band(bytes_of_floats(t.band_floats(c.channels))), source(bytes_of_floats(t.coefficients(t.channels))),
        gradients(bytes_of_floats(t.coefficients(t.filters))), rows(direct ? 0 : bytes_of_floats(t.target_floats(c)));
    for (int64_t share = begin; share < end; ++share) {
      float* sums = all.as<float>() + share * size;
      const int64_t from = share * t.blocks / shares, to = (share + 1) * t.blocks / shares;
      for (int64_t block = from; block < to; ++block) {
        const int64_t first = block * t.block, count = std::min(t.block, c.batch * t.rows - first);
        const int64_t tiles = count * t.cols;
        t.transform_source(c, first, count, band.as<float>(), source.as<float>());
        t.for_each_image(first, count, [&](int64_t image, int64_t top, int64_t n, int64_t before) {
          const TargetRows grad(c, image, 2 * top, rows.as<float>());
          const int64_t height = std::min(2 * n, c.target.height - 2 * top);
          if (!direct)
            load_positions(c.target, image, 0, c.filters, 2 * top * c.target.width, height * c.target.width,
                           rows.as<float>());
          for (int64_t y = 0; y < n; ++y)
            t.transforms.gradient(grad.data + 2 * y * grad.row, grad.row, grad.column,
                                  std::min<int64_t>(2, height - 2 * y), c.target.width, t.cols, c.filters,
                                  gradients.as<float>() + (before + y) * t.cols * t.filters, t.filters,
                                  tiles * t.filters);
        });

        const int64_t step = equal_part(c.channels, t.kernel.rows), panel = t.kernel.cols;
        MicroTile tile;
        tile.a_row_stride = 1;
        tile.a_k_stride = t.channels;
        tile.b_k_stride = t.filters;
        tile.c_row_stride = width;
        tile.k = tiles;
        tile.store = block == from ? gemm_impl::Store::Overwrite : gemm_impl::Store::Accumulate;
        tile.epilogue = nullptr;
        for (int64_t k = 0; k < kCoefficients; ++k) {
          for (int64_t f = 0; f < width; f += panel) {
            tile.b = gradients.as<float>() + k * tiles * t.filters + f;
            tile.cols = static_cast<int>(std::min(panel, width - f));
            for (int64_t i = 0; i < c.channels; i += step) {
              tile.rows = static_cast<int>(std::min(step, c.channels - i));
              tile.a = source.as<float>() + k * tiles * t.channels + i;
              tile.c = sums + k * plane + i * width + f;
              t.kernel.run(tile);
            }
          }
        }
      }
    }
  });
  // Some channels are taken at a time, which lie together in the weight.
  constexpr int64_t kChannels = 16;
  float* weight = reinterpret_cast<float*>(p.weight);
  std::atomic<bool> finite{true};
  parallel_for(0, divide_up(c.channels, kChannels), 1, [&](int64_t begin, int64_t end) {
    const Scratch taps(bytes_of_floats(kChannels * 9 * width));
    for (int64_t first = begin * kChannels; first < std::min(end * kChannels, c.channels); first += kChannels) {
      const int64_t count = std::min(kChannels, c.channels - first);
      for (int64_t ch = 0; ch < count; ++ch) {
        if (!t.transforms.filter_gradients(all.as<float>() + (first + ch) * width, plane, shares, size, width,
                                           taps.as<float>() + ch * 9 * width, width))
          finite.store(false, std::memory_order_relaxed);
      }
      for (int64_t f = 0; f < c.filters; ++f) {
        float* to = weight + f * c.weight_filter + first * c.weight_channel;
        for (int64_t k = 0; k < 9; ++k) {
          const int64_t tap = k / 3 * c.weight_y + k % 3 * c.weight_x;
          const float* from = taps.as<float>() + k * width + f;
          for (int64_t ch = 0; ch < count; ++ch) to[tap + ch * c.weight_channel] = from[ch * 9 * width];
        }
      }
    }
  });
  if (!finite) weight_gradient_columns(p);
}

}  // namespace mica::cpu::convolution
