// The gradient of a strided convolution's input (a transposed convolution) in float32. Inputs whose positions leave the
// same rest modulo the stride meet the same taps: for each such phase it is a correlation of stride one with some of
// the taps, and the register tiles of direct convolutions compute it.
#include <algorithm>
#include <vector>

#include "backends/cpu/convolution/correlation.h"
#include "backends/cpu/convolution/direct_tiles.h"
#include "backends/cpu/convolution/parts.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

namespace {

// One phase of a dimension. Its targets are first, first + stride, and so on. They read from the source, beginning
// `shift` further, through the taps last, last - stride, and so on, of which there are `taps`.
struct Phase {
  int64_t first, shift, last, taps;

  Phase(int64_t rest, int64_t kernel, int64_t stride, int64_t pad) {
    first = ((rest - pad) % stride + stride) % stride;
    taps = rest < kernel ? divide_up(kernel - rest, stride) : 0;
    last = rest + (taps - 1) * stride;
    shift = (first + pad - last) / stride;  // without a rest, because first + pad and last have the same one
  }
};

struct Strided {
  const Correlation& c;  // the forward convolution, whose source is filled from its target
  const DirectKernel& kernel = direct_kernel();
  std::vector<Phase> rows_phases, cols_phases;
  int64_t panels;
  int64_t low_y = 0, low_x = 0;  // the least shifts
  int64_t reach_y = 0, reach_x = 0;
  int64_t rows, blocks, band_rows, band_cols;

  explicit Strided(const Correlation& correlation) : c(correlation) {
    panels = divide_up(c.channels, kernel.width);
    for (int64_t r = 0; r < c.stride_y; ++r) rows_phases.emplace_back(r, c.kernel_y, c.stride_y, c.pad_y);
    for (int64_t r = 0; r < c.stride_x; ++r) cols_phases.emplace_back(r, c.kernel_x, c.stride_x, c.pad_x);
    const auto bounds = [](const std::vector<Phase>& phases, int64_t& low, int64_t& reach) {
      bool any = false;
      int64_t high = 0;
      for (const Phase& p : phases) {
        if (p.taps == 0) continue;
        low = any ? std::min(low, p.shift) : p.shift;
        high = any ? std::max(high, p.shift + p.taps) : p.shift + p.taps;
        any = true;
      }
      reach = high - low;
    };
    bounds(rows_phases, low_y, reach_y);
    bounds(cols_phases, low_x, reach_x);
    band_cols = divide_up(c.source.width, c.stride_x) + reach_x;
    // Rows of the input are taken in groups of one stride.
    const int64_t strides = divide_up(c.source.height, c.stride_y);
    rows =
        std::clamp<int64_t>(divide_up(c.batch * c.groups * strides, kTasksPerThread * get_num_threads()), 1, strides);
    while (rows > 1 &&
           std::max((rows + reach_y) * band_cols * c.filters, rows * c.stride_y * c.source.width * c.channels) *
                   static_cast<int64_t>(sizeof(float)) >
               kBandBytes)
      rows = divide_up(rows, 2);
    rows = equal_part(strides, rows);
    blocks = divide_up(strides, rows);
    band_rows = rows + reach_y;
  }

  int64_t depth(const Phase& y, const Phase& x) const { return y.taps * x.taps * c.filters; }
  // The panels of all phases of a group, one after another.
  int64_t panel_floats() const {
    int64_t total = 0;
    for (const Phase& y : rows_phases)
      for (const Phase& x : cols_phases) total += depth(y, x) * panels * kernel.width;
    return total;
  }

  void pack(int64_t group, float* to) const {
    for (const Phase& y : rows_phases) {
      for (const Phase& x : cols_phases) {
        for (int64_t panel = 0; panel < panels; ++panel) {
          const int64_t first = panel * kernel.width, count = std::min<int64_t>(kernel.width, c.channels - first);
          for (int64_t j = 0; j < y.taps; ++j) {
            for (int64_t i = 0; i < x.taps; ++i) {
              const float* tap = c.weight + group * c.weight_group + first * c.weight_channel +
                                 (y.last - j * c.stride_y) * c.weight_y + (x.last - i * c.stride_x) * c.weight_x;
              for (int64_t f = 0; f < c.filters; ++f, to += kernel.width) {
                for (int64_t ch = 0; ch < count; ++ch) to[ch] = tap[f * c.weight_filter + ch * c.weight_channel];
                std::fill(to + count, to + kernel.width, 0.0f);
              }
            }
          }
        }
      }
    }
  }

  void run() const {
    const int64_t group_floats = panel_floats();
    const Scratch packed(bytes_of_floats(c.groups * group_floats));
    const Scratch biases(bytes_of_floats(c.groups * panels * kernel.width));
    for (int64_t g = 0; g < c.groups && c.bias; ++g)
      std::copy_n(c.bias + g * c.channels, c.channels, biases.as<float>() + g * panels * kernel.width);
    parallel_for(0, c.groups, std::max<int64_t>(1, (1 << 15) / std::max<int64_t>(1, group_floats)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t g = begin; g < end; ++g) pack(g, packed.as<float>() + g * group_floats);
                 });
    const bool direct = c.source.channels_last();
    share_tasks(c.batch * c.groups * blocks, [&](const auto& tasks) {
      const Scratch band(bytes_of_floats(band_rows * band_cols * c.filters));
      const Scratch sums(direct ? 0 : bytes_of_floats(rows * c.stride_y * c.source.width * c.channels));
      tasks([&](int64_t task) {
        const int64_t image = task / blocks / c.groups, g = task / blocks % c.groups;
        run_rows(image, g, task % blocks * rows, packed.as<float>() + g * group_floats,
                 c.bias ? biases.as<float>() + g * panels * kernel.width : nullptr, band.as<float>(), sums.as<float>());
      });
    });
  }

  // Computes groups [first, first + rows) of rows of an image's input, a stride of rows each.
  void run_rows(int64_t image, int64_t group, int64_t first, const float* packed, const float* bias, float* band_data,
                float* sums) const {
    const Band band{band_data, first + low_y, band_rows, low_x, band_cols, true};
    load_band(c.target, image, group * c.filters, c.filters, band);
    const bool direct = c.source.channels_last();
    const int64_t top = first * c.stride_y, height = std::min(rows * c.stride_y, c.source.height - top);
    const int64_t column = direct ? c.source.col_stride : c.channels, row = c.source.width * column;
    float* target = direct ? c.source.data + image * c.source.batch_stride + group * c.channels + top * row : sums;
    std::vector<int64_t> runs;
    for (const Phase& y : rows_phases) {
      for (const Phase& x : cols_phases) {
        runs.clear();
        for (int64_t j = 0; j < y.taps; ++j) runs.push_back(j * band.row_step(c.filters));
        DirectTile tile;
        tile.position_stride = c.filters;
        tile.runs = runs.data();
        tile.run_count = x.taps > 0 ? y.taps : 0;
        tile.run_length = x.taps * c.filters;
        tile.target_stride = c.stride_x * column;
        const int64_t width = c.source.width <= x.first ? 0 : divide_up(c.source.width - x.first, c.stride_x);
        const int64_t step = width > 0 ? equal_part(width, kernel.rows_of(tile.run_length)) : 1;
        for (int64_t panel = 0; panel < panels; ++panel) {
          tile.panel = packed + panel * depth(y, x) * kernel.width;
          tile.bias = bias ? bias + panel * kernel.width : nullptr;
          tile.cols = static_cast<int>(std::min<int64_t>(kernel.width, c.channels - panel * kernel.width));
          for (int64_t r = 0; r * c.stride_y + y.first < height; ++r) {
            const float* from =
                band.data + (r + y.shift - low_y) * band.row_step(c.filters) + (x.shift - low_x) * c.filters;
            float* to = target + (r * c.stride_y + y.first) * row + x.first * column + panel * kernel.width;
            for (int64_t i = 0; i < width; i += step) {
              tile.rows = static_cast<int>(std::min(step, width - i));
              tile.source = from + i * c.filters;
              tile.target = to + i * tile.target_stride;
              kernel.run(tile);
            }
          }
        }
        packed += depth(y, x) * panels * kernel.width;
      }
    }
    if (!direct)
      store_positions(c.source, image, group * c.channels, c.channels, top * c.source.width, height * c.source.width,
                      sums);
  }
};

}  // namespace

bool suits_direct_strided(const Correlation& c) {
  return c.dilation_y == 1 && c.dilation_x == 1 && c.channels >= 8 && c.filters >= 4;
}

void input_gradient_strided(const Correlation& c) { Strided(c).run(); }

}  // namespace mica::cpu::convolution
