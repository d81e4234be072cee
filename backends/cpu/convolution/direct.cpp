// Direct convolution in float32. A thread loads a band of input rows with the zeros around it, then sums whole tiles of
// positions and filters in registers, reading the band in place: nothing is copied per tap.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/convolution/correlation.h"
#include "backends/cpu/convolution/direct_tiles.h"
#include "backends/cpu/convolution/parts.h"
#include "core/kept.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

namespace {

constexpr int64_t kChannelsLast = 8;  // from so many channels on, runs of channels are worth transposing the band
// Filters of more bytes do not stay in the second cache from one band to the next. Bands are then larger, so that the
// filters are read less often, and threads share filters instead of rows.
constexpr int64_t kHeavyFilters = 1 << 20;
constexpr int64_t kHeavyBandBytes = 1 << 19;

struct Direct {
  const Correlation& c;
  const DirectKernel& kernel = direct_kernel();
  bool band_last;  // whether channels of the band are last
  bool heavy;      // whether filters come from the third cache or from memory
  int64_t run_count, run_length;
  int64_t panels, panel_size;
  int64_t part_panels;  // the panels that a task multiplies with a band
  int64_t rows, band_rows, band_cols, band_size;
  std::vector<int64_t> runs;

  explicit Direct(const Correlation& correlation) : c(correlation) {
    band_last = c.source.channels_last() || c.channels >= kChannelsLast;
    // Channels and taps of a row are adjacent where channels are last and taps are not spread.
    const bool joined = band_last && c.dilation_x == 1;
    run_length = band_last ? (joined ? c.kernel_x * c.channels : c.channels) : (c.dilation_x == 1 ? c.kernel_x : 1);
    run_count = c.depth() / run_length;
    panels = divide_up(c.filters, kernel.width);
    panel_size = c.depth() * kernel.width;
    band_cols = (c.target.width - 1) * c.stride_x + (c.kernel_x - 1) * c.dilation_x + 1;
    const auto rows_for = [&](int64_t r) { return (r - 1) * c.stride_y + (c.kernel_y - 1) * c.dilation_y + 1; };
    heavy = panels * panel_size * static_cast<int64_t>(sizeof(float)) > kHeavyFilters;
    const int64_t planes = c.batch * c.groups * c.target_planes;
    const int64_t tasks = get_num_threads() > 1 ? kTasksPerThread * get_num_threads() : 1;
    rows =
        heavy ? c.target.height : std::clamp<int64_t>(divide_up(planes * c.target.height, tasks), 1, c.target.height);
    while (rows > 1 &&
           std::max(c.kernel_z * rows_for(rows) * band_cols * c.channels, rows * c.target.width * c.filters) * 4 >
               (heavy ? kHeavyBandBytes : kBandBytes))
      rows = divide_up(rows, 2);
    rows = equal_part(c.target.height, rows);
    const int64_t bands = planes * divide_up(c.target.height, rows);
    part_panels = heavy ? equal_part(panels, divide_up(panels, divide_up(tasks, bands))) : panels;
    band_rows = rows_for(rows);
    band_size = band_rows * band_cols * c.channels;
    find_runs();
  }

  void find_runs() {
    const Band band{nullptr, 0, band_rows, 0, band_cols, band_last};
    const int64_t row = band.row_step(c.channels), col = band.col_step(c.channels), channel = band.channel_step();
    const int64_t channels = band_last ? 1 : c.channels, columns = c.dilation_x == 1 ? 1 : c.kernel_x;
    for (int64_t z = 0; z < c.kernel_z; ++z)
      for (int64_t ch = 0; ch < channels; ++ch)
        for (int64_t y = 0; y < c.kernel_y; ++y)
          for (int64_t x = 0; x < columns; ++x)
            runs.push_back(z * band_size + ch * channel + y * c.dilation_y * row + x * c.dilation_x * col);
  }

  // Writes a panel of filters: for every factor, in the order of the runs, one weight of each filter.
  void pack_panel(int64_t group, int64_t index, float* to) const {
    const int64_t width = kernel.width, first = index * width, count = std::min(width, c.filters - first);
    const float* filters = c.weight_at(group, first, 0);
    const int64_t row = c.kernel_x, plane = c.kernel_y * row, taps = c.kernel_z * plane;
    const auto stacked = [&](int64_t step) { return c.kernel_z == 1 || c.weight_z == step; };
    const bool taps_inside = c.weight_x == 1 && c.weight_y == row && stacked(plane) && c.weight_channel == taps;
    const bool taps_outside = c.weight_channel == 1 && c.weight_x == c.channels && c.weight_y == row * c.channels &&
                              stacked(plane * c.channels);
    const bool ordered = band_last ? taps_outside : taps_inside && c.kernel_z == 1;
    if (count < width) std::fill_n(to, panel_size, 0.0f);
    if (ordered) return transpose_floats(filters, c.weight_filter, to, width, count, c.depth());
    if (band_last && taps_inside) return turn_taps(filters, count, to);
    const auto put = [&](int64_t ch, int64_t z, int64_t y, int64_t x) {
      const float* from = filters + ch * c.weight_channel + z * c.weight_z + y * c.weight_y + x * c.weight_x;
      for (int64_t f = 0; f < count; ++f) to[f] = from[f * c.weight_filter];
      to += width;
    };
    const int64_t outer = band_last ? 1 : c.channels, inner = band_last ? c.channels : 1;
    for (int64_t z = 0; z < c.kernel_z; ++z)
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t y = 0; y < c.kernel_y; ++y)
          for (int64_t x = 0; x < c.kernel_x; ++x)
            for (int64_t i = 0; i < inner; ++i) put(o + i, z, y, x);
  }

  // Some channels at a time are transposed in the nearest cache, and then each tap is copied to its place.
  void turn_taps(const float* filters, int64_t count, float* to) const {
    constexpr int64_t kFloats = 4096;
    const int64_t width = kernel.width, taps = c.kernel_z * c.kernel_y * c.kernel_x;
    const int64_t together = std::max<int64_t>(1, kFloats / (taps * width));
    const Scratch turned(bytes_of_floats(together * taps * width));
    for (int64_t ch = 0; ch < c.channels; ch += together) {
      const int64_t n = std::min(together, c.channels - ch);
      transpose_floats(filters + ch * taps, c.weight_filter, turned.as<float>(), width, count, n * taps);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t tap = 0; tap < taps; ++tap) {
          const float* from = turned.as<float>() + (i * taps + tap) * width;
          float* at = to + (tap * c.channels + ch + i) * width;
          if (count < width) {
            std::copy_n(from, count, at);
          } else {  // a panel is whole vectors, so that few bytes need no call of memcpy
            for (int64_t f = 0; f < width; f += 4) std::memcpy(at + f, from + f, 4 * sizeof(float));
          }
        }
    }
  }

  void run() const {
    const kept::Key key{c.weight,
                        kept::Key::Kind::DirectFilters,
                        {c.groups, c.channels, c.filters, c.kernel_z, c.kernel_y, c.kernel_x, c.weight_group,
                         c.weight_filter, c.weight_channel, c.weight_z, c.weight_y, 2 * c.weight_x + band_last}};
    kept::Memory packed(key, bytes_of_floats(c.groups * panels * panel_size));
    const Scratch biases(bytes_of_floats(c.groups * panels * kernel.width));
    if (!packed.is_filled()) {
      parallel_for(0, c.groups * panels, std::max<int64_t>(1, (1 << 15) / panel_size), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) pack_panel(i / panels, i % panels, packed.as<float>() + i * panel_size);
      });
      packed.set_filled();
    }
    for (int64_t i = 0; c.bias && i < c.groups * panels; ++i) {
      const int64_t first = i % panels * kernel.width, count = std::min<int64_t>(kernel.width, c.filters - first);
      std::copy_n(c.bias + i / panels * c.filters + first, count, biases.as<float>() + i * kernel.width);
    }
    const int64_t blocks = divide_up(c.target.height, rows), parts = divide_up(panels, part_panels);
    const bool direct = c.target.channels_last();
    share_tasks(c.batch * c.groups * c.target_planes * blocks * parts, [&](const auto& tasks) {
      const Scratch bands(bytes_of_floats(c.kernel_z * band_size));
      const Scratch sums(direct ? 0 : bytes_of_floats(rows * c.target.width * part_panels * kernel.width));
      int64_t loaded = -1;  // which bands the memory has
      tasks([&](int64_t task) {
        const int64_t block = task / parts, first = block % blocks * rows, plane = block / blocks % c.target_planes;
        const int64_t group = block / blocks / c.target_planes % c.groups;
        const int64_t image = block / blocks / c.target_planes / c.groups, panel = task % parts * part_panels;
        if (block != loaded) load_bands(image, group, plane, first, bands.as<float>());
        loaded = block;
        run_rows(image, group, plane, first, std::min(rows, c.target.height - first), panel,
                 packed.as<float>() + group * panels * panel_size,
                 c.bias ? biases.as<float>() + group * panels * kernel.width : nullptr, bands.as<float>(),
                 sums.as<float>());
      });
    });
    if (c.work) c.work->set_done();
  }

  // The rows of the source that rows from `first` of a plane of the target read, one band for each of its planes.
  void load_bands(int64_t image, int64_t group, int64_t plane, int64_t first, float* bands) const {
    for (int64_t k = 0; k < c.kernel_z; ++k, bands += band_size) {
      const int64_t z = plane * c.stride_z - c.pad_z + k * c.dilation_z;
      if (z < 0 || z >= c.source_planes) {
        std::fill_n(bands, band_size, 0.0f);
        continue;
      }
      Plane source = c.source;
      source.data += z * c.source_plane_stride;
      load_band(source, image, group * c.channels, c.channels,
                {bands, first * c.stride_y - c.pad_y, band_rows, -c.pad_x, band_cols, band_last});
    }
  }

  // Multiplies bands that were loaded with the panels of a part.
  void run_rows(int64_t image, int64_t group, int64_t plane, int64_t first, int64_t count, int64_t first_panel,
                const float* packed, const float* bias, float* bands, float* sums) const {
    const Band band{bands, 0, band_rows, 0, band_cols, band_last};
    Plane to = c.target;
    to.data += plane * c.target_plane_stride;
    const bool direct = c.target.channels_last();
    const int64_t last_panel = std::min(panels, first_panel + part_panels), first_filter = first_panel * kernel.width;
    const int64_t filters = std::min(c.filters, last_panel * kernel.width) - first_filter;
    const int64_t stride = direct ? c.target.col_stride : filters, width = c.target.width;
    const int64_t channel = group * c.filters + first_filter;
    float* target = direct ? to.data + image * to.batch_stride + channel + first * to.row_stride : sums;
    const int64_t step = equal_part(width, kernel.rows_of(run_length));
    DirectTile tile;
    tile.position_stride = c.stride_x * band.col_step(c.channels);
    tile.runs = runs.data();
    tile.run_count = run_count;
    tile.run_length = run_length;
    tile.target_stride = stride;
    for (int64_t panel = first_panel; panel < last_panel; ++panel) {
      tile.panel = packed + panel * panel_size;
      tile.bias = bias ? bias + panel * kernel.width : nullptr;
      tile.cols = static_cast<int>(std::min<int64_t>(kernel.width, c.filters - panel * kernel.width));
      NextPanel next(heavy && panel + 1 < last_panel ? tile.panel + panel_size : nullptr, panel_size,
                     count * divide_up(width, step), c.depth());
      for (int64_t y = 0; y < count; ++y) {
        const float* row = band.data + y * c.stride_y * band.row_step(c.channels);
        for (int64_t x = 0; x < width; x += step) {
          next.give_to(tile);
          tile.rows = static_cast<int>(std::min(step, width - x));
          tile.source = row + x * tile.position_stride;
          tile.target = target + (y * width + x) * stride + (panel - first_panel) * kernel.width;
          kernel.run(tile);
        }
      }
    }
    if (!direct) store_positions(to, image, channel, filters, first * width, count * width, sums);
    if (c.work) c.work->run({image, channel, filters, (plane * c.target.height + first) * width, count * width});
  }
};

}  // namespace

bool suits_direct(const Correlation& c) {
  // The general way takes padding that is larger than the kernel, and groups that are too narrow for vectors of
  // filters.
  return c.pad_y >= 0 && c.pad_x >= 0 && c.filters >= 8 && c.target_planes > 0 && c.target.height > 0 &&
         c.target.width > 0;
}

void convolve_direct(const Correlation& c) { Direct(c).run(); }

}  // namespace mica::cpu::convolution
