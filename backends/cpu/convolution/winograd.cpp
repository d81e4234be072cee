#include "backends/cpu/convolution/winograd.h"

#include <algorithm>

#include "backends/cpu/convolution/winograd_transforms.h"
#include "backends/cpu/gemm/kernels.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

namespace {

using gemm_impl::MicroKernel;
using gemm_impl::MicroTile;

constexpr int64_t kBlockBytes = 1 << 20;  // of coefficients, in the second cache
constexpr int64_t kTasksPerThread = 4;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }
// The least equal part when `total` is cut in parts of at most `limit`.
int64_t equal_part(int64_t total, int64_t limit) { return divide_up(total, divide_up(total, limit)); }

// How the tiles of the target's plane are taken: some rows of tiles at a time.
struct Tiling {
  const WinogradTransforms& transforms = winograd_transforms();
  const MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  int64_t rows, cols;         // tiles of a plane
  int64_t block, blocks;      // rows of tiles at a time, and how often
  int64_t channels, filters;  // padded to whole vectors
  int64_t band_rows, band_cols;

  explicit Tiling(const Correlation& c) {
    rows = divide_up(c.target.height, 2);
    cols = divide_up(c.target.width, 2);
    channels = padded(c.channels);
    filters = padded(c.filters);
    const int64_t bytes = kCoefficients * cols * (channels + filters) * static_cast<int64_t>(sizeof(float));
    const int64_t share = divide_up(c.batch * rows, kTasksPerThread * get_num_threads());
    block = equal_part(rows, std::clamp<int64_t>(std::min(kBlockBytes / bytes, share), 1, rows));
    blocks = divide_up(rows, block);
    band_rows = 2 * block + 2;
    band_cols = 2 * cols + 2;
  }

  // Rows that lie a power of two apart would meet in few sets of the cache.
  int64_t padded(int64_t n) const {
    const int64_t whole = round_up(n, transforms.lanes);
    return whole % 512 == 0 ? whole + transforms.lanes : whole;
  }
  int64_t tiles(int64_t tile_rows) const { return tile_rows * cols; }
  size_t source_floats() const { return static_cast<size_t>(kCoefficients * tiles(block) * channels); }
  size_t target_floats() const { return static_cast<size_t>(kCoefficients * tiles(block) * filters + filters); }
  size_t band_floats(int64_t c) const { return static_cast<size_t>(band_rows * band_cols * c + transforms.lanes); }

  // The coefficients of rows [first, first + count) of tiles of an image's source.
  void transform_source(const Correlation& c, int64_t image, int64_t first, int64_t count, float* band_data,
                        float* to) const {
    const Band band{band_data, 2 * first - c.pad_y, 2 * count + 2, -c.pad_x, band_cols, true};
    load_band(c.source, image, 0, c.channels, band);
    const int64_t plane = tiles(count) * channels, row = band_cols * c.channels;
    for (int64_t y = 0; y < count; ++y)
      transforms.input(band_data + 2 * y * row, row, c.channels, cols, to + y * cols * channels, channels, plane);
  }
};

size_t bytes_of(size_t floats) { return floats * sizeof(float); }

// The filters' coefficients as the products take them: [coefficient][panel][channel][filter of the panel].
void transform_filters(const Correlation& c, int64_t width, float* to) {
  const int64_t panels = divide_up(c.filters, width), plane = panels * c.channels * width;
  parallel_for(0, panels * c.channels, std::max<int64_t>(1, (1 << 12) / width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t panel = i / c.channels, channel = i % c.channels, first = panel * width;
      for (int64_t f = 0; f < width; ++f) {
        float taps[3][3] = {}, coefficients[16];
        if (first + f < c.filters) {
          const float* from = c.weight_at(0, first + f, channel);
          for (int y = 0; y < 3; ++y)
            for (int x = 0; x < 3; ++x) taps[y][x] = from[y * c.weight_y + x * c.weight_x];
        }
        transform_filter(taps, coefficients);
        for (int64_t k = 0; k < kCoefficients; ++k) to[k * plane + i * width + f] = coefficients[k];
      }
    }
  });
}

}  // namespace

bool suits_winograd(const Correlation& c) {
  return c.kernel_y == 3 && c.kernel_x == 3 && c.stride_y == 1 && c.stride_x == 1 && c.dilation_y == 1 &&
         c.dilation_x == 1 && c.groups == 1 && c.pad_y >= 0 && c.pad_x >= 0 && c.channels >= 16 && c.filters >= 16 &&
         c.target.height >= 4 && c.target.width >= 4;
}

void convolve_winograd(const Correlation& c) {
  const Tiling t(c);
  const int64_t width = t.kernel.cols, panels = divide_up(c.filters, width), panel_size = c.channels * width;
  const Scratch filters(bytes_of(static_cast<size_t>(kCoefficients * panels * panel_size)));
  transform_filters(c, width, filters.as<float>());
  const bool direct = c.target.channels_last();
  parallel_for(0, c.batch * t.blocks, 1, [&](int64_t begin, int64_t end) {
    const Scratch band(bytes_of(t.band_floats(c.channels))), source(bytes_of(t.source_floats())),
        products(bytes_of(t.target_floats())),
        rows(direct ? 0 : bytes_of(static_cast<size_t>(2 * t.block * c.target.width * c.filters)));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t image = task / t.blocks, first = task % t.blocks * t.block,
                    count = std::min(t.block, t.rows - first);
      const int64_t tiles = t.tiles(count);
      t.transform_source(c, image, first, count, band.as<float>(), source.as<float>());

      const int64_t step = equal_part(tiles, t.kernel.rows);
      MicroTile tile;
      tile.a_row_stride = t.channels;
      tile.a_k_stride = 1;
      tile.b_k_stride = width;
      tile.c_row_stride = t.filters;
      tile.k = c.channels;
      tile.store = gemm_impl::Store::Overwrite;
      tile.epilogue = nullptr;
      for (int64_t k = 0; k < kCoefficients; ++k) {
        for (int64_t panel = 0; panel < panels; ++panel) {
          tile.b = filters.as<float>() + (k * panels + panel) * panel_size;
          tile.cols = static_cast<int>(std::min(width, c.filters - panel * width));
          for (int64_t i = 0; i < tiles; i += step) {
            tile.rows = static_cast<int>(std::min(step, tiles - i));
            tile.a = source.as<float>() + (k * tiles + i) * t.channels;
            tile.c = products.as<float>() + (k * tiles + i) * t.filters + panel * width;
            t.kernel.run(tile);
          }
        }
      }

      const Plane& to = c.target;
      float* target = direct ? to.data + image * to.batch_stride + 2 * first * to.row_stride : rows.as<float>();
      const int64_t column = direct ? to.col_stride : c.filters, row = direct ? to.row_stride : to.width * c.filters;
      const int64_t height = std::min(2 * count, to.height - 2 * first);
      for (int64_t y = 0; y < count; ++y) {
        t.transforms.output(products.as<float>() + y * t.cols * t.filters, t.filters, tiles * t.filters, t.cols,
                            c.filters, c.bias, target + 2 * y * row, row, column, std::min<int64_t>(2, height - 2 * y),
                            to.width);
      }
      if (!direct) store_positions(to, image, 0, c.filters, 2 * first * to.width, height * to.width, rows.as<float>());
    }
  });
}

void weight_gradient_winograd(const Problem& p) {
  const Correlation c = forward_correlation(p);
  const Tiling t(c);
  const bool direct = c.target.channels_last();
  const int64_t plane = c.channels * c.filters, size = kCoefficients * plane;
  const int64_t tasks = c.batch * t.blocks, shares = std::min<int64_t>(tasks, get_num_threads());
  const Scratch all(bytes_of(static_cast<size_t>(shares * size)));
  parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    const Scratch band(bytes_of(t.band_floats(c.channels))), source(bytes_of(t.source_floats())),
        gradients(bytes_of(t.target_floats())),
        rows(direct ? 0 : bytes_of(static_cast<size_t>(2 * t.block * c.target.width * c.filters)));
    for (int64_t share = begin; share < end; ++share) {
      float* sums = all.as<float>() + share * size;
      std::fill_n(sums, size, 0.0f);
      for (int64_t task = share * tasks / shares; task < (share + 1) * tasks / shares; ++task) {
        const int64_t image = task / t.blocks, first = task % t.blocks * t.block,
                      count = std::min(t.block, t.rows - first);
        const int64_t tiles = t.tiles(count);
        t.transform_source(c, image, first, count, band.as<float>(), source.as<float>());

        const Plane& from = c.target;
        const int64_t height = std::min(2 * count, from.height - 2 * first);
        if (!direct)
          load_positions(from, image, 0, c.filters, 2 * first * from.width, height * from.width, rows.as<float>());
        const float* grad =
            direct ? from.data + image * from.batch_stride + 2 * first * from.row_stride : rows.as<float>();
        const int64_t column = direct ? from.col_stride : c.filters,
                      row = direct ? from.row_stride : from.width * c.filters;
        for (int64_t y = 0; y < count; ++y) {
          t.transforms.gradient(grad + 2 * y * row, row, column, std::min<int64_t>(2, height - 2 * y), from.width,
                                t.cols, c.filters, gradients.as<float>() + y * t.cols * t.filters, t.filters,
                                tiles * t.filters);
        }

        const int64_t step = equal_part(c.channels, t.kernel.rows), width = t.kernel.cols;
        MicroTile tile;
        tile.a_row_stride = 1;
        tile.a_k_stride = t.channels;
        tile.b_k_stride = t.filters;
        tile.c_row_stride = c.filters;
        tile.k = tiles;
        tile.store = gemm_impl::Store::Accumulate;
        tile.epilogue = nullptr;
        for (int64_t k = 0; k < kCoefficients; ++k) {
          for (int64_t f = 0; f < c.filters; f += width) {
            tile.b = gradients.as<float>() + k * tiles * t.filters + f;
            tile.cols = static_cast<int>(std::min(width, c.filters - f));
            for (int64_t i = 0; i < c.channels; i += step) {
              tile.rows = static_cast<int>(std::min(step, c.channels - i));
              tile.a = source.as<float>() + k * tiles * t.channels + i;
              tile.c = sums + k * plane + i * c.filters + f;
              t.kernel.run(tile);
            }
          }
        }
      }
    }
  });
  float* weight = reinterpret_cast<float*>(p.weight);
  parallel_for(0, c.channels, std::max<int64_t>(1, (1 << 12) / c.filters), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * c.filters; i < end * c.filters; ++i) {
      float coefficients[16], taps[3][3];
      for (int64_t k = 0; k < kCoefficients; ++k) {
        coefficients[k] = all.as<float>()[k * plane + i];
        for (int64_t share = 1; share < shares; ++share)
          coefficients[k] += all.as<float>()[share * size + k * plane + i];
      }
      transform_filter_gradient(coefficients, taps);
      float* to = weight + i % c.filters * c.weight_filter + i / c.filters * c.weight_channel;
      for (int y = 0; y < 3; ++y)
        for (int x = 0; x < 3; ++x) to[y * c.weight_y + x * c.weight_x] = taps[y][x];
    }
  });
}

}  // namespace mica::cpu::convolution
