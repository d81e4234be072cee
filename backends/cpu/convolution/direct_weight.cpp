// The weight's gradient in float32, tap by tap from bands of rows: the taps of a row and their channels are adjacent in
// a band, so that each row of outputs is a product of two matrices that lie in memory as they are.
#include <algorithm>

#include "backends/cpu/convolution/correlation.h"
#include "backends/cpu/convolution/parts.h"
#include "backends/cpu/gemm/kernels.h"
#include "mica/parallel.h"

namespace mica::cpu::convolution {

namespace {

using gemm_impl::MicroKernel;
using gemm_impl::MicroTile;

constexpr int64_t kMostSums = 1 << 20;  // the most floats that a thread keeps
constexpr int64_t kLeastWidth = 20;     // products over shorter rows would mostly load and store sums

struct WeightGradient {
  const Correlation& c;
  const MicroKernel& kernel = gemm_impl::micro_kernel_f32();
  int64_t run, runs;  // adjacent taps and channels, the rows of a product; how many such runs a row of taps has
  int64_t plane;      // the sums of one group
  int64_t rows, band_rows, band_cols, blocks;

  explicit WeightGradient(const Correlation& correlation) : c(correlation) {
    run = c.dilation_x == 1 ? c.kernel_x * c.channels : c.channels;
    runs = c.kernel_x * c.channels / run;
    plane = c.depth() * c.filters;
    band_cols = (c.target.width - 1) * c.stride_x + (c.kernel_x - 1) * c.dilation_x + 1;
    const auto rows_for = [&](int64_t r) { return (r - 1) * c.stride_y + (c.kernel_y - 1) * c.dilation_y + 1; };
    const int64_t all_rows = c.batch * c.target_planes * c.target.height;
    rows = std::clamp<int64_t>(divide_up(all_rows, kTasksPerThread * get_num_threads()), 1, c.target.height);
    while (rows > 1 && rows_for(rows) * band_cols * c.channels * static_cast<int64_t>(sizeof(float)) > kBandBytes)
      rows = divide_up(rows, 2);
    rows = equal_part(c.target.height, rows);
    band_rows = rows_for(rows);
    blocks = divide_up(c.target.height, rows);
  }

  // Adds one block of rows of one group to `sums`: [tap plane][tap row][tap, channel][filter].
  void add_rows(int64_t image, int64_t group, int64_t plane_index, int64_t first, float* band_data, float* grad_data,
                float* sums) const {
    const int64_t count = std::min(rows, c.target.height - first), width = c.target.width;
    Plane target = c.target;
    target.data += plane_index * c.target_plane_stride;
    const bool direct = target.channels_last();
    const float* grad =
        direct ? target.data + image * target.batch_stride + group * c.filters + first * target.row_stride : grad_data;
    if (!direct) load_positions(target, image, group * c.filters, c.filters, first * width, count * width, grad_data);
    for (int64_t kz = 0; kz < c.kernel_z; ++kz, sums += plane / c.kernel_z) {
      const int64_t z = plane_index * c.stride_z - c.pad_z + kz * c.dilation_z;
      if (z < 0 || z >= c.source_planes) continue;
      Plane source = c.source;
      source.data += z * c.source_plane_stride;
      load_band(source, image, group * c.channels, c.channels,
                {band_data, first * c.stride_y - c.pad_y, band_rows, -c.pad_x, band_cols, true});
      add_products(band_data, grad, direct ? target.col_stride : c.filters, count, sums);
    }
  }

  void add_products(const float* band, const float* grad, int64_t grad_stride, int64_t count, float* sums) const {
    const int64_t step = equal_part(run, kernel.rows), row_step = band_cols * c.channels, width = c.target.width;
    MicroTile tile;
    tile.a_row_stride = 1;
    tile.a_k_stride = c.stride_x * c.channels;
    tile.b_k_stride = grad_stride;
    tile.c_row_stride = c.filters;
    tile.k = width;
    tile.store = gemm_impl::Store::Accumulate;
    tile.epilogue = nullptr;
    for (int64_t y = 0; y < count; ++y) {
      for (int64_t ky = 0; ky < c.kernel_y; ++ky) {
        const float* row = band + (y * c.stride_y + ky * c.dilation_y) * row_step;
        for (int64_t f = 0; f < c.filters; f += kernel.cols) {
          tile.b = grad + y * width * grad_stride + f;
          tile.cols = static_cast<int>(std::min<int64_t>(kernel.cols, c.filters - f));
          for (int64_t r = 0; r < runs; ++r) {
            for (int64_t i = 0; i < run; i += step) {
              tile.rows = static_cast<int>(std::min(step, run - i));
              tile.a = row + r * c.dilation_x * c.channels + i;
              tile.c = sums + ((ky * runs + r) * run + i) * c.filters + f;
              kernel.run(tile);
            }
          }
        }
      }
    }
  }

  void compute(float* weight) const {
    const int64_t tasks = c.batch * c.target_planes * blocks, shares = std::min<int64_t>(tasks, get_num_threads());
    const int64_t size = c.groups * plane;
    const Scratch all(bytes_of_floats(shares * size));
    parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
      const Scratch band(bytes_of_floats(band_rows * band_cols * c.channels));
      const Scratch grad(c.target.channels_last() ? 0 : bytes_of_floats(rows * c.target.width * c.filters));
      for (int64_t share = begin; share < end; ++share) {
        float* sums = all.as<float>() + share * size;
        std::fill_n(sums, size, 0.0f);
        for (int64_t task = share * tasks / shares; task < (share + 1) * tasks / shares; ++task)
          for (int64_t g = 0; g < c.groups; ++g)
            add_rows(task / blocks / c.target_planes, g, task / blocks % c.target_planes, task % blocks * rows,
                     band.as<float>(), grad.as<float>(), sums + g * plane);
      }
    });
    parallel_for(0, c.groups * c.filters, std::max<int64_t>(1, (1 << 14) / c.depth()), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const float* from = all.as<float>() + i / c.filters * plane + i % c.filters;
        for (int64_t tap = 0; tap < c.kernel_z * c.kernel_y * c.kernel_x; ++tap) {
          const int64_t x = tap % c.kernel_x, y = tap / c.kernel_x % c.kernel_y, z = tap / c.kernel_x / c.kernel_y;
          float* to = weight + i * c.weight_filter + z * c.weight_z + y * c.weight_y + x * c.weight_x;
          for (int64_t ch = 0; ch < c.channels; ++ch, from += c.filters) {
            float sum = *from;
            for (int64_t s = 1; s < shares; ++s) sum += from[s * size];
            to[ch * c.weight_channel] = sum;
          }
        }
      }
    });
  }
};

}  // namespace

bool suits_direct_weight(const Correlation& c) {
  return c.filters >= 8 && c.target.width >= kLeastWidth && c.groups * c.depth() * c.filters <= kMostSums;
}

void weight_gradient_direct(const Correlation& c, float* weight) { WeightGradient(c).compute(weight); }

}  // namespace mica::cpu::convolution
